"""What is done to many letters of one namespace at once, and what is done behind: purge, archive, restore, discard, retain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from redrive.engine.bulk import Bulk, BulkAct, Plan, Progress, Swept
from redrive.engine.by_rule import ByRule
from redrive.engine.dispatcher import Dispatcher
from redrive.engine.housekeeper import INTERVAL, Housekeeper
from redrive.engine.looking import Looking
from redrive.engine.operations import Operations
from redrive.engine.owner import owner_name
from redrive.engine.retention import Retained, Retention
from redrive.engine.retry import Breakers
from redrive.engine.telemetry import Telemetry
from redrive.engine.walk import MOST
from redrive.model.breaker import BreakerState
from redrive.model.lane import Lane
from redrive.model.query import Query
from redrive.model.replay import ReplayRule, replay_rules
from redrive.model.retention import RetentionRule, retention_rules
from redrive.ports.desk import Desk


class Sweeping(Looking):
    """The verbs of `DeadLetters` for many letters."""

    telemetry: Telemetry
    desk: Desk
    operations: Operations
    breakers: Breakers
    _bulk: Bulk
    _rules: Sequence[RetentionRule]
    _replay: Sequence[ReplayRule]

    async def plan(self, act: BulkAct, query: Query, *, older_than: timedelta | None = None, reason: str = "") -> Plan:
        """What an act would do to the letters of this namespace that match: purge, archive, restore or discard. Changes nothing."""
        return await self._bulk.plan(act, self.within(query), older_than=older_than, reason=reason)

    async def carry_out(self, plan: Plan, *, batch: int = MOST, by: str | None = None, progress: Progress | None = None) -> Swept:
        """Do what was planned, some letters at a time, with a rest after each; what somebody holds is left alone.

        Cut short at any instant it loses nothing, and the same again goes on. It is written to the audit.
        """
        return await self._bulk.carry_out(plan, by=by or owner_name(), most=batch, progress=progress)

    async def purge(
        self,
        query: Query,
        *,
        older_than: timedelta | None = None,
        batch: int = MOST,
        by: str | None = None,
        progress: Progress | None = None,
    ) -> int:
        """Remove letters of this namespace that match and that nobody holds, with their body files; answer how many."""
        plan = await self.plan(BulkAct.PURGE, query, older_than=older_than)
        return (await self.carry_out(plan, batch=batch, by=by, progress=progress)).done

    async def archive(
        self, query: Query, *, older_than: timedelta | None = None, by: str | None = None, progress: Progress | None = None
    ) -> int:
        """Put away what may be put away of the letters that match; answer how many."""
        return (
            await self.carry_out(await self.plan(BulkAct.ARCHIVE, query, older_than=older_than), by=by, progress=progress)
        ).done

    async def restore(
        self, query: Query, *, older_than: timedelta | None = None, by: str | None = None, progress: Progress | None = None
    ) -> int:
        """Bring back letters that match and that were archived or discarded; answer how many."""
        return (
            await self.carry_out(await self.plan(BulkAct.RESTORE, query, older_than=older_than), by=by, progress=progress)
        ).done

    async def discard(
        self,
        query: Query,
        *,
        reason: str,
        older_than: timedelta | None = None,
        by: str | None = None,
        progress: Progress | None = None,
    ) -> int:
        """Give up letters that match, for a reason that is kept with each; answer how many."""
        plan = await self.plan(BulkAct.DISCARD, query, older_than=older_than, reason=reason)
        return (await self.carry_out(plan, by=by, progress=progress)).done

    async def retain(
        self, rules: Sequence[RetentionRule | str] | None = None, *, now: datetime | None = None, by: str | None = None
    ) -> list[Retained]:
        """Run retention rules once, such as `purge: status:completed age>30d`; without any, those of the settings."""
        return await self._retention(rules, by).run(now=now)

    def housekeeper(
        self,
        *,
        retention: Sequence[RetentionRule | str] | None = None,
        interval: timedelta = INTERVAL,
        by: str | None = None,
    ) -> Housekeeper:
        """What does behind what the store puts off, and runs retention rules every interval: `async with dlq.housekeeper():`.

        Without `retention` the rules are those of the settings; where there are none, no letter ever expires.
        """
        return Housekeeper(
            self.letters, self._retention(retention, by), desk=self.desk, interval=interval, telemetry=self.telemetry
        )

    def dispatcher(self, *, rules: Sequence[ReplayRule | Mapping[str, Any]] | None = None, by: str | None = None) -> Dispatcher:
        """What begins scheduled operations when their time has come, and follows replay rules: `async with dlq.dispatcher():`.

        Without `rules` they are those of the settings; where there are none, no letter goes back by itself.
        """
        chosen = self._replay if rules is None else replay_rules(list(rules))
        followed = [ByRule(rule, self.operations, self.desk, self.namespace) for rule in chosen]
        return Dispatcher(self.operations, namespace=self.namespace, rules=followed, state=self._state, by=by or owner_name())

    def _state(self, lane: Lane) -> BreakerState | None:
        """How a breaker stands by now: whoever opened the store may have set others after the dispatcher was made."""
        return self.breakers.state(lane)

    def _retention(self, rules: Sequence[RetentionRule | str] | None, by: str | None) -> Retention:
        chosen = self._rules if rules is None else retention_rules(list(rules))
        return Retention(chosen, self._bulk, self.within, owner=by or owner_name(), telemetry=self.telemetry)
