"""What is done with many letters: operations, repairs, what is said of groups; for blocking code."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from redrive.engine.address import To
from redrive.engine.alter import Mending
from redrive.engine.bridge import Bridge
from redrive.engine.choose import Progress as Choosing
from redrive.engine.choose import RedrivePlan
from redrive.engine.foresee import Repaired, Repairing, RepairPlan
from redrive.engine.operate import Report, Running
from redrive.engine.operations import Operations as AsyncOperations
from redrive.engine.repair import Repair
from redrive.engine.triage import Triages as AsyncTriages
from redrive.engine.walk import MOST
from redrive.model.operation import Entry, LedgerRow, Operation
from redrive.model.query import Group, Query
from redrive.model.tempo import Tempo
from redrive.model.triage import Standing, Triage


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

    def ensure_target(self, target: str) -> None:
        self._operations.ensure_target(target)

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
