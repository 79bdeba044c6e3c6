"""The dispatcher: begins operations when their time has come, and follows replay rules."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from redrive.engine.background import Background
from redrive.engine.by_rule import ByRule
from redrive.engine.operations import Operations
from redrive.model.breaker import BreakerState
from redrive.model.counted import counted
from redrive.model.errors import RedriveError
from redrive.model.lane import Lane
from redrive.model.operation import Operation

log = logging.getLogger("redrive.dispatcher")

INTERVAL = timedelta(seconds=5)
"""How often it looks whether something is due."""

State = Callable[[Lane], BreakerState | None]
"""How the breaker of a lane stands; None: this process has never used it."""


def _unused(lane: Lane) -> BreakerState | None:
    return None


class Dispatcher(Background):
    """Made by `DeadLetters.dispatcher`. `async with` starts and stops it.

    One scheduled operation runs after another, and each rule by itself beside them. What is under way when it stops is paused,
    and gone on with by whoever resumes it; what a rule began, by whoever follows that rule next. Several may look after one desk:
    letters are claimed, so that two who begin the same operation do no harm.
    """

    def __init__(
        self,
        operations: Operations,
        *,
        namespace: str = "default",
        rules: Sequence[ByRule] = (),
        state: State = _unused,
        interval: timedelta = INTERVAL,
        by: str = "",
    ) -> None:
        super().__init__("redrive-dispatcher")
        self._operations = operations
        self._namespace = namespace
        self._rules = rules
        self._state = state
        self._interval = interval
        self._by = by
        self._told: set[UUID] = set()

    async def _run(self, stopping: asyncio.Event) -> None:
        works = [self._endlessly("look for operations", self._scheduled, stopping)]
        works += [self._endlessly(f"follow replay rule {one.rule.name}", self._following(one), stopping) for one in self._rules]
        await asyncio.wait([asyncio.create_task(work) for work in works])

    async def _endlessly(self, what: str, step: Callable[[asyncio.Event], Awaitable[timedelta]], stopping: asyncio.Event) -> None:
        """Take one step after another, resting as long as each says."""
        while not stopping.is_set():
            rest = self._interval
            try:
                rest = await step(stopping)
            except RedriveError as error:
                log.error("the dispatcher could not %s; it goes on trying: %s", what, error)
            except Exception:
                log.exception("the dispatcher could not %s; it goes on trying", what)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), rest.total_seconds())

    async def _scheduled(self, stopping: asyncio.Event) -> timedelta:
        for operation in await self._operations.due(datetime.now(UTC)):
            if operation.when_closed is None or self._may_begin(operation, operation.when_closed):
                await self._begin(operation, stopping)
        return self._interval

    def _may_begin(self, operation: Operation, lane: Lane) -> bool:
        """Is the breaker that it waits for closed? Those of another namespace are another dispatcher's."""
        if lane.namespace != self._namespace:
            return False
        state, short = self._state(lane), str(operation.id)[:8]
        if state not in (None, BreakerState.CLOSED):
            if operation.id not in self._told:
                self._told.add(operation.id)
                log.info("operation %s waits until the breaker of %s is closed", short, lane.source)
            return False
        if state is None:
            log.info(
                "nothing of %s was tried in this process: its breaker is taken as closed for operation %s", lane.source, short
            )
        return True

    def _following(self, one: ByRule) -> Callable[[asyncio.Event], Awaitable[timedelta]]:
        async def step(stopping: asyncio.Event) -> timedelta:
            if one.lane is not None and self._state(one.lane) not in (None, BreakerState.CLOSED):
                return min(self._interval, one.rule.every)
            operation, rest = await one.next()
            if operation is None:
                return min(rest, one.rule.every)
            await self._begin(operation, stopping, one)
            return rest

        return step

    async def _begin(self, operation: Operation, stopping: asyncio.Event, rule: ByRule | None = None) -> None:
        """Run one to its end, or until this is to stop."""
        if stopping.is_set():
            return
        short = str(operation.id)[:8]
        log.info("operation %s begins: %s to %s", short, counted(operation.total, "letter"), operation.target)
        to = None if rule is None else rule.to(operation)
        running = asyncio.ensure_future(self._operations.run(operation.id, to=to, by=self._by or None))
        stopped = asyncio.ensure_future(stopping.wait())
        await asyncio.wait([running, stopped], return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not running.done():
            running.cancel()
            await asyncio.wait([running])
            if rule is not None:
                await rule.stopped(operation.id)
            return
        if (error := running.exception()) is not None:
            log.error("operation %s could not be run: %s", short, error, exc_info=not isinstance(error, RedriveError))
            with contextlib.suppress(RedriveError):
                await self._operations.cancel(operation.id, why=f"it could not be begun: {error}")
            return
        report = running.result()
        told = ", ".join(f"{count:,} {entry}" for entry, count in report.entries.items()) or "nothing was sent"
        log.info("operation %s: %s%s", short, told, f"; stopped: {report.stopped}" if report.stopped else "")
