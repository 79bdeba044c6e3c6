"""The desk in memory, for tests and for stores in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from operator import attrgetter
from uuid import UUID, uuid4

from msgspec.structs import replace

from redrive.backends.memory.receipts import MemoryReceipts
from redrive.model.operation import AuditRow, Entry, LedgerRow, Operation
from redrive.model.triage import Triage


class MemoryDesk(MemoryReceipts):
    """Keeps operations, ledgers, receipts, audit and totals for as long as the process lives."""

    def __init__(self) -> None:
        super().__init__()
        self._id = uuid4()
        self._operations: dict[UUID, Operation] = {}
        self._ledger: dict[tuple[UUID, int], LedgerRow] = {}
        self._said: dict[tuple[str, str], Triage] = {}
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

    async def change(self, before: Operation, after: Operation) -> bool:
        if self._operations.get(before.id) != before:
            return False
        self._operations[before.id] = after
        return True

    async def drop(self, operation: UUID) -> None:
        self._operations.pop(operation, None)
        self._ledger = {key: row for key, row in self._ledger.items() if row.operation != operation}

    async def record(self, rows: Sequence[LedgerRow]) -> None:
        self._ledger |= {(row.operation, row.number): row for row in rows}

    async def ledger(
        self, operation: UUID, *, entries: Collection[Entry] | None = None, limit: int = 1000, after: int = -1
    ) -> list[LedgerRow]:
        rows = [row for row in self._ledger.values() if row.operation == operation and row.number > after]
        chosen = [row for row in rows if entries is None or row.entry in entries]
        return sorted(chosen, key=attrgetter("number"))[:limit]

    async def tally(self, operation: UUID) -> dict[Entry, int]:
        return dict(Counter(row.entry for row in self._ledger.values() if row.operation == operation))

    async def say(self, triages: Sequence[Triage]) -> None:
        self._said |= {(one.namespace, one.fingerprint): one for one in triages}

    async def said(self, namespace: str, fingerprints: Collection[str] | None = None) -> dict[str, Triage]:
        return {
            name: one
            for (known, name), one in self._said.items()
            if known == namespace and (fingerprints is None or name in fingerprints)
        }

    async def note(self, rows: Sequence[AuditRow]) -> None:
        self._audit += [replace(row) for row in rows]

    async def audit(self, *, limit: int = 100) -> list[AuditRow]:
        return self._audit[::-1][:limit]

    async def add(self, amounts: Mapping[str, int]) -> None:
        self._totals.update({name: int(amount) for name, amount in amounts.items()})

    async def totals(self, prefix: str = "") -> dict[str, int]:
        return {name: total for name, total in self._totals.items() if name.startswith(prefix)}
