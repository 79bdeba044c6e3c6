"""A desk that is not where the letters are: the store remembers which one is its own, and takes no other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from redrive.model.errors import BadSettings
from redrive.model.operation import AuditRow, Entry, LedgerRow, Operation
from redrive.model.receipt import Receipt, Which
from redrive.model.triage import Triage
from redrive.ports.desk import Desk


class BoundDesk:
    """Asks before its first verb whether this desk belongs to the store; a new store takes the first that comes.

    With another desk, an operation that was cut short there would be forgotten, and its letters sent again by a new one.
    """

    def __init__(self, desk: Desk, bind: Callable[[UUID], Awaitable[UUID]], name: str) -> None:
        self._desk = desk
        self._bind = bind
        self._name = name
        self._is_bound = False

    async def identity(self) -> UUID:
        return await (await self._own()).identity()

    async def save(self, operations: Sequence[Operation]) -> None:
        await (await self._own()).save(operations)

    async def operations(self, *, limit: int = 100) -> list[Operation]:
        return await (await self._own()).operations(limit=limit)

    async def operation(self, id: UUID) -> Operation | None:
        return await (await self._own()).operation(id)

    async def change(self, before: Operation, after: Operation) -> bool:
        return await (await self._own()).change(before, after)

    async def drop(self, operation: UUID) -> None:
        await (await self._own()).drop(operation)

    async def record(self, rows: Sequence[LedgerRow]) -> None:
        await (await self._own()).record(rows)

    async def ledger(
        self, operation: UUID, *, entries: Collection[Entry] | None = None, limit: int = 1000, after: int = -1
    ) -> list[LedgerRow]:
        return await (await self._own()).ledger(operation, entries=entries, limit=limit, after=after)

    async def tally(self, operation: UUID) -> dict[Entry, int]:
        return await (await self._own()).tally(operation)

    async def say(self, triages: Sequence[Triage]) -> None:
        await (await self._own()).say(triages)

    async def said(self, namespace: str, fingerprints: Collection[str] | None = None) -> dict[str, Triage]:
        return await (await self._own()).said(namespace, fingerprints)

    async def note(self, rows: Sequence[AuditRow]) -> None:
        await (await self._own()).note(rows)

    async def audit(self, *, limit: int = 100) -> list[AuditRow]:
        return await (await self._own()).audit(limit=limit)

    async def add(self, amounts: Mapping[str, int]) -> None:
        await (await self._own()).add(amounts)

    async def totals(self, prefix: str = "") -> dict[str, int]:
        return await (await self._own()).totals(prefix)

    async def begin(
        self, receipts: Sequence[Receipt], lease: timedelta, *, again: bool = False, now: datetime | None = None
    ) -> list[Receipt]:
        return await (await self._own()).begin(receipts, lease, again=again, now=now)

    async def end(
        self, receipts: Sequence[Receipt], *, done: bool, keep: timedelta | None = None, now: datetime | None = None
    ) -> list[bool]:
        return await (await self._own()).end(receipts, done=done, keep=keep, now=now)

    async def receipts(self, which: Which, *, limit: int = 100) -> list[Receipt]:
        return await (await self._own()).receipts(which, limit=limit)

    async def forget(self, which: Which, *, limit: int = 1000) -> int:
        return await (await self._own()).forget(which, limit=limit)

    async def expire(self, *, limit: int = 1000, now: datetime | None = None) -> int:
        return await (await self._own()).expire(limit=limit, now=now)

    async def _own(self) -> Desk:
        if not self._is_bound:
            ours = await self._desk.identity()
            recorded = await self._bind(ours)
            if recorded != ours:
                raise BadSettings(
                    f"the desk at {self._name} ({ours}) is not the one of this store ({recorded});"
                    " set desk to the URL that was used with it before"
                )
            self._is_bound = True
        return self._desk
