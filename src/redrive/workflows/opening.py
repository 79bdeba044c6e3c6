"""Where the queue's letters are: in OpenSearch by way of a client, in the store of a URL, or where the settings say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redrive import wiring
from redrive.engine.dead_letters import DeadLetters
from redrive.engine.hook import HookFunction
from redrive.model.errors import BadSettings
from redrive.ports.notifier import Notifier
from redrive.settings import load

INDEX = "mahavishnu_dlq"
"""The index that the workflow DLQ has in OpenSearch."""


def opened(
    store: str | DeadLetters | None, client: Any, *, alerts: Sequence[Notifier | HookFunction] = (), is_refusing: bool = False
) -> DeadLetters:
    """The whole for a queue. `is_refusing`: a store that is down is told to the caller; nothing goes to the journal."""
    if isinstance(store, DeadLetters):
        if client is not None or alerts or is_refusing:
            raise BadSettings("a store that is open already takes no client, no alerts and no other way to fail")
        return store
    if client is not None and store is not None:
        raise BadSettings("give the queue an opensearch_client or a store, not both")
    settings = load({"store": store}).settings
    letters = None
    if client is not None:
        from redrive.backends.opensearch import over  # its driver is there: somebody has made a client with it

        letters = wiring.with_desk(over(client, index=INDEX), settings.desk)
    return wiring.connect(settings, letters=letters, alerts=alerts, has_journal=not is_refusing)
