"""The names of keys, and bytes that sort as instants and priorities do."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from functools import lru_cache

from msgspec import Struct

from redrive.model.instant import instant, micros
from redrive.model.lane import Lane
from redrive.model.letter import Letter
from redrive.model.query import Field, last_name
from redrive.model.status import Status

ABSENT = bytes(8)
"""The version of a letter that is not there."""

_BIAS = 2**63
_LONGEST = 40
"""Values up to so many bytes are in a key's name as they are; of longer ones, the digest is."""


class Shard(Struct, frozen=True, kw_only=True):
    """The keys of one shard. They share a hash tag, so that they lie in one slot and a script may touch them all."""

    tag: bytes

    def key(self, suffix: bytes) -> bytes:
        return self.tag + suffix

    @property
    def letters(self) -> bytes:
        """Hash: id → the letter in its stored form."""
        return self.tag + b"letters"

    @property
    def cards(self) -> bytes:
        """Hash: id → what is asked about and what scripts need to know; see `cards`."""
        return self.tag + b"cards"

    @property
    def leases(self) -> bytes:
        """Hash: id → the last lease, until it is settled."""
        return self.tag + b"leases"

    @property
    def ends(self) -> bytes:
        """Sorted: end of the lease, id."""
        return self.tag + ENDS

    @property
    def due(self) -> bytes:
        """Sorted: lane, inverted priority, since when it may be claimed, id."""
        return self.tag + b"due"

    @property
    def fence(self) -> bytes:
        """The last token."""
        return self.tag + b"fence"

    @property
    def claiming(self) -> list[bytes]:
        """What leases are given from."""
        return [self.letters, self.cards, self.leases, self.due, self.ends, self.fence]

    @property
    def writing(self) -> list[bytes]:
        """What every write touches."""
        return [self.letters, self.cards, self.leases, self.due, self.ends]


ENDS = b"ends"
AGE = b"age"
"""Sorted: instant of death, id."""
UPDATED = b"updated"
"""Sorted: instant of the last change, id."""


def shard(prefix: str, number: int) -> Shard:
    return Shard(tag=f"{{{prefix}:{number}}}".encode())


def meta(prefix: str) -> bytes:
    """Hash: schema, number of shards, the desk's id."""
    return f"{{{prefix}}}meta".encode()


def bytes_of(at: datetime) -> bytes:
    """Eight bytes that sort as instants do, for all years that there are."""
    return (micros(at) + _BIAS).to_bytes(8, "big")


def bytes_of_micros(number: int) -> bytes:
    return (number + _BIAS).to_bytes(8, "big")


def micros_of(raw: bytes) -> int:
    return int.from_bytes(raw, "big") - _BIAS


def instant_of(raw: bytes) -> datetime:
    return instant(micros_of(raw))


def inverted(priority: int) -> bytes:
    """Eight bytes that sort the highest priority first."""
    return max(0, min(_BIAS - 1 - priority, 2**64 - 1)).to_bytes(8, "big")


def lane_bytes(lane: Lane) -> bytes:
    return lane.number.to_bytes(8, "big", signed=True)


def text_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def index(field: Field, value: str | bytes) -> bytes | None:
    """The index of the letters with this value; None when there is none."""
    if field is Field.ERROR:
        value = last_name(str(value))
    if field is Field.NAMESPACE and value == DEFAULT_NAMESPACE:
        return None
    if field in _INDEXED and isinstance(value, str):
        return _by_text(field, value)
    if field is Field.KEY and isinstance(value, bytes):
        return _by(field, value)
    return None


DEFAULT_NAMESPACE = "default"
"""Has no index: nearly all letters are in it."""

_INDEXED = frozenset(
    {Field.STATUS, Field.SOURCE, Field.ERROR, Field.CATEGORY, Field.GROUP, Field.NAMESPACE, Field.KIND, Field.TAG}
)


def status_index(status: Status) -> bytes:
    return _by_text(Field.STATUS, status)


def group_index(fingerprint: str) -> bytes:
    return _by_text(Field.GROUP, fingerprint)


def indexes(letter: Letter) -> list[bytes]:
    """Every index the letter is in."""
    failure = letter.failure
    found = [
        status_index(letter.status),
        _by_text(Field.SOURCE, letter.source),
        _by_text(Field.ERROR, last_name(failure.type)),
        _by_text(Field.CATEGORY, failure.category),
        _by_text(Field.GROUP, failure.fingerprint),
    ]
    if letter.namespace != DEFAULT_NAMESPACE:
        found.append(_by_text(Field.NAMESPACE, letter.namespace))
    if letter.kind is not None:
        found.append(_by_text(Field.KIND, letter.kind))
    if letter.key is not None:
        found.append(_by(Field.KEY, letter.key))
    for tag in dict.fromkeys(letter.tags):
        found.append(_by_text(Field.TAG, tag))
    return found


COUNTED = (Field.NAMESPACE, Field.SOURCE, Field.CATEGORY, Field.ERROR)
"""Fields whose values are counted in a hash each; statuses are counted by their indexes."""
GROUPS = b"count:status=group"
"""Hash: a status, `=`, a fingerprint → how many letters of this group are stored with that status."""


def counts(field: Field) -> bytes:
    return f"count:{field}".encode()


_COUNTS = tuple(counts(field) for field in COUNTED)


def counted(letter: Letter) -> list[tuple[bytes, bytes]]:
    """Where the letter is counted: hash and field."""
    failure = letter.failure
    values = (letter.namespace, letter.source, failure.category, failure.type)
    places = [(name, text_bytes(value)) for name, value in zip(_COUNTS, values, strict=True)]
    places.append(counted_in_group(letter))
    return places


def counted_in_group(letter: Letter) -> tuple[bytes, bytes]:
    """Where the letter is counted with its group and its status."""
    return _in_group(letter.status, letter.failure.fingerprint)


@lru_cache(maxsize=4096)
def _in_group(status: Status, fingerprint: str) -> tuple[bytes, bytes]:
    return GROUPS, text_bytes(f"{status}={fingerprint}")


@lru_cache(maxsize=4096)
def _by_text(field: Field, value: str) -> bytes:
    return _by(field, text_bytes(value))


def _by(field: Field, value: bytes) -> bytes:
    if len(value) <= _LONGEST:
        return b"by:%b=%b" % (field.encode(), value)
    return b"by:%b#%b" % (field.encode(), hashlib.blake2b(value, digest_size=16).digest())


FOREVER = datetime.max.replace(tzinfo=UTC)
"""Later than any lease ends."""
