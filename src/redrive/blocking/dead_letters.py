"""`DeadLetters` for blocking code."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from redrive.blocking.guard import Dispatcher, Guard, Housekeeper, RetryProcessor
from redrive.blocking.operations import Operations, Repairs, Triages
from redrive.blocking.stores import Desk, Letters
from redrive.engine.address import To
from redrive.engine.apart import LEASE, Apart, WhenUnknown
from redrive.engine.bulk import BulkAct, Plan, Progress, Swept
from redrive.engine.dead_letters import Captured
from redrive.engine.dead_letters import DeadLetters as AsyncDeadLetters
from redrive.engine.extract import Extractor, arguments
from redrive.engine.guard import After
from redrive.engine.housekeeper import INTERVAL
from redrive.engine.once import KEEP, Key
from redrive.engine.operate import Report
from redrive.engine.processor import Listener
from redrive.engine.retention import Retained
from redrive.engine.retry import Retried
from redrive.engine.statistics import Statistics
from redrive.engine.walk import MOST
from redrive.model.amendment import Amendment
from redrive.model.arrival import Held
from redrive.model.lease import Claimed
from redrive.model.letter import Failure, Letter, RetryPlan
from redrive.model.message import Message
from redrive.model.pace import Pace
from redrive.model.policy import Policy
from redrive.model.query import EVERYTHING, Group, GroupOrder, Order, Query
from redrive.model.replay import ReplayRule
from redrive.model.retention import RetentionRule
from redrive.model.settlement import Outcome
from redrive.model.tempo import Tempo
from redrive.ports.transport import Transport


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
