"""An operation: one redrive of letters that were chosen once, and the ledger of what became of each."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from msgspec import Struct

from redrive.model.errors import IllegalTransition
from redrive.model.lane import Lane
from redrive.model.letter import Failure
from redrive.model.tempo import Tempo


class Delivered(Struct, frozen=True, kw_only=True, tag="delivered"):
    """The target took it. `confirmed`: its handler finished the work, not only its broker the message."""

    confirmed: bool = False
    result: Any = None
    """What the handler gave back, where there is one at hand."""
    where: str = ""
    """Where a broker says that it has put it; the ledger keeps that."""


class Refused(Struct, frozen=True, kw_only=True, tag="refused"):
    """The target did not take it, or its handler failed."""

    failure: Failure
    was_reached: bool = True
    """False: nobody was asked, e.g. because the body is missing. Then the letter stays as it was."""


class Unknown(Struct, frozen=True, kw_only=True, tag="unknown"):
    """The answer was lost: it may have arrived."""

    reason: str


Delivery = Delivered | Refused | Unknown


class Entry(StrEnum):
    """What the ledger says of one letter."""

    CHOSEN = "chosen"
    """It is one of those that were shown; nothing has been done with it yet."""
    INTENDED = "intended"
    """About to be sent. If nothing follows, the sender died: it may have arrived."""
    SENT = "sent"
    """The target's broker took it; whether it worked is still open."""
    CONFIRMED = "confirmed"
    """Its handler finished the work."""
    FAILED = "failed"
    """It failed again, or could not be sent; the letter is open."""
    UNKNOWN = "unknown"
    """The answer was lost: it may have arrived."""
    SKIPPED = "skipped"
    """It was not sent: it is not open any more, somebody else holds it, or it must not go."""


TO_BE_SENT = frozenset({Entry.CHOSEN, Entry.INTENDED})
UNDECIDED = frozenset({Entry.SENT, Entry.UNKNOWN})
"""Sent, and what became of it may still be learnt."""
DEPARTED = frozenset({Entry.SENT, Entry.CONFIRMED, Entry.FAILED, Entry.UNKNOWN})

RULE = "rule:"
"""How the `by` of an operation begins that nobody made but a rule."""


class OperationStatus(StrEnum):
    PLANNED = "planned"
    """Its letters are chosen; nobody has said that it may begin."""
    SCHEDULED = "scheduled"
    """It begins by itself when its time has come and the breaker it waits for is closed, where a dispatcher runs."""
    RUNNING = "running"
    PAUSED = "paused"
    """By a person, or by itself; it goes on where it was."""
    FINISHED = "finished"
    CANCELLED = "cancelled"
    """What was not sent stays where it is."""


STEPS: dict[OperationStatus, frozenset[OperationStatus]] = {
    OperationStatus.PLANNED: frozenset({OperationStatus.SCHEDULED, OperationStatus.RUNNING, OperationStatus.CANCELLED}),
    OperationStatus.SCHEDULED: frozenset({OperationStatus.RUNNING, OperationStatus.CANCELLED}),
    OperationStatus.RUNNING: frozenset({OperationStatus.PAUSED, OperationStatus.FINISHED, OperationStatus.CANCELLED}),
    OperationStatus.PAUSED: frozenset({OperationStatus.RUNNING, OperationStatus.CANCELLED}),
    OperationStatus.FINISHED: frozenset(),
    OperationStatus.CANCELLED: frozenset(),
}
"""Where an operation may go from where it stands."""
OVER = frozenset({OperationStatus.FINISHED, OperationStatus.CANCELLED})


class Operation(Struct, frozen=True, kw_only=True):
    """One redrive: a frozen choice of letters, a target, a tempo, and how far it has come."""

    id: UUID
    target: str
    """As it was told: `source`, `py:shop.orders:handle`, `orders=py:shop.orders:handle stock=http://…`."""
    started_at: datetime
    """When its letters were chosen."""
    total: int = 0
    query: str = ""
    """What was asked for; empty: letters by their ids."""
    tempo: Tempo = Tempo()
    status: OperationStatus = OperationStatus.PLANNED
    why: str = ""
    """Why it stands as it does, where that needs saying."""
    begins_at: datetime | None = None
    """Not before then, where it is scheduled."""
    seen_at: datetime | None = None
    """When whoever runs it last said so."""
    finished_at: datetime | None = None
    entries: dict[Entry, int] = {}
    """How many letters stand how, when that was last counted."""
    by: str = ""
    when_closed: Lane | None = None
    """Where it is scheduled: not before the breaker of this lane is seen closed."""

    @property
    def is_by_rule(self) -> bool:
        """Did no person choose its letters? Then none goes that a person has put into quarantine."""
        return self.by.startswith(RULE)

    @property
    def sent(self) -> int:
        return sum(count for entry, count in self.entries.items() if entry in DEPARTED)

    @property
    def left(self) -> int:
        return sum(self.entries.get(entry, 0) for entry in TO_BE_SENT)


def ensure_step(operation: Operation, to: OperationStatus) -> None:
    """Raise `IllegalTransition` unless an operation may go there from where it stands."""
    if to not in STEPS[operation.status]:
        raise IllegalTransition(f"operation {str(operation.id)[:8]} is {operation.status}; it cannot become {to}")


class LedgerRow(Struct, frozen=True, kw_only=True, gc=False):
    """What became of one letter in one operation."""

    operation: UUID
    number: int
    """Which of the operation's letters it is, in the order in which they were chosen."""
    letter: UUID
    generation: int
    entry: Entry
    at: datetime
    detail: str = ""


class AuditRow(Struct, frozen=True, kw_only=True):
    """Who did what, when."""

    at: datetime
    by: str
    act: str
    subject: str
    detail: str = ""
