"""Aftermath: settle letters whose sending the ledger knows of, where whoever sent them died before they were settled."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from redrive.engine.settle import settle
from redrive.model.lease import Claim
from redrive.model.letter import Letter
from redrive.model.operation import TO_BE_SENT, Entry, LedgerRow
from redrive.model.settlement import Completed, Outcome, Redriven, Settlement
from redrive.model.status import OPEN, Status
from redrive.ports.desk import Desk
from redrive.ports.letters import LetterStore

_TAKEN = frozenset({Entry.CONFIRMED, Entry.SENT, Entry.UNKNOWN})
"""What the ledger says of a letter that must not stay open."""
HELD = frozenset({Status.RETRYING, Status.PENDING, Status.EXHAUSTED})
"""How a letter stands that could not be claimed because somebody held it, who may have given it back since."""


async def mended(store: LetterStore, desk: Desk, operation: UUID, numbers: range, *, owner: str, lease: timedelta) -> int:
    """Look at the rows with these numbers; how many letters could not be settled yet, because somebody still holds them."""
    rows = await desk.ledger(operation, entries=_TAKEN, after=numbers.start - 1, limit=len(numbers))
    letters = await store.get([row.letter for row in rows])
    left = {row.letter: row for row, letter in zip(rows, letters, strict=True) if _is_left(row, letter)}
    if not left:
        return 0
    claimed = await store.claim(Claim(owner=owner, lease=lease, what=tuple(left), limit=len(left)))
    settlements = [Settlement.ending(one, _outcome(left[one.letter.id])) for one in claimed]
    if settlements:
        await settle(store, settlements)
    return len(left) - len(claimed)


def _is_left(row: LedgerRow, letter: Letter | None) -> bool:
    """Is the letter as it was before it was sent?"""
    if letter is None or letter.generation != row.generation or letter.redrive.operation == row.operation:
        return False
    return letter.status in OPEN or letter.status is Status.RETRYING


def _outcome(row: LedgerRow) -> Outcome:
    return Completed(operation=row.operation) if row.entry is Entry.CONFIRMED else Redriven(operation=row.operation)


async def still_to_be_sent(desk: Desk, rows: Sequence[LedgerRow]) -> dict[int, LedgerRow]:
    """Those of one operation's rows that are to be sent by now, by their numbers. Whoever runs it too writes down what became of
    a letter before that can be seen in the letter: asked after the letter was looked at, this knows what they knew."""
    if not rows:
        return {}
    numbers = {row.number for row in rows}
    first, last = min(numbers), max(numbers)
    known = await desk.ledger(rows[0].operation, entries=TO_BE_SENT, after=first - 1, limit=last - first + 1)
    return {row.number: row for row in known if row.number in numbers}


def around(rows: Sequence[LedgerRow], total: int, batch: int) -> range:
    """The numbers of what may have been under way when somebody died, given the first rows that were still to be sent."""
    first = rows[0].number if rows else total
    return range(max(0, first - 4 * batch), first + 4 * batch)


def became(row: LedgerRow, letter: Letter | None) -> tuple[Entry, str]:
    """What the ledger says of a letter that is not there to be sent."""
    if letter is None or letter.generation != row.generation:
        return unsent(row), "there is no such letter any more" if letter is None else "it failed again after it was chosen"
    if letter.redrive.operation == row.operation:
        # It was settled, and whoever did it died before the ledger knew, or runs this operation too.
        return {Status.COMPLETED: Entry.CONFIRMED, Status.REDRIVEN: Entry.SENT}.get(letter.status, Entry.UNKNOWN), ""
    return unsent(row), "somebody holds it" if letter.status is Status.RETRYING else f"it is {letter.status}"


def unsent(row: LedgerRow) -> Entry:
    """What the ledger says of a letter that does not go now; whether one went that was about to be sent, nobody knows."""
    return Entry.UNKNOWN if row.entry is Entry.INTENDED else Entry.SKIPPED
