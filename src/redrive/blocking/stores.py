"""A store's letters and its desk, for blocking code."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from redrive.engine.bridge import Bridge
from redrive.model.amendment import Amended, Amendment
from redrive.model.arrival import Held
from redrive.model.census import Backlog, Miscount
from redrive.model.lane import Lane
from redrive.model.lease import Claim, Claimed, Lease
from redrive.model.letter import Letter
from redrive.model.operation import AuditRow, Entry, LedgerRow, Operation
from redrive.model.query import EVERYTHING, Field, GroupOrder, GroupPage, Order, Page, Query
from redrive.model.receipt import Receipt, Which
from redrive.model.settlement import Settled, Settlement
from redrive.model.triage import Triage
from redrive.ports.capabilities import Capabilities
from redrive.ports.desk import Desk as AsyncDesk
from redrive.ports.letters import LetterStore


class Letters:
    """`LetterStore` for blocking code."""

    def __init__(self, store: LetterStore, bridge: Bridge) -> None:
        self._store = store
        self._run = bridge.run

    @property
    def capabilities(self) -> Capabilities:
        return self._store.capabilities

    def put(self, letters: Sequence[Letter], *, now: datetime | None = None) -> list[Held]:
        return self._run(self._store.put(letters, now=now))

    def get(self, ids: Sequence[UUID], *, now: datetime | None = None) -> list[Letter | None]:
        return self._run(self._store.get(ids, now=now))

    def find(
        self,
        query: Query = EVERYTHING,
        *,
        order: Order = Order.NEWEST,
        limit: int = 100,
        after: str | None = None,
        now: datetime | None = None,
    ) -> Page:
        return self._run(self._store.find(query, order=order, limit=limit, after=after, now=now))

    def count(self, query: Query = EVERYTHING, *, now: datetime | None = None) -> int:
        return self._run(self._store.count(query, now=now))

    def tally(self, by: Field, query: Query = EVERYTHING, *, now: datetime | None = None) -> dict[str, int]:
        return self._run(self._store.tally(by, query, now=now))

    def hourly(
        self, since: datetime, until: datetime, query: Query = EVERYTHING, *, now: datetime | None = None
    ) -> dict[datetime, int]:
        return self._run(self._store.hourly(since, until, query, now=now))

    def groups(
        self,
        query: Query = EVERYTHING,
        *,
        order: GroupOrder = GroupOrder.LAST_SEEN,
        limit: int = 100,
        after: str | None = None,
        now: datetime | None = None,
    ) -> GroupPage:
        return self._run(self._store.groups(query, order=order, limit=limit, after=after, now=now))

    def claim(self, claim: Claim, *, now: datetime | None = None) -> list[Claimed]:
        return self._run(self._store.claim(claim, now=now))

    def wait(self, lanes: Sequence[Lane], patience: timedelta) -> None:
        return self._run(self._store.wait(lanes, patience))

    def extend(self, leases: Sequence[Lease], by: timedelta, *, now: datetime | None = None) -> list[Lease | None]:
        return self._run(self._store.extend(leases, by, now=now))

    def settle(self, settlements: Sequence[Settlement], *, now: datetime | None = None) -> list[Settled]:
        return self._run(self._store.settle(settlements, now=now))

    def amend(self, amendments: Sequence[Amendment], *, now: datetime | None = None) -> list[Amended]:
        return self._run(self._store.amend(amendments, now=now))

    def purge(
        self, query: Query, *, limit: int = 1000, among: Sequence[UUID] | None = None, now: datetime | None = None
    ) -> list[Letter]:
        return self._run(self._store.purge(query, limit=limit, among=among, now=now))

    def tidy(self, most: int = 200) -> Backlog:
        return self._run(self._store.tidy(most))

    def recount(self, *, repair: bool = False) -> list[Miscount]:
        return self._run(self._store.recount(repair=repair))

    def check(self) -> None:
        return self._run(self._store.check())

    def close(self) -> None:
        return self._run(self._store.close())


class Desk:
    """`Desk` for blocking code."""

    def __init__(self, desk: AsyncDesk, bridge: Bridge) -> None:
        self._desk = desk
        self._run = bridge.run

    def identity(self) -> UUID:
        return self._run(self._desk.identity())

    def save(self, operations: Sequence[Operation]) -> None:
        return self._run(self._desk.save(operations))

    def operations(self, *, limit: int = 100) -> list[Operation]:
        return self._run(self._desk.operations(limit=limit))

    def operation(self, id: UUID) -> Operation | None:
        return self._run(self._desk.operation(id))

    def change(self, before: Operation, after: Operation) -> bool:
        return self._run(self._desk.change(before, after))

    def drop(self, operation: UUID) -> None:
        return self._run(self._desk.drop(operation))

    def record(self, rows: Sequence[LedgerRow]) -> None:
        return self._run(self._desk.record(rows))

    def ledger(
        self, operation: UUID, *, entries: Collection[Entry] | None = None, limit: int = 1000, after: int = -1
    ) -> list[LedgerRow]:
        return self._run(self._desk.ledger(operation, entries=entries, limit=limit, after=after))

    def tally(self, operation: UUID) -> dict[Entry, int]:
        return self._run(self._desk.tally(operation))

    def say(self, triages: Sequence[Triage]) -> None:
        return self._run(self._desk.say(triages))

    def said(self, namespace: str, fingerprints: Collection[str] | None = None) -> dict[str, Triage]:
        return self._run(self._desk.said(namespace, fingerprints))

    def note(self, rows: Sequence[AuditRow]) -> None:
        return self._run(self._desk.note(rows))

    def audit(self, *, limit: int = 100) -> list[AuditRow]:
        return self._run(self._desk.audit(limit=limit))

    def add(self, amounts: Mapping[str, int]) -> None:
        return self._run(self._desk.add(amounts))

    def totals(self, prefix: str = "") -> dict[str, int]:
        return self._run(self._desk.totals(prefix))

    def begin(
        self, receipts: Sequence[Receipt], lease: timedelta, *, again: bool = False, now: datetime | None = None
    ) -> list[Receipt]:
        return self._run(self._desk.begin(receipts, lease, again=again, now=now))

    def end(
        self, receipts: Sequence[Receipt], *, done: bool, keep: timedelta | None = None, now: datetime | None = None
    ) -> list[bool]:
        return self._run(self._desk.end(receipts, done=done, keep=keep, now=now))

    def receipts(self, which: Which, *, limit: int = 100) -> list[Receipt]:
        return self._run(self._desk.receipts(which, limit=limit))

    def forget(self, which: Which, *, limit: int = 1000) -> int:
        return self._run(self._desk.forget(which, limit=limit))

    def expire(self, *, limit: int = 1000, now: datetime | None = None) -> int:
        return self._run(self._desk.expire(limit=limit, now=now))
