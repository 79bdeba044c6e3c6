"""The same names for blocking code: `redrive.blocking.open(url)`. Safe from threads.

One implementation serves both faces: each verb here runs the async one, by hand in the calling thread where the store
allows it (SQLite, memory), else through an event loop in a thread of its own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from inspect import iscoroutinefunction
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar, overload
from uuid import UUID

from redrive import wiring
from redrive.engine.address import To
from redrive.engine.alter import Mending
from redrive.engine.apart import LEASE, Apart, WhenUnknown
from redrive.engine.background import Background
from redrive.engine.bridge import Bridge
from redrive.engine.bulk import BulkAct, Plan, Progress, Swept
from redrive.engine.choose import Progress as Choosing
from redrive.engine.choose import RedrivePlan
from redrive.engine.course import Handled
from redrive.engine.dead_letters import Captured
from redrive.engine.dead_letters import DeadLetters as AsyncDeadLetters
from redrive.engine.extract import Extractor, arguments
from redrive.engine.foresee import Repaired, Repairing, RepairPlan
from redrive.engine.guard import After, Trial
from redrive.engine.guard import Guard as AsyncGuard
from redrive.engine.housekeeper import INTERVAL
from redrive.engine.once import KEEP, Key
from redrive.engine.operate import Report, Running
from redrive.engine.operations import Operations as AsyncOperations
from redrive.engine.processor import Listener
from redrive.engine.repair import Repair
from redrive.engine.retention import Retained
from redrive.engine.retry import Retried
from redrive.engine.statistics import Statistics
from redrive.engine.triage import Triages as AsyncTriages
from redrive.engine.walk import MOST
from redrive.model.amendment import Amended, Amendment
from redrive.model.arrival import Held
from redrive.model.census import Backlog, Miscount
from redrive.model.errors import NotHeld
from redrive.model.lane import Lane
from redrive.model.lease import Claim, Claimed, Lease
from redrive.model.letter import Failure, Letter, RetryPlan
from redrive.model.message import Message
from redrive.model.operation import AuditRow, Entry, LedgerRow, Operation
from redrive.model.pace import Pace
from redrive.model.policy import Policy, Verdict
from redrive.model.query import EVERYTHING, Field, Group, GroupOrder, GroupPage, Order, Page, Query
from redrive.model.receipt import Receipt, Which
from redrive.model.redaction import Redaction
from redrive.model.replay import ReplayRule
from redrive.model.retention import RetentionRule
from redrive.model.settlement import Outcome, Settled, Settlement
from redrive.model.tempo import Tempo
from redrive.model.triage import Standing, Triage
from redrive.ports.capabilities import Capabilities
from redrive.ports.desk import Desk as AsyncDesk
from redrive.ports.letters import LetterStore
from redrive.ports.transport import Transport

P = ParamSpec("P")
R = TypeVar("R")


def open(url: str | None = None, *, redact: Redaction | None = None) -> DeadLetters:
    """Open a store for blocking code; see `redrive.open`."""
    return DeadLetters(wiring.open(url, redact=redact))


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


class Operations:
    """`redrive.engine.operations.Operations` for blocking code."""

    def __init__(self, operations: AsyncOperations, bridge: Bridge) -> None:
        self._operations = operations
        self._bridge = bridge

    def plan(
        self,
        to: To | Mapping[str, To],
        *,
        ids: Sequence[UUID] | None = None,
        query: Query | None = None,
        tempo: Tempo | None = None,
        by: str | None = None,
        most: int | None = None,
        is_dry: bool = False,
        progress: Choosing | None = None,
    ) -> RedrivePlan:
        return self._bridge.run(
            self._operations.plan(to, ids=ids, query=query, tempo=tempo, by=by, most=most, is_dry=is_dry, progress=progress)
        )

    def run(
        self,
        id: UUID,
        *,
        to: To | Mapping[str, To] | None = None,
        by: str | None = None,
        progress: Running | None = None,
    ) -> Report:
        return self._bridge.run_on_loop(self._operations.run(id, to=to, by=by, progress=progress))

    def schedule(
        self, id: UUID, at: datetime | None = None, *, when_closed: str | None = None, by: str | None = None
    ) -> Operation:
        return self._bridge.run(self._operations.schedule(id, at, when_closed=when_closed, by=by))

    def named(self, to: To | Mapping[str, To]) -> str:
        return self._operations.named(to)

    def due(self, now: datetime) -> list[Operation]:
        return self._bridge.run(self._operations.due(now))

    def pause(self, id: UUID, *, why: str = "", by: str | None = None) -> Operation:
        return self._bridge.run(self._operations.pause(id, why=why, by=by))

    def cancel(self, id: UUID, *, why: str = "", by: str | None = None) -> Operation:
        return self._bridge.run(self._operations.cancel(id, why=why, by=by))

    def forget(self, id: UUID) -> None:
        return self._bridge.run(self._operations.forget(id))

    def get(self, id: UUID | str) -> Operation:
        return self._bridge.run(self._operations.get(id))

    def list(self, *, limit: int = 100) -> list[Operation]:
        return self._bridge.run(self._operations.list(limit=limit))

    def observe(self, id: UUID) -> Operation:
        return self._bridge.run(self._operations.observe(id))

    def ledger(self, id: UUID, *, entries: Sequence[Entry] | None = None, page: int = 1000) -> Iterator[LedgerRow]:
        rows = self._operations.ledger(id, entries=entries, page=page)
        while (row := self._bridge.run(_next(rows))) is not None:
            yield row


class Triages:
    """`redrive.engine.triage.Triages` for blocking code."""

    def __init__(self, triages: AsyncTriages, bridge: Bridge) -> None:
        self._triages = triages
        self._run = bridge.run

    def say(
        self,
        group: Group,
        said: Standing,
        *,
        assignee: str = "",
        until: datetime | None = None,
        release: str = "",
        note: str = "",
        by: str | None = None,
        now: datetime | None = None,
    ) -> Triage:
        return self._run(
            self._triages.say(group, said, assignee=assignee, until=until, release=release, note=note, by=by, now=now)
        )

    def note(self, group: Group, text: str, *, by: str | None = None, now: datetime | None = None) -> Triage:
        return self._run(self._triages.note(group, text, by=by, now=now))

    def of(self, groups: Sequence[Group], *, now: datetime | None = None) -> list[tuple[Standing, Triage | None]]:
        return self._run(self._triages.of(groups, now=now))


class Repairs:
    """`redrive.engine.repair.Repair` for blocking code."""

    def __init__(self, repair: Repair, bridge: Bridge) -> None:
        self._repair = repair
        self._run = bridge.run_on_loop

    def plan(
        self,
        mending: Mending,
        *,
        query: Query | None = None,
        ids: Sequence[UUID] | None = None,
        sample: int = 3,
        again: bool = False,
        progress: Repairing | None = None,
    ) -> RepairPlan:
        return self._run(self._repair.plan(mending, query=query, ids=ids, sample=sample, again=again, progress=progress))

    def carry_out(self, plan: RepairPlan, *, by: str, most: int = MOST, progress: Repairing | None = None) -> Repaired:
        return self._run(self._repair.carry_out(plan, by=by, most=most, progress=progress))

    def undo(self, *, by: str, query: Query | None = None, ids: Sequence[UUID] | None = None) -> Repaired:
        return self._run(self._repair.undo(by=by, query=query, ids=ids))


async def _next(rows: AsyncIterator[LedgerRow]) -> LedgerRow | None:
    return await anext(rows, None)


class Guard:
    """`redrive.engine.guard.Guard` whose batch form blocks."""

    def __init__(self, guard: AsyncGuard, bridge: Bridge) -> None:
        self._guard = guard
        self._bridge = bridge

    @overload
    def __call__(self, handler: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R | Verdict | None]]: ...
    @overload
    def __call__(self, handler: Callable[P, R]) -> Callable[P, R | Verdict | None]: ...
    def __call__(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        return self._guard(handler)

    def attempt(self, *args: Any, **kwargs: Any) -> Trial:
        return self._guard.attempt(*args, **kwargs)

    def each(
        self, messages: Iterable[Any], handler: Callable[..., Any], *, concurrency: int = 10
    ) -> list[Handled | Verdict | NotHeld]:
        run = self._bridge.run_on_loop if iscoroutinefunction(handler) else self._bridge.run
        return run(self._guard.each(messages, handler, concurrency=concurrency))


class _Background:
    """What works behind, for blocking code: on an event loop in a thread of its own."""

    def __init__(self, work: Background, bridge: Bridge) -> None:
        self._work = work
        self._run = bridge.run_on_loop

    @property
    def is_running(self) -> bool:
        return self._work.is_running

    def start(self) -> None:
        self._run(self._work.start())

    def stop(self) -> None:
        self._run(self._work.stop())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()


class RetryProcessor(_Background):
    """`redrive.engine.processor.RetryProcessor` for blocking code."""


class Housekeeper(_Background):
    """`redrive.engine.housekeeper.Housekeeper` for blocking code."""


class Dispatcher(_Background):
    """`redrive.engine.dispatcher.Dispatcher` for blocking code: it works on a loop of its own."""


class DeadLetters:
    """`redrive.engine.dead_letters.DeadLetters` for blocking code."""

    def __init__(self, dlq: AsyncDeadLetters) -> None:
        self._dlq = dlq
        self._run = dlq.bridge.run
        self.namespace = dlq.namespace
        self.limits = dlq.limits
        self.breakers = dlq.breakers
        self.letters = Letters(dlq.letters, dlq.bridge)
        self.desk = Desk(dlq.desk, dlq.bridge)
        self.operations = Operations(dlq.operations, dlq.bridge)
        self.repairs = Repairs(dlq.repairs, dlq.bridge)
        self.triage = Triages(dlq.triage, dlq.bridge)

    def guard(
        self,
        *,
        source: str,
        policy: Policy = Policy(),
        extract: Extractor = arguments,
        after: After | None = None,
        retry: RetryPlan = RetryPlan(),
        tags: Sequence[str] = (),
        metadata: Mapping[str, Any] | None = None,
    ) -> Guard:
        guard = self._dlq.guard(
            source=source, policy=policy, extract=extract, after=after, retry=retry, tags=tags, metadata=metadata
        )
        return Guard(guard, self._dlq.bridge)

    def once(
        self,
        *,
        name: str | None = None,
        key: Key | None = None,
        unknown: WhenUnknown = "raise",
        lease: timedelta = LEASE,
        keep: timedelta | None = KEEP,
    ) -> Apart:
        return self._dlq.once(name=name, key=key, unknown=unknown, lease=lease, keep=keep)

    def capture(
        self,
        message: Any,
        error: BaseException | Failure,
        *,
        source: str,
        id: str | None = None,
        headers: Mapping[str, str | bytes] | None = None,
        tags: Sequence[str] = (),
        metadata: Mapping[str, Any] | None = None,
        retry: RetryPlan = RetryPlan(),
    ) -> Captured:
        return self._run(
            self._dlq.capture(message, error, source=source, id=id, headers=headers, tags=tags, metadata=metadata, retry=retry)
        )

    def confirm(self, messages: Sequence[Message]) -> int:
        return self._run(self._dlq.confirm(messages))

    def hold(self, letters: Sequence[Letter]) -> list[Held]:
        return self._run(self._dlq.hold(letters))

    def get(self, id: UUID | str) -> Letter:
        return self._run(self._dlq.get(id))

    def within(self, query: Query = EVERYTHING) -> Query:
        return self._dlq.within(query)

    def count(self, query: Query = EVERYTHING) -> int:
        return self._run(self._dlq.count(query))

    def find(self, query: Query = EVERYTHING, *, order: Order = Order.NEWEST, page: int = 100) -> Iterator[Letter]:
        after: str | None = None
        while True:
            found = self.letters.find(self.within(query), order=order, limit=page, after=after)
            yield from found.letters
            if (after := found.next) is None:
                return

    def statistics(self, *, now: datetime | None = None) -> Statistics:
        return self._run(self._dlq.statistics(now=now))

    def groups(self, query: Query = EVERYTHING, *, order: GroupOrder = GroupOrder.LAST_SEEN, page: int = 100) -> Iterator[Group]:
        after: str | None = None
        while True:
            found = self.letters.groups(self.within(query), order=order, limit=page, after=after)
            yield from found.groups
            if (after := found.next) is None:
                return

    def group(self, fingerprint: str) -> Group:
        return self._run(self._dlq.group(fingerprint))

    def shown_group(self, group: Group) -> Group:
        return self._dlq.shown_group(group)

    def shown(self, letter: Letter) -> Letter:
        return self._dlq.shown(letter)

    def body(self, letter: Letter) -> bytes:
        return self._run(self._dlq.body(letter))

    def redrive(
        self,
        to: To | Mapping[str, To],
        *,
        ids: Sequence[UUID] | None = None,
        query: Query | None = None,
        source: str | None = None,
        tempo: Tempo | None = None,
        by: str | None = None,
    ) -> Report:
        return self._dlq.bridge.run_on_loop(self._dlq.redrive(to, ids=ids, query=query, source=source, tempo=tempo, by=by))

    def processor(
        self,
        handlers: Mapping[str, Transport | Callable[..., Any]],
        *,
        pace: Pace | None = None,
        listener: Listener | None = None,
        by: str | None = None,
    ) -> RetryProcessor:
        return RetryProcessor(self._dlq.processor(handlers, pace=pace, listener=listener, by=by), self._dlq.bridge)

    def retry(self, id: UUID | str, to: Transport | Callable[..., Any], *, by: str | None = None) -> Retried:
        return self._dlq.bridge.run_on_loop(self._dlq.retry(id, to, by=by))

    def amend(self, amendment: Amendment, *, as_given: bool = False) -> Letter:
        return self._run(self._dlq.amend(amendment, as_given=as_given))

    def settle(self, claimed: Claimed, outcome: Outcome) -> None:
        return self._run(self._dlq.settle(claimed, outcome))

    def plan(self, act: BulkAct, query: Query, *, older_than: timedelta | None = None, reason: str = "") -> Plan:
        return self._run(self._dlq.plan(act, query, older_than=older_than, reason=reason))

    def carry_out(self, plan: Plan, *, batch: int = MOST, by: str | None = None, progress: Progress | None = None) -> Swept:
        return self._dlq.bridge.run_on_loop(self._dlq.carry_out(plan, batch=batch, by=by, progress=progress))

    def purge(
        self,
        query: Query,
        *,
        older_than: timedelta | None = None,
        batch: int = MOST,
        by: str | None = None,
        progress: Progress | None = None,
    ) -> int:
        return self._dlq.bridge.run_on_loop(self._dlq.purge(query, older_than=older_than, batch=batch, by=by, progress=progress))

    def archive(
        self, query: Query, *, older_than: timedelta | None = None, by: str | None = None, progress: Progress | None = None
    ) -> int:
        return self._dlq.bridge.run_on_loop(self._dlq.archive(query, older_than=older_than, by=by, progress=progress))

    def restore(
        self, query: Query, *, older_than: timedelta | None = None, by: str | None = None, progress: Progress | None = None
    ) -> int:
        return self._dlq.bridge.run_on_loop(self._dlq.restore(query, older_than=older_than, by=by, progress=progress))

    def discard(
        self,
        query: Query,
        *,
        reason: str,
        older_than: timedelta | None = None,
        by: str | None = None,
        progress: Progress | None = None,
    ) -> int:
        return self._dlq.bridge.run_on_loop(
            self._dlq.discard(query, reason=reason, older_than=older_than, by=by, progress=progress)
        )

    def retain(
        self, rules: Sequence[RetentionRule | str] | None = None, *, now: datetime | None = None, by: str | None = None
    ) -> list[Retained]:
        return self._dlq.bridge.run_on_loop(self._dlq.retain(rules, now=now, by=by))

    def dispatcher(self, *, rules: Sequence[ReplayRule | Mapping[str, Any]] | None = None, by: str | None = None) -> Dispatcher:
        return Dispatcher(self._dlq.dispatcher(rules=rules, by=by), self._dlq.bridge)

    def housekeeper(
        self,
        *,
        retention: Sequence[RetentionRule | str] | None = None,
        interval: timedelta = INTERVAL,
        by: str | None = None,
    ) -> Housekeeper:
        return Housekeeper(self._dlq.housekeeper(retention=retention, interval=interval, by=by), self._dlq.bridge)

    @property
    def journaled(self) -> int:
        return self._dlq.journaled

    def drain(self) -> int:
        return self._run(self._dlq.drain())

    def close(self) -> None:
        self._run(self._dlq.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
