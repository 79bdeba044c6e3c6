"""Observe: what became of letters that were sent to where only their handler can tell.

Nobody reports to an operation. A consumer that redrive guards confirms the letter when the message has worked, and reopens it when
that fails again; here the letters are looked at.
"""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from msgspec.structs import replace

from redrive.model.letter import Letter
from redrive.model.operation import UNDECIDED, Entry, LedgerRow
from redrive.model.status import Status
from redrive.ports.desk import Desk
from redrive.ports.letters import LetterStore

_AT_A_TIME = 1000
MOST = 5000
"""Letters that are looked at, unless more are asked for: those that were sent first, of which most may be known."""


async def observed(store: LetterStore, desk: Desk, operation: UUID, *, most: int = MOST) -> int:
    """Write to an operation's ledger what can be seen of the letters it has sent; how many are decided by that."""
    last, decided, looked_at = -1, 0, 0
    while looked_at < most and (rows := await desk.ledger(operation, entries=UNDECIDED, limit=_AT_A_TIME, after=last)):
        last = rows[-1].number
        looked_at += len(rows)
        letters = await store.get([row.letter for row in rows])
        now = datetime.now(UTC)
        told = [
            replace(row, entry=entry, detail=detail, at=now)
            for row, letter in zip(rows, letters, strict=True)
            if (found := _seen(row, letter)) is not None
            for entry, detail in [found]
        ]
        if told:
            await desk.record(told)
        decided += len(told)
    return decided


def _seen(row: LedgerRow, letter: Letter | None) -> tuple[Entry, str] | None:
    """What is known of a letter since it was sent; None: nothing yet."""
    if letter is None:
        return None
    if letter.generation > row.generation:
        return Entry.FAILED, f"failed again, as generation {letter.generation}: {letter.failure.message}"
    if letter.status is Status.COMPLETED:
        return Entry.CONFIRMED, "its handler said so"
    return None
