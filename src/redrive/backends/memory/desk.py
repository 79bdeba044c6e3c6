"""The desk in memory, for tests and for stores in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from operator import attrgetter
from uuid import UUID, uuid4

from msgspec.structs import replace

from redrive.model.operation import AuditRow, LedgerRow, Operation


class MemoryDesk:
    """Keeps operations, ledgers, audit and totals for as long as the process lives."""

    def __init__(self) -> None:
        self._id = uuid4()
        self._operations: dict[UUID, Operation] = {}
        self._ledger: dict[tuple[UUID, UUID, int], LedgerRow] = {}
        self._audit: list[AuditRow] = []
        self._totals: Counter[str] = Counter()

    async def identity(self) -> UUID:
        return self._id

    async def save(self, operations: Sequence[Operation]) -> None:
        self._operations |= {operation.id: operation for operation in operations}

    async def operations(self, *, limit: int = 100) -> list[Operation]:
        return sorted(self._operations.values(), key=attrgetter("started_at", "id"), reverse=True)[:limit]

    async def operation(self, id: UUID) -> Operation | None:
        return self._operations.get(id)

    async def record(self, rows: Sequence[LedgerRow]) -> None:
        self._ledger |= {(row.operation, row.letter, row.generation): row for row in rows}

    async def ledger(self, operation: UUID, *, limit: int = 1000, after: LedgerRow | None = None) -> list[LedgerRow]:
        key = attrgetter("letter", "generation")
        rows = [row for row in self._ledger.values() if row.operation == operation and (after is None or key(row) > key(after))]
        return sorted(rows, key=key)[:limit]

    async def note(self, rows: Sequence[AuditRow]) -> None:
        self._audit += [replace(row) for row in rows]

    async def audit(self, *, limit: int = 100) -> list[AuditRow]:
        return self._audit[::-1][:limit]

    async def add(self, amounts: Mapping[str, int]) -> None:
        self._totals.update({name: int(amount) for name, amount in amounts.items()})

    async def totals(self, prefix: str = "") -> dict[str, int]:
        return {name: total for name, total in self._totals.items() if name.startswith(prefix)}
