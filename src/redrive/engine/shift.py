"""A shift of the retry processor: letters are claimed ahead, tried side by side, and settled together."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import UTC, datetime
from time import monotonic
from typing import Any
from uuid import UUID

from redrive.engine.depend import ids_of
from redrive.engine.heartbeat import Heartbeat
from redrive.engine.intake import Intake
from redrive.engine.retry import Retried, Retrier
from redrive.model.amendment import Amendment
from redrive.model.lane import lane_of
from redrive.model.lease import Claimed
from redrive.model.pace import Pace
from redrive.model.settlement import Completed, Released
from redrive.ports.letters import LetterStore

_MOST_AHEAD = 500
_HURRIED, _LEISURELY = 0.25, 1.0
"""Seconds between two claims: under the first it takes more at a time, over the second less, and leaves them to others."""


class Shift:
    """The processor's work from its start, or from its last error, to a stop or the next error."""

    def __init__(
        self,
        store: LetterStore,
        intake: Intake,
        retrier: Retrier,
        *,
        pace: Pace,
        stopping: asyncio.Event,
        settled: Callable[[Sequence[Retried]], Awaitable[None]],
        unsettled: Sequence[Retried] = (),
    ) -> None:
        """`settled` ends claims; `unsettled` are those of the shift before whose outcome the store has not heard of."""
        self._store = store
        self._intake = intake
        self._retrier = retrier
        self._pace = pace
        self._stopping = stopping
        self._settled = settled
        self._heartbeat = Heartbeat(store, [one.claimed.lease for one in unsettled], pace.lease)
        self._queue: deque[Claimed] = deque()
        self._busy = 0
        self._ahead = self._pace.concurrency
        self._wake = asyncio.Event()
        """Set when workers may have something to do, or are to end."""
        self._room = asyncio.Event()
        """Set when more may be claimed."""
        self._finished = list(unsettled)
        self._settle = asyncio.Event()
        self._closing = asyncio.Event()
        """No more is claimed or begun."""
        self._is_over = False
        """Nothing more will be finished."""
        self._waiting: dict[UUID, set[UUID]] = {}
        """By a letter, those that were put off because of it: when it works here, they need not wait for their time."""

    @property
    def unsettled(self) -> list[Retried]:
        """What was finished, but could not be settled."""
        return self._finished

    async def work(self) -> None:
        self._settle.set()
        async with self._heartbeat:
            workers = [asyncio.create_task(self._worker()) for _ in range(self._pace.concurrency)]
            settler, claimer = asyncio.create_task(self._settler()), asyncio.create_task(self._claimer())
            stop = asyncio.create_task(self._stopping.wait())
            try:
                await asyncio.wait([claimer, settler, stop, *workers], return_when=asyncio.FIRST_COMPLETED)
            finally:
                stop.cancel()
                await self._wind_up(claimer, workers, settler)
        for task in (claimer, settler, *workers):
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error

    async def _wind_up(self, claimer: asyncio.Task[None], workers: list[asyncio.Task[None]], settler: asyncio.Task[None]) -> None:
        """Give back what nobody has begun, let the rest finish within the grace, settle all."""
        self._closing.set()
        self._room.set()
        # Not cancelled: what it has just claimed must be known, to be given back.
        await asyncio.wait([claimer])
        self._done([Retried(claimed=one, outcome=Released()) for one in self._queue])
        self._queue.clear()
        self._wake.set()
        await asyncio.wait(workers, timeout=self._pace.grace.total_seconds())
        for worker in workers:
            worker.cancel()
        await asyncio.wait(workers)
        self._is_over = True
        self._settle.set()
        await asyncio.wait([settler])

    async def _claimer(self) -> None:
        last = monotonic()
        while not self._closing.is_set():
            wanted = self._ahead + self._pace.concurrency - self._busy - len(self._queue)
            if wanted <= self._ahead // 2:
                self._room.clear()
                await self._room.wait()
                continue
            found = await self._intake.claimed(wanted)
            if not found:
                await either(self._intake.quiet(), self._closing.wait())
                last = monotonic()
                continue
            self._heartbeat.hold(one.lease for one in found)
            self._queue += await self._hopeful(found)
            self._wake.set()
            last = self._paced(last)

    async def _hopeful(self, found: list[Claimed]) -> list[Claimed]:
        """Those that are to be tried; the others are put off."""
        try:
            hopeless = await self._retrier.hopeless(found)
        except BaseException:
            self._done([Retried(claimed=one, outcome=Released()) for one in found])
            raise
        for one in hopeless:
            for id in ids_of(one.letter):
                self._waiting.setdefault(id, set()).add(one.letter.id)
        self._done(hopeless)
        put_off = {one.letter.id for one in hopeless}
        return [one for one in found if one.letter.id not in put_off]

    def _paced(self, last: float) -> float:
        """Take more at a time while letters are worked off quickly, and leave them to other processors while they are not."""
        now = monotonic()
        if now - last < _HURRIED:
            self._ahead = min(max(2 * self._ahead, 1), max(_MOST_AHEAD, self._pace.concurrency))
        elif now - last > _LEISURELY:
            self._ahead //= 2
        return now

    async def _worker(self) -> None:
        while not self._closing.is_set():
            some = self._taken()
            if not some:
                self._wake.clear()
                await self._wake.wait()
                continue
            self._busy += len(some)
            try:
                self._done(await self._retrier.tried(some))
            except BaseException:
                self._done([Retried(claimed=one, outcome=Released()) for one in some])
                raise
            finally:
                self._busy -= len(some)
                self._room.set()

    def _taken(self) -> list[Claimed]:
        """The next letters of one lane that are still ours."""
        some: list[Claimed] = []
        while self._queue and len(some) < self._pace.batch:
            if some and lane_of(self._queue[0].letter) != lane_of(some[0].letter):
                break
            one = self._queue.popleft()
            if one.letter.id in self._heartbeat:
                some.append(one)
        return some

    def _done(self, retried: Sequence[Retried]) -> None:
        if retried:
            self._finished += retried
            self._settle.set()

    async def _settler(self) -> None:
        """Settle together what was finished while the last were settled."""
        while not self._is_over or self._finished:
            await self._settle.wait()
            self._settle.clear()
            if finished := list(self._finished):
                await self._settled(finished)
                del self._finished[: len(finished)]
                self._heartbeat.let_go(one.letter.id for one in finished)
                await self._hasten(finished)
                if self._finished or self._is_over:
                    self._settle.set()

    async def _hasten(self, finished: Sequence[Retried]) -> None:
        freed = {
            id
            for one in finished
            if isinstance(one.outcome, Completed) and one.letter.id in self._waiting
            for id in self._waiting.pop(one.letter.id)
        }
        if freed:
            now = datetime.now(UTC)
            # Those that somebody has in hand are left alone.
            await self._store.amend([Amendment(id=id, next_retry_at=now) for id in sorted(freed)])


async def either(one: Coroutine[Any, Any, Any], other: Coroutine[Any, Any, Any]) -> None:
    """Return when one of the two is done; raise what it raised. The other is cancelled."""
    tasks = [asyncio.create_task(one), asyncio.create_task(other)]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    for task in done:
        task.result()
