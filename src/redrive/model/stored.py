"""The stored form of a letter: one byte that numbers the form, then msgpack. The previous form is always readable."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TypeVar

from msgspec import DecodeError, Struct, ValidationError, msgpack
from msgspec.structs import replace

from redrive.model.category import Category
from redrive.model.errors import NotHeld, SchemaTooNew, StoreCorrupt
from redrive.model.letter import Letter, RedriveMark, RetryPlan
from redrive.model.status import Status

Read = TypeVar("Read")

SCHEMA = 1

_MARK = bytes([SCHEMA])
_encode = msgpack.Encoder(uuid_format="bytes").encode

_SMALL_MAP, _MAP = 0x80, 0xDE
"""How msgpack begins a map: of up to fifteen fields, with their number added; of any, with the number behind it."""


class _Standing(Struct, frozen=True, gc=False):
    """What the end of a claim changes in a letter that did not fail again. All of it is always written, defaults included."""

    status: Status
    updated_at: datetime
    retry: RetryPlan
    redrive: RedriveMark


class FailureLine(Struct, frozen=True, gc=False):
    """What a group tells of a failure."""

    type: str
    fingerprint: str = ""
    message: str = ""
    category: Category = Category.PERMANENT


class Headline(Struct, frozen=True, gc=False):
    """What a group tells of its latest letter, which is read much faster than the whole of it."""

    failure: FailureLine
    dead_lettered_at: datetime


_STANDING_FIELDS = len(_Standing.__struct_fields__)


def stored(letter: Letter) -> bytes:
    """The letter as bytes for a store or a journal; `NotHeld` when it holds what cannot be written."""
    try:
        return _MARK + _encode(letter)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise NotHeld(f"letter {letter.id} holds a value that cannot be stored: {error}") from error


def content(letter: Letter) -> bytes:
    """The first part of the letter's stored form, for a store that keeps it in two: with `standing` behind it, it is whole.

    It may stay as it is when only the standing changes: that is a map's last fields, and of two that have the same name the later
    counts.
    """
    return _MARK + with_room(stored(letter)[1:], _STANDING_FIELDS)


def has_other_content(before: Letter, after: Letter) -> bool:
    """Has more changed than how the letter stands?"""
    stands = {name: getattr(after, name) for name in _Standing.__struct_fields__}
    # Of what people write, much that is equal is not the same: 1 and 1.0 and true.
    return stored(replace(before, **stands)) != stored(after)


def with_room(packed: bytes, more: int) -> bytes:
    """A map in msgpack that says of itself that so many more fields follow."""
    first = packed[0]
    number, start = (int.from_bytes(packed[1:3]), 3) if first == _MAP else (first - _SMALL_MAP, 1)
    return b"%c%b%b" % (_MAP, (number + more).to_bytes(2), packed[start:])


def standing(letter: Letter) -> bytes:
    """The second part: how the letter stands."""
    return _encode(_Standing(letter.status, letter.updated_at, letter.retry, letter.redrive))[1:]


def restored(data: bytes) -> Letter:
    """The letter in these bytes, whichever known form they have."""
    return _read(_letters, data)


def headline(data: bytes) -> Headline:
    """The headline of the letter in these bytes."""
    return _read(_headlines, data)


def _read(decoders: Mapping[int, Callable[[memoryview], Read]], data: bytes) -> Read:
    decode = decoders.get(data[0]) if data else None
    if decode is None:
        if data and data[0] > SCHEMA:
            raise SchemaTooNew(f"a letter has stored form {data[0]}, this redrive knows {SCHEMA}; upgrade redrive")
        raise StoreCorrupt("a stored letter is empty or has no known form")
    try:
        return decode(memoryview(data)[1:])
    except (DecodeError, ValidationError, ValueError) as error:
        raise StoreCorrupt(f"a stored letter cannot be read: {error}") from error


_letters = {1: msgpack.Decoder(Letter).decode}
_headlines = {1: msgpack.Decoder(Headline).decode}
