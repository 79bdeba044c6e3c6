"""A shift of the retry processor, from start to stop: letters are claimed ahead, tried side by side, and settled together.

Three things go on at once and wait for each other as little as they can: one task claims, workers try, one task settles.
When the store does not answer, the first and the last rest and try again; what is being tried goes on, its leases are
kept alive, and its outcome is kept until it can be settled.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import timedelta
from time import monotonic
from typing import Any

from redrive.engine.depend import Waiting
from redrive.engine.heartbeat import Heartbeat
from redrive.engine.intake import Intake
from redrive.engine.retry import Retried, Retrier, released
from redrive.model.amendment import Amendment
from redrive.model.errors import StoreUnavailable
from redrive.model.lane import lane_of
from redrive.model.lease import Claimed
from redrive.model.pace import Pace
from redrive.model.settlement import Completed, Failed, Postponed, Redriven
from redrive.model.status import Status
from redrive.ports.letters import LetterStore

log = logging.getLogger("redrive.processor")

_MOST_AHEAD = 500
_AHEAD_SECONDS = 0.5
"""Claimed ahead is what will be worked off in so long; the rest is left to other processors."""
_LONG_SECONDS = 0.001
"""Who has worked for so long without a break lets others go first."""


class Shift:
    """The processor's work between a start and a stop."""

    def __init__(
        self,
        store: LetterStore,
        intake: Intake,
        retrier: Retrier,
        *,
        pace: Pace,
        settled: Callable[[Sequence[Retried]], Awaitable[list[Retried]]],
        told: Callable[[Sequence[Retried]], Awaitable[None]],
        after_error: timedelta,
    ) -> None:
        """`settled` ends claims, `told` hears of those that were ended; `after_error` is how long to rest then."""
        self._store = store
        self._intake = intake
        self._retrier = retrier
        self._pace = pace
        self._settled = settled
        self._told = told
        self._rest_seconds = after_error.total_seconds()
        self._heartbeat = Heartbeat(store, (), pace.lease)
        self._batch = min(pace.batch, pace.concurrency)
        self._queue: deque[Claimed] = deque()
        self._workers: set[asyncio.Task[None]] = set()
        self._busy = 0
        self._seconds: float | None = None
        """How long a letter took of late; None: nobody knows yet."""
        self._room = asyncio.Event()
        """Set when more may be claimed."""
        self._stir = asyncio.Event()
        """Set when it is worth looking for letters at once."""
        self._finished: list[Retried] = []
        self._settle = asyncio.Event()
        self._closing = asyncio.Event()
        """No more is claimed or begun."""
        self._over = asyncio.Event()
        """Nothing more will be finished."""
        self._waiting = Waiting()

    @property
    def unsettled(self) -> int:
        """How many letters were finished, but could not be settled."""
        return len(self._finished)

    async def work(self, stopping: asyncio.Event) -> None:
        """Work until the event is set, then give back what is not finished."""
        async with self._heartbeat:
            claimer, settler = asyncio.create_task(self._claimer()), asyncio.create_task(self._settler())
            try:
                await stopping.wait()
            finally:
                await self._wind_up(claimer, settler)

    async def _wind_up(self, claimer: asyncio.Task[None], settler: asyncio.Task[None]) -> None:
        """Give back what nobody has begun, let the rest finish within the grace, settle all."""
        deadline = monotonic() + self._pace.grace.total_seconds()
        self._closing.set()
        self._room.set()
        self._stir.set()
        # Not cancelled: what it has just claimed must be known, to be given back.
        await asyncio.wait([claimer])
        self._done(released(self._queue))
        self._queue.clear()
        late = set(self._workers)
        if late:
            _, late = await asyncio.wait(late, timeout=max(0.0, deadline - monotonic()))
        for worker in late:
            worker.cancel()
        if late:
            _, late = await asyncio.wait(late, timeout=self._pace.grace.total_seconds())
        if late:
            # A second cancellation would make a handler's thread look as if it had ended.
            log.warning("waiting for %d handlers that do not end; their letters cannot be given back before", len(late))
            await asyncio.wait(late)
        self._over.set()
        self._settle.set()
        await asyncio.wait([settler])
        if settler.cancelled() and self._finished:
            # The event loop is being closed under us: one more try, or they would be held until their leases end.
            try:
                await self._settle_finished()
            except Exception:
                log.exception("retry processor could not settle at its end")

    async def _claimer(self) -> None:
        while not self._closing.is_set():
            try:
                await self._claim()
            except Exception:
                await self._rest("claim", self._closing)

    async def _claim(self) -> None:
        """Claim what there is room for; wait until there is room, or something to claim."""
        ahead = self._ahead()
        wanted = min(ahead + self._pace.concurrency - self._busy - len(self._queue), _MOST_AHEAD)
        if wanted <= ahead // 2:
            self._room.clear()
            await self._room.wait()
            return
        since = monotonic()
        found = await self._intake.claimed(wanted)
        if not found:
            await either(self._intake.quiet(), self._stir.wait())
            self._stir.clear()
            return
        self._heartbeat.hold([one.lease for one in found], since)
        self._retrier.set_clock(found[-1].lease.until - self._pace.lease)
        self._queue += await self._hopeful(found)
        self._employ()
        # They begin first: whether more is to be claimed depends on what their breakers say then.
        await asyncio.sleep(0)

    def _ahead(self) -> int:
        if self._seconds is None:
            return 0
        return min(int(self._pace.concurrency * _AHEAD_SECONDS / max(self._seconds, 1e-6)), _MOST_AHEAD)

    async def _hopeful(self, found: list[Claimed]) -> list[Claimed]:
        """Those that are to be tried; the others are put off."""
        # Before the store is asked: what they wait for may be settled meanwhile.
        self._waiting.add(one.letter for one in found)
        try:
            hopeless = await self._retrier.hopeless(found)
        except BaseException:
            self._done(released(found))
            raise
        self._done(hopeless)
        put_off = {one.letter.id for one in hopeless}
        hopeful = [one for one in found if one.letter.id not in put_off]
        self._waiting.discard(one.letter for one in hopeful)
        return hopeful

    def _employ(self) -> None:
        """See to it that enough are at work for what is in the queue. Whoever finds it empty goes home."""
        most = self._pace.concurrency // self._batch
        for _ in range(min(-(-len(self._queue) // self._batch), most - len(self._workers))):
            self._workers.add(asyncio.create_task(self._worker()))

    async def _worker(self) -> None:
        try:
            while not self._closing.is_set() and (some := self._taken()):
                started = monotonic()
                await self._try(some)
                took = monotonic() - started
                self._seconds = took if self._seconds is None else self._seconds + (took - self._seconds) / 8
                if took > _LONG_SECONDS:
                    await asyncio.sleep(0)
        finally:
            task = asyncio.current_task()
            assert task is not None
            self._workers.discard(task)
            # Also when it found nothing but letters whose leases had run out: then nobody else would say that there is room.
            self._room.set()

    async def _try(self, some: list[Claimed]) -> None:
        self._busy += len(some)
        try:
            self._done(await self._retrier.tried(some))
        except Exception as error:
            log.exception("letters of '%s' could not be tried; they are put off", some[0].letter.source)
            self._done(self._retrier.put_off(some, error))
        except BaseException:
            self._done(released(some))
            raise
        finally:
            self._busy -= len(some)
            self._room.set()

    def _taken(self) -> list[Claimed]:
        """The next letters of one lane that are still ours."""
        some: list[Claimed] = []
        while self._queue and len(some) < self._batch:
            if some and lane_of(self._queue[0].letter) != lane_of(some[0].letter):
                break
            one = self._queue.popleft()
            if self._heartbeat.holds(one.lease):
                some.append(one)
        return some

    def _done(self, retried: Sequence[Retried]) -> None:
        if retried:
            self._finished += retried
            self._settle.set()

    async def _settler(self) -> None:
        """Settle together what was finished while the last were settled; a last time when nothing more will be."""
        is_last = False
        while not is_last:
            await self._settle.wait()
            self._settle.clear()
            is_last = self._over.is_set()
            try:
                await self._settle_finished()
            except Exception:
                await self._rest("settle", self._over)
                self._settle.set()

    async def _settle_finished(self) -> None:
        finished = list(self._finished)
        try:
            if finished:
                await self._end(finished)
        except StoreUnavailable:
            raise
        except Exception:
            # One of them may be what the store cannot take: it must not hold up the others.
            for one in finished:
                await self._end_alone(one)
        await self._hasten()

    async def _end(self, retried: Sequence[Retried]) -> None:
        """Settle these, which are or stand for the first that were finished."""
        done = await self._settled(retried)
        del self._finished[: len(retried)]
        self._heartbeat.let_go(one.claimed.lease for one in retried)
        self._waiting.free(one.letter.id for one in retried if isinstance(one.outcome, Completed))
        await self._told(done)

    async def _end_alone(self, retried: Retried) -> None:
        try:
            await self._end([retried])
        except Exception as error:
            if not isinstance(retried.outcome, Failed | Redriven | Postponed):
                raise
            # These say what others said. That it worked is not given up so easily.
            log.exception("what became of letter %s could not be written; it is put off", retried.letter.id)
            await self._end(self._retrier.put_off([retried.claimed], error))

    async def _hasten(self) -> None:
        """Those whose last obstacle has just worked here need not wait for their time."""
        # What is still being put off is hastened when that is settled.
        ids = sorted(id for id in self._waiting.freed if id not in self._heartbeat)
        if not ids:
            return
        now = self._retrier.now()
        planned = [
            one.id
            for one in await self._store.get(ids)
            if one is not None and one.status is Status.PENDING and (at := one.retry.next_retry_at) is not None and at > now
        ]
        if planned:
            # Those that somebody took in hand meanwhile are left alone.
            await self._store.amend([Amendment(id=id, next_retry_at=now) for id in planned])
            self._stir.set()
        self._waiting.freed.difference_update(ids)

    async def _rest(self, verb: str, until: asyncio.Event) -> None:
        log.exception("retry processor could not %s; it goes on in %g s", verb, self._rest_seconds)
        await either(until.wait(), asyncio.sleep(self._rest_seconds))


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
