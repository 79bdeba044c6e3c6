"""The housekeeper: does behind what the store has put off, in small steps, and runs the retention rules from time to time; receipts
whose time is over are forgotten.

Several may keep one store: a step that another has done finds nothing to do. Nothing that is confirmed waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta

from redrive.engine import metrics
from redrive.engine.background import Background
from redrive.engine.retention import Retention
from redrive.engine.telemetry import SILENT, Telemetry
from redrive.engine.walk import Stride
from redrive.model.census import Backlog
from redrive.model.errors import BadSettings, RedriveError
from redrive.ports.desk import Desk
from redrive.ports.letters import LetterStore

log = logging.getLogger("redrive.housekeeper")

INTERVAL = timedelta(minutes=10)
"""How often retention rules are run."""
IDLE = timedelta(seconds=1)
"""How long it rests when nothing is put off."""
LONGEST_REST = timedelta(seconds=60)
"""After an error it rests a second, then two, four … but never longer."""
_IDLE_STEPS = 3
_RECEIPTS = 1000


async def tidied(store: LetterStore, progress: Callable[[Backlog, Backlog], None] | None = None) -> tuple[Backlog, Backlog]:
    """Do all that a store has put off; what that was, and what is left. `progress` hears of both after each step.

    Ends when nothing is left, or when steps change nothing any more.
    """
    stride, idle = Stride(), 0
    first = left = await store.tidy(0)
    while left:
        before, started = left, time.perf_counter()
        left = await store.tidy(stride.size)
        took = time.perf_counter() - started
        first = Backlog(**{what: max(getattr(first, what), getattr(left, what)) for what in Backlog.__struct_fields__})
        if progress is not None:
            progress(first, left)
        # As much may come as was done; several times over it does not.
        idle = idle + 1 if left == before else 0
        if idle == _IDLE_STEPS:
            break
        await stride.rest(took, stride.size)
    return first, left


class Housekeeper(Background):
    """Made by `DeadLetters.housekeeper`. `async with` starts and stops it.

    The retention rules are run at once, then after every interval. It ends after the call to the store that is under way; what is
    left is done by the next one.
    """

    def __init__(
        self,
        store: LetterStore,
        retention: Retention,
        *,
        desk: Desk | None = None,
        interval: timedelta = INTERVAL,
        telemetry: Telemetry = SILENT,
    ) -> None:
        given: object = interval
        if not isinstance(given, timedelta) or given <= timedelta():
            raise BadSettings(f"a housekeeper's interval must be a timedelta longer than nothing, got {given!r}")
        super().__init__("redrive-housekeeper")
        self._store = store
        self._retention = retention
        self._desk = desk
        self._interval = interval
        self._telemetry = telemetry

    async def _run(self, stopping: asyncio.Event) -> None:
        tidying = asyncio.create_task(_endlessly("tidy the store", _Tidying(self._store, self._telemetry).step, stopping))
        retaining = asyncio.create_task(_endlessly("run the retention rules", self._retain, stopping))
        forgetting = asyncio.create_task(_endlessly("forget old receipts", self._forget, stopping))
        try:
            await stopping.wait()
        finally:
            # Rules may run for long; a batch that is under way is ended first.
            retaining.cancel()
            stopping.set()
            await asyncio.wait([tidying, retaining, forgetting])

    async def _retain(self) -> timedelta:
        if self._retention.rules:
            await self._retention.run()
        return self._interval

    async def _forget(self) -> timedelta:
        """Let receipts go whose time is over, and say of work that was cut short that its outcome is unknown."""
        is_more = self._desk is not None and await self._desk.expire(limit=_RECEIPTS) == _RECEIPTS
        return IDLE if is_more else self._interval


class _Tidying:
    """Step by step through what is put off."""

    def __init__(self, store: LetterStore, telemetry: Telemetry) -> None:
        self._store = store
        self._telemetry = telemetry
        self._stride = Stride()
        self._left = Backlog()

    async def step(self) -> timedelta:
        """Do some, and say how long to rest: as long as it took, or longer when that changed nothing."""
        before, started = self._left, time.perf_counter()
        self._left = await self._store.tidy(self._stride.size)
        took = time.perf_counter() - started
        for what in Backlog.__struct_fields__:
            self._telemetry.set(metrics.BACKLOG, getattr(self._left, what), what=what)
        if not self._left or self._left == before:
            return IDLE
        self._stride.learn(took, self._stride.size)
        return timedelta(seconds=min(took, IDLE.total_seconds()))


async def _endlessly(what: str, step: Callable[[], Awaitable[timedelta]], stopping: asyncio.Event) -> None:
    """Take one step after another, resting as long as each says. What goes wrong is told once, until it is well again."""
    failures = 0
    while not stopping.is_set():
        try:
            rest = await step()
        except Exception as error:
            if not failures:
                known = isinstance(error, RedriveError)
                log.error("the housekeeper could not %s; it goes on trying: %s", what, error, exc_info=not known)
            rest = min(IDLE * 2 ** min(failures, 10), LONGEST_REST)
            failures += 1
        else:
            if failures:
                log.info("the housekeeper can %s again", what)
            failures = 0
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), rest.total_seconds())
