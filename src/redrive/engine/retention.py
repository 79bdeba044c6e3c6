"""Retain: letters whose time has come by a rule that a person set are removed or put away, counted and announced."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from msgspec import Struct

from redrive.engine import metrics
from redrive.engine.bulk import Bulk, BulkAct, Plan, Swept, told
from redrive.engine.telemetry import SILENT, Telemetry
from redrive.model.errors import RedriveError
from redrive.model.query import Query
from redrive.model.retention import RetentionRule

log = logging.getLogger("redrive.retention")


class Retained(Struct, frozen=True, kw_only=True):
    """What one rule did in one run."""

    rule: RetentionRule
    swept: Swept = Swept()
    problem: str = ""
    """Why the rule could not be run; empty when it was."""


class Retention:
    """Runs rules over the letters of one namespace. Several may do so at once: what one has removed, no other finds."""

    def __init__(
        self,
        rules: Sequence[RetentionRule],
        bulk: Bulk,
        within: Callable[[Query], Query],
        *,
        owner: str,
        telemetry: Telemetry = SILENT,
    ) -> None:
        """`within` asks a question of the namespace alone."""
        self.rules = tuple(rules)
        self._bulk = bulk
        self._within = within
        self._owner = owner
        self._telemetry = telemetry

    async def run(self, *, now: datetime | None = None) -> list[Retained]:
        """Run every rule once, in their order; say what each did.

        A rule that this store cannot answer is told of, and the others run; what passes, such as an outage, is raised.
        """
        return [await self._run(rule, now or datetime.now(UTC)) for rule in self.rules]

    async def _run(self, rule: RetentionRule, now: datetime) -> Retained:
        try:
            plan = await self._bulk.plan(BulkAct(rule.act.value), self._within(rule.asked(now)))
            swept = await self._carried_out(rule, plan) if plan.matched > plan.held else Swept()
        except RedriveError as error:
            if error.transient:
                raise
            log.error("retention rule %s could not be run: %s", rule.label, error)
            return Retained(rule=rule, problem=str(error))
        return Retained(rule=rule, swept=swept)

    async def _carried_out(self, rule: RetentionRule, plan: Plan) -> Swept:
        swept = Swept(matched=plan.matched)
        is_done = False

        def count(so_far: Swept) -> None:
            nonlocal swept
            self._telemetry.add(metrics.LETTERS_RETAINED, so_far.done - swept.done, rule=rule.label, act=rule.act.value)
            swept = so_far

        try:
            await self._bulk.carry_out(plan, by=f"{self._owner}, retention rule {rule.label}", progress=count)
            is_done = True
        finally:
            # What was removed is announced, also when the rest is cut short.
            became = told(plan.act, swept) + ("" if is_done else ", then it was cut short")
            log.info("retention rule %s: %s matched, %s", rule.label, f"{plan.matched:,}", became)
        return swept
