"""A letter's card: all that can be asked about it, without body and story; and in front, what scripts need to know.

Questions are answered on cards, so that bodies move only when somebody wants to see them.
"""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from msgspec import DecodeError, Struct, ValidationError, msgpack

from redrive.backends.redis.keys import bytes_of, inverted, lane_bytes
from redrive.model.category import Category
from redrive.model.errors import StoreCorrupt
from redrive.model.lane import lane_of
from redrive.model.letter import Failure, Letter, RetryPlan
from redrive.model.status import OPEN, Status

_STATE = slice(16, 17)
_AFTER_STATE = 17
_AFTER_DUE = 41

_encode = msgpack.Encoder().encode


class _Fields(Struct, frozen=True, array_like=True, gc=False):
    source: str
    source_id: str
    namespace: str
    type: str
    category: Category
    fingerprint: str
    status: Status
    generation: int
    attempts: int
    priority: int
    dead_lettered_at: datetime
    updated_at: datetime
    next_retry_at: datetime | None
    expires_at: datetime | None
    key: bytes | None
    kind: str | None
    policy: str
    tags: tuple[str, ...]


_decode = msgpack.Decoder(_Fields).decode


def card(letter: Letter, version: bytes) -> bytes:
    """The letter's card at this version."""
    failure, retry_at = letter.failure, letter.retry.next_retry_at
    if letter.status is Status.PENDING and retry_at is not None:
        state = b"d" + lane_bytes(lane_of(letter)) + inverted(letter.priority) + bytes_of(retry_at)
    else:
        state = b"o" if letter.status in OPEN else b"c"
    fields = _encode(
        (
            letter.source,
            letter.source_id,
            letter.namespace,
            failure.type,
            failure.category,
            failure.fingerprint,
            letter.status,
            letter.generation,
            letter.attempts,
            letter.priority,
            letter.dead_lettered_at,
            letter.updated_at,
            retry_at,
            letter.expires_at,
            letter.key,
            letter.kind,
            letter.retry.policy,
            letter.tags,
        )
    )
    return version + generation_bytes(letter.generation) + state + fields


def generation_bytes(generation: int) -> bytes:
    return (generation % 2**64).to_bytes(8, "big")


def on_card(id: bytes, data: bytes) -> Letter:
    """As much of the letter as its card tells: enough for every question."""
    start = _AFTER_DUE if data[_STATE] == b"d" else _AFTER_STATE
    try:
        fields = _decode(memoryview(data)[start:])
    except (DecodeError, ValidationError, ValueError) as error:
        raise StoreCorrupt(f"the card of letter {UUID(bytes=id)} cannot be read: {error}") from error
    return Letter(
        id=UUID(bytes=id),
        source=fields.source,
        source_id=fields.source_id,
        namespace=fields.namespace,
        failure=Failure(type=fields.type, category=fields.category, fingerprint=fields.fingerprint),
        status=fields.status,
        generation=fields.generation,
        history_dropped=fields.attempts,
        priority=fields.priority,
        first_received_at=fields.dead_lettered_at,
        dead_lettered_at=fields.dead_lettered_at,
        updated_at=fields.updated_at,
        retry=RetryPlan(policy=fields.policy, next_retry_at=fields.next_retry_at),
        expires_at=fields.expires_at,
        key=fields.key,
        kind=fields.kind,
        tags=fields.tags,
    )
