"""`Desk`: what operators and operations need besides letters."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

from redrive.model.operation import AuditRow, Entry, LedgerRow, Operation
from redrive.model.receipt import Receipt, Which
from redrive.model.triage import Triage


class Desk(Protocol):
    """Keeps operations, their ledgers, receipts, what was said of groups, the audit and running totals, durably."""

    async def identity(self) -> UUID:
        """This desk's own id, minted when it was made."""
        ...

    async def save(self, operations: Sequence[Operation]) -> None:
        """Write operations; the same id again replaces what was there."""
        ...

    async def operations(self, *, limit: int = 100) -> list[Operation]:
        """The operations, latest first."""
        ...

    async def operation(self, id: UUID) -> Operation | None:
        """One operation."""
        ...

    async def change(self, before: Operation, after: Operation) -> bool:
        """Write the operation as it is now, if it is still as it was before; False: somebody else was quicker."""
        ...

    async def drop(self, operation: UUID) -> None:
        """Forget an operation and its ledger."""
        ...

    async def record(self, rows: Sequence[LedgerRow]) -> None:
        """Write ledger rows, all or none; (operation, number) again replaces what was there."""
        ...

    async def ledger(
        self, operation: UUID, *, entries: Collection[Entry] | None = None, limit: int = 1000, after: int = -1
    ) -> list[LedgerRow]:
        """An operation's rows by their number, after the given one; of these entries alone, if they are given."""
        ...

    async def tally(self, operation: UUID) -> dict[Entry, int]:
        """How many of an operation's rows there are of each entry that there are any of."""
        ...

    async def say(self, triages: Sequence[Triage]) -> None:
        """Write what was said of groups, all or none; of the same group again replaces what was there."""
        ...

    async def said(self, namespace: str, fingerprints: Collection[str] | None = None) -> dict[str, Triage]:
        """What was said of groups of a namespace, by fingerprint: of these, or of all."""
        ...

    async def note(self, rows: Sequence[AuditRow]) -> None:
        """Append to the audit, all or none."""
        ...

    async def audit(self, *, limit: int = 100) -> list[AuditRow]:
        """The audit, latest first."""
        ...

    async def add(self, amounts: Mapping[str, int]) -> None:
        """Add to totals by their names, all or none; one that is not there begins at 0."""
        ...

    async def totals(self, prefix: str = "") -> dict[str, int]:
        """The totals whose names begin so."""
        ...

    async def begin(
        self, receipts: Sequence[Receipt], lease: timedelta, *, again: bool = False, now: datetime | None = None
    ) -> list[Receipt]:
        """Ask for the right to work; each is answered as its receipt stands then: begun with this token, the work is theirs.

        It is begun where there is none. A begun one whose time is over becomes unknown, and with `again` what is unknown is
        begun anew. Of many who ask at once one gets it; the same token again changes nothing.
        """
        ...

    async def end(
        self, receipts: Sequence[Receipt], *, done: bool, keep: timedelta | None = None, now: datetime | None = None
    ) -> list[bool]:
        """The work is done, and its receipt stays for `keep` (None: for good); or it failed, and the receipt goes.

        Whoever has the token is believed, also when their time was over; False: it is somebody else's by now, or gone.
        """
        ...

    async def receipts(self, which: Which, *, limit: int = 100) -> list[Receipt]:
        """Receipts as they were last written, those begun latest first."""
        ...

    async def forget(self, which: Which, *, limit: int = 1000) -> int:
        """Remove receipts, so many at most; how many went."""
        ...

    async def expire(self, *, limit: int = 1000, now: datetime | None = None) -> int:
        """Of receipts whose time is over, so many at most, begun ones become unknown and done ones are forgotten; how many."""
        ...
