"""A store over a client that the caller has already."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from opensearchpy import AsyncOpenSearch

from redrive.backends.opensearch.address import INDEX, index_name
from redrive.backends.opensearch.connections import Given, placed
from redrive.backends.opensearch.examine import examine
from redrive.backends.opensearch.letters import OpenSearchLetters
from redrive.ports.opening import Deskless

_TIMEOUT = timedelta(seconds=30)


def over(
    client: AsyncOpenSearch,
    *,
    index: str = INDEX,
    timeout: timedelta = _TIMEOUT,
    shards: int = 1,
    replicas: int | None = None,
) -> Deskless:
    """Letters in this index, by way of this client: on its event loop alone, and it is never closed.

    The client's own retries are passed by, so that no write is repeated behind anybody's back.
    """
    address = placed(client, index_name(index), timeout, shards=shards, replicas=replicas)
    letters = OpenSearchLetters(address, Given(client, address))
    return Deskless(letters=letters, examine=partial(examine, letters), bind=letters.bind)
