"""An operation: one redrive, and the ledger of what became of each letter in it."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from msgspec import Struct

from redrive.model.letter import Failure


class Delivered(Struct, frozen=True, kw_only=True, tag="delivered"):
    """The target took it. `confirmed`: its handler finished the work, not only its broker the message."""

    confirmed: bool = False
    result: Any = None
    """What the handler gave back, where there is one at hand."""


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

    INTENDED = "intended"
    """About to be sent. If nothing follows, the sender died: it may have arrived."""
    SENT = "sent"
    CONFIRMED = "confirmed"
    FAILED = "failed"
    UNKNOWN = "unknown"


class OperationStatus(StrEnum):
    RUNNING = "running"
    FINISHED = "finished"
    STOPPED = "stopped"


class Operation(Struct, frozen=True, kw_only=True):
    """One redrive."""

    id: UUID
    target: str
    started_at: datetime
    total: int
    status: OperationStatus = OperationStatus.RUNNING
    finished_at: datetime | None = None
    by: str = ""


class LedgerRow(Struct, frozen=True, kw_only=True):
    """What became of one letter in one operation."""

    operation: UUID
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
