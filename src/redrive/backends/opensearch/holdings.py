"""Letters as the index answers with them: decoded, with version and lease."""

from __future__ import annotations

from binascii import a2b_base64
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from redrive.backends.opensearch.document import LARGE_LETTER, SMALL_LETTER
from redrive.backends.opensearch.index import Index
from redrive.model.changes import Holding
from redrive.model.errors import StoreCorrupt
from redrive.model.instant import instant
from redrive.model.letter import Letter
from redrive.model.status import Status
from redrive.model.stored import restored

SEEN = (SMALL_LETTER, "until", "size")
"""What it takes to show a letter; a large one is then read by itself."""
_MOST_BYTES = 16_000_000
"""Of large letters in one answer."""


class Kept(Struct, frozen=True, gc=False):
    """A letter as it is stored: the version of the letter, that of its document, and the last lease on it."""

    letter: Letter
    version: int
    document: tuple[int, int]
    token: int = 0
    until: datetime | None = None
    owner: str | None = None

    def is_held(self, now: datetime) -> bool:
        return self.until is not None and self.until > now

    def seen(self, now: datetime) -> Letter:
        """As readers see it: under a live lease it is `retrying`."""
        return replace(self.letter, status=Status.RETRYING) if self.is_held(now) else self.letter

    @property
    def holding(self) -> Holding:
        return Holding(self.letter, self.token, self.until)


async def kept(index: Index, ids: Iterable[UUID]) -> dict[UUID, Kept]:
    """Those of the letters that are there, as they are now."""
    wanted = list(dict.fromkeys(ids))
    found = {
        id: one for id, one in zip(wanted, await index.read(wanted), strict=True) if one and "redrive" in one.get("_source", {})
    }
    large = await _large(index, {id: one["_source"]["redrive"] for id, one in found.items()})
    # A large one may have changed since its size was read; so it is taken whole from the second answer.
    return {id: _kept(whole) for id, one in found.items() if (whole := large.get(id, one))}


async def letters(index: Index, own: Mapping[UUID, dict[str, Any]], now: datetime) -> dict[UUID, Letter]:
    """The letters of answers that have the fields `SEEN`, as readers see them. A large one that is gone meanwhile is left out."""
    large = await _large(index, own)
    shown: dict[UUID, Letter] = {}
    for id, fields in own.items():
        if id in large and not large[id]:
            continue
        source = large[id]["_source"]["redrive"] if id in large else fields
        letter, until = letter_of(source), source.get("until")
        is_held = until is not None and instant(until) > now
        shown[id] = replace(letter, status=Status.RETRYING) if is_held else letter
    return shown


async def whole(index: Index, own: Mapping[UUID, dict[str, Any]]) -> dict[UUID, Letter]:
    """The letters of answers, as they are stored; the large ones are read."""
    large = await _large(index, own)
    sources = {id: large[id].get("_source", {}).get("redrive", {}) if id in large else fields for id, fields in own.items()}
    return {id: letter_of(source) for id, source in sources.items() if source}


def letter_of(own: Mapping[str, Any]) -> Letter:
    """The letter in redrive's own fields of a document."""
    data = own.get(SMALL_LETTER) or own.get(LARGE_LETTER)
    if not data:
        raise StoreCorrupt("a document of the index has no letter in it; something else has changed it")
    return restored(a2b_base64(data))


async def _large(index: Index, own: Mapping[UUID, dict[str, Any]]) -> dict[UUID, dict[str, Any]]:
    """The documents of those letters that are too large to come with others."""
    sizes = {id: one.get("size", 0) for id, one in own.items() if not (one.get(SMALL_LETTER) or one.get(LARGE_LETTER))}
    found: dict[UUID, dict[str, Any]] = {}
    for some in _portions(sizes):
        found |= zip(some, await index.read(some, large=True), strict=True)
    return found


def _portions(sizes: Mapping[UUID, int]) -> Iterator[list[UUID]]:
    some: list[UUID] = []
    left = _MOST_BYTES
    for id, size in sizes.items():
        if some and size > left:
            yield some
            some, left = [], _MOST_BYTES
        some.append(id)
        left -= size
    if some:
        yield some


def _kept(one: dict[str, Any]) -> Kept:
    own = one["_source"]["redrive"]
    until = own.get("until")
    return Kept(
        letter=letter_of(own),
        version=own.get("version", 0),
        document=(one["_seq_no"], one["_primary_term"]),
        token=own.get("token", 0),
        until=None if until is None else instant(until),
        owner=own.get("owner"),
    )
