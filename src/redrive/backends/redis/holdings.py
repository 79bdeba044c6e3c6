"""Letters as a shard answers with them: decoded, with version and lease."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from redrive.backends.redis.cards import on_card
from redrive.backends.redis.keys import Shard, bytes_of, instant_of
from redrive.backends.redis.scripts import script
from redrive.backends.redis.server import Server
from redrive.model.changes import Holding
from redrive.model.letter import Letter
from redrive.model.status import Status
from redrive.model.stored import restored

MOST_CARDS = 1000
MOST_LETTERS = 250
"""So many are read in one call, letters with their bodies: the server does nothing else meanwhile."""


class Kept(Struct, frozen=True, gc=False):
    """A letter as it is stored, or as much as its card tells, at a version, with the last lease on it."""

    letter: Letter
    version: bytes
    token: int = 0
    until: datetime | None = None

    def seen(self, now: datetime) -> Letter:
        """As readers see it: under a live lease it is `retrying`."""
        if self.until is not None and self.until > now:
            return replace(self.letter, status=Status.RETRYING)
        return self.letter

    def is_held(self, now: datetime) -> bool:
        return self.until is not None and self.until > now

    @property
    def holding(self) -> Holding:
        return Holding(self.letter, self.token, self.until)


def kept(letter: Letter, version: bytes, lease: bytes | None) -> Kept:
    if lease is None:
        return Kept(letter, version)
    return Kept(letter, version, int.from_bytes(lease[:8], "big"), instant_of(lease[8:16]))


def given(now: datetime | None) -> bytes:
    """The instant as scripts take it; empty: they ask the server's clock."""
    return b"" if now is None else bytes_of(now)


async def read(
    server: Server, shard: Shard, ids: Sequence[bytes], now: datetime | None, *, cards: bool = False
) -> tuple[dict[UUID, Kept], datetime]:
    """Those of the letters that are there, and the instant at which they were like that."""
    source = shard.cards if cards else shard.letters
    moment, *rest = await server.run(script("read"), [source, shard.cards, shard.leases], given(now), b"".join(ids))
    if now is None:
        server.heard(moment)
    found = {}
    for id, (value, version, lease) in zip(ids, _tuples(rest, 3), strict=True):
        if value is not None:
            letter = on_card(id, value) if cards else restored(value)
            found[UUID(bytes=id)] = kept(letter, version, lease)
    return found, instant_of(moment)


async def read_many(
    server: Server, shard: Shard, ids: Sequence[bytes], now: datetime | None, *, cards: bool = False
) -> list[tuple[Kept, datetime]]:
    """As `read`, in as many calls as it takes for others to get their turn; each letter with its own instant."""
    found: list[tuple[Kept, datetime]] = []
    size = MOST_CARDS if cards else MOST_LETTERS
    for start in range(0, len(ids), size):
        part, moment = await read(server, shard, ids[start : start + size], now, cards=cards)
        found += [(kept, moment) for kept in part.values()]
    return found


def _tuples(flat: Sequence[Any], size: int) -> Iterable[tuple[Any, ...]]:
    return zip(*(flat[start::size] for start in range(size)), strict=True)
