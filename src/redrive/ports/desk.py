"""`Desk`: what operators and operations need besides letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol
from uuid import UUID

from redrive.model.operation import AuditRow, LedgerRow, Operation


class Desk(Protocol):
    """Keeps operations, their ledgers, the audit and running totals, durably."""

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

    async def record(self, rows: Sequence[LedgerRow]) -> None:
        """Write ledger rows, all or none; (operation, letter, generation) again replaces what was there."""
        ...

    async def ledger(self, operation: UUID, *, limit: int = 1000, after: LedgerRow | None = None) -> list[LedgerRow]:
        """An operation's rows by letter and generation, after the given one."""
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
