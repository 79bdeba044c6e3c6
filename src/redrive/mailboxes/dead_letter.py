"""A message that was given up on, as the body of a dead-letter mailbox."""

from __future__ import annotations

from datetime import datetime
from typing import Generic, TypeVar
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from redrive.engine.backtest import names
from redrive.engine.describe import told as failure_told
from redrive.model.instant import micros
from redrive.model.item import Why
from redrive.model.letter import Failure, Letter, Origin
from redrive.model.message import Message
from redrive.model.story import Story

SCHEME = "mailbox:"
_DELIVERIES = "delivery-count"
"""The header by which a letter remembers how often its message was delivered: its history has only what was tried here."""

Body = TypeVar("Body")


class DeadLetter(Struct, Generic[Body], frozen=True, kw_only=True):
    """The original message with the story of its failure."""

    message_id: str
    body: Body
    source_mailbox: str
    """The mailbox it came from; what came from elsewhere has its letter's source here, e.g. `kafka:orders`."""
    delivery_count: int
    """How often it was tried."""
    last_error: str
    last_error_type: str
    """Fully qualified: `builtins.ValueError`."""
    dead_lettered_at: datetime
    first_received_at: datetime
    request_id: UUID | None = None
    """The id of the request that the body is, if it is one."""
    reply_to: str | None = None
    """The name of the mailbox that waits for a reply."""
    trace_id: str | None = None
    failure: Failure | None = None
    """The whole of it: traceback, causes, category, group."""


def counted(message: Message, deliveries: int) -> Message:
    """A message that says how often it was delivered here; in a header, too, if that was more than once."""
    kept = tuple(pair for pair in message.headers if pair[0] != _DELIVERIES)
    told = ((_DELIVERIES, str(deliveries).encode()),) if deliveries > 1 else ()
    return replace(message, headers=kept + told, delivery_count=deliveries)


def dead_letter_of(letter: Letter, body: Body, *, attempts: int | None = None) -> DeadLetter[Body]:
    """A letter as a dead-letter mailbox shows it, with its body as the caller has read it; `attempts` are those that its queue
    knows of."""
    return DeadLetter(
        message_id=letter.source_id,
        body=body,
        source_mailbox=letter.source.removeprefix(SCHEME),
        delivery_count=max(attempts or letter.attempts, _deliveries(letter)),
        last_error=letter.failure.message,
        last_error_type=letter.failure.type,
        dead_lettered_at=letter.dead_lettered_at,
        first_received_at=letter.first_received_at,
        request_id=_uuid(letter.origin.request_id),
        reply_to=letter.origin.reply_to,
        trace_id=_trace_id(letter.origin.trace),
        failure=letter.failure,
    )


def story_of(dead: DeadLetter[Body]) -> Story:
    """What a queue keeps beside a dead letter's body: the same as of a letter that a policy's route leads there."""
    failure = dead.failure or failure_told(dead.last_error_type, dead.last_error, known_as=names(dead.last_error_type))
    return Story(
        failure=failure,
        source=dead.source_mailbox if ":" in dead.source_mailbox else f"{SCHEME}{dead.source_mailbox}",
        attempts=dead.delivery_count,
        created_us=micros(dead.first_received_at),
        died_us=micros(dead.dead_lettered_at),
        why=Why.TOLD,
        origin=Origin(
            reply_to=dead.reply_to, request_id=None if dead.request_id is None else str(dead.request_id), trace=dead.trace_id
        ),
    )


def source_id_of(dead: DeadLetter[Body]) -> str:
    """The same death has the same: sent twice, it is there once, and a later death of the same message is another."""
    return f"{dead.source_mailbox}.{dead.message_id}.{dead.delivery_count}.{micros(dead.dead_lettered_at)}"


def _deliveries(letter: Letter) -> int:
    told = letter.header(_DELIVERIES) or ""
    return int(told) if told.isascii() and told.isdecimal() and len(told) < 10 else 0


def _uuid(text: str | None) -> UUID | None:
    try:
        return None if text is None else UUID(text)
    except ValueError:
        return None


def _trace_id(trace: str | None) -> str | None:
    """The id of the trace that a `traceparent` names; any other text is taken for the id itself."""
    parts = (trace or "").split("-")
    return parts[1] if len(parts) == 4 else trace or None
