"""The retry processor: claims letters as they come due, tries them in parallel within a bound, and settles each.

Many processors may share one store: a lease belongs to one of them at a time. What a crash leaves behind comes free when its
leases end; what a stop finds unfinished is given back.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Self

from msgspec.structs import replace

from redrive.engine import metrics
from redrive.engine.intake import Intake
from redrive.engine.retry import Breakers, Retried, Retrier
from redrive.engine.send import Sender
from redrive.engine.settle import settle
from redrive.engine.shift import Shift, either
from redrive.engine.telemetry import SILENT, Telemetry
from redrive.model.errors import BadSettings
from redrive.model.lane import Lane
from redrive.model.pace import Pace
from redrive.model.settlement import Settled, Settlement
from redrive.ports.letters import LetterStore
from redrive.ports.transport import Transport

log = logging.getLogger("redrive.processor")

AFTER_ERROR = timedelta(seconds=10)
"""How long the processor rests after an error of the store, or of its own."""

Listener = Callable[[Sequence[Retried]], Awaitable[None]]


class RetryProcessor:
    """Made by `DeadLetters.processor`. `async with` starts and stops it."""

    def __init__(
        self,
        store: LetterStore,
        sender: Sender,
        targets: Mapping[Lane, Transport],
        *,
        owner: str,
        pace: Pace,
        breakers: Breakers,
        listener: Listener | None = None,
        telemetry: Telemetry = SILENT,
    ) -> None:
        """`listener` hears of what was settled, some letters at a time."""
        if not targets:
            raise BadSettings("a processor needs to know what to retry: give it a handler for each source")
        self._store = store
        self._owner = owner
        self._pace = pace
        self._intake = Intake(store, list(targets), owner=owner, pace=pace, breakers=breakers)
        self._retrier = Retrier(store, sender, targets, breakers=breakers, interval=pace.interval)
        self._listener = listener
        self._telemetry = telemetry
        self._task: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()

    @property
    def is_running(self) -> bool:
        return self._task is not None and not self._task.done()

    async def start(self) -> None:
        """Begin; the first look for due letters is at once. Starting it twice is fine."""
        if self.is_running and self._stopping.is_set():
            await self.stop()
        if not self.is_running:
            self._stopping = asyncio.Event()
            self._task = asyncio.create_task(self._run(self._stopping), name=f"redrive-processor:{self._owner}")

    async def stop(self) -> None:
        """Claim no more, let what is being tried finish within the grace, give the rest back. Stopping it twice is fine.

        Whoever is cancelled while they wait here has stopped it all the same. A plain function cannot be cut short: its
        letter is given back when it has ended.
        """
        task = self._task
        if task is not None and not task.done():
            if task.get_loop() is not asyncio.get_running_loop():
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self.stop(), task.get_loop()))
                return
            self._stopping.set()
            await asyncio.wait([task])
        if self._task is task:
            self._task = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.stop()

    async def _run(self, stopping: asyncio.Event) -> None:
        shift = Shift(
            self._store,
            self._intake,
            self._retrier,
            pace=self._pace,
            settled=self._settled,
            told=self._told,
            after_error=AFTER_ERROR,
        )
        try:
            await shift.work(stopping)
        finally:
            if shift.unsettled:
                log.warning("%d letters could not be settled; their leases end by themselves", shift.unsettled)

    async def _settled(self, retried: Sequence[Retried]) -> list[Retried]:
        """End claims; what was ended, with the store's answers."""
        answers = await settle(self._store, [Settlement.of(one.claimed.lease, one.outcome) for one in retried])
        done = [replace(one, answer=answer) for one, answer in zip(retried, answers, strict=True)]
        if not self._telemetry.is_silent:
            for (source, outcome), number in Counter((one.letter.source, _outcome(one)) for one in done).items():
                self._telemetry.add(metrics.LETTERS_RETRIED, number, source=source, outcome=outcome)
        return done

    async def _told(self, retried: Sequence[Retried]) -> None:
        """Tell whoever listens, and wait for them; after a stop no longer than the grace."""
        if self._listener is None:
            return
        try:
            await either(_heard(self._listener, retried), self._patience())
        except Exception:
            log.exception("what listens to the retry processor failed")

    async def _patience(self) -> None:
        await self._stopping.wait()
        await asyncio.sleep(self._pace.grace.total_seconds())
        log.warning("what listens to the retry processor does not end; it is not waited for")


async def _heard(listener: Listener, retried: Sequence[Retried]) -> None:
    await listener(retried)


def _outcome(retried: Retried) -> str:
    return str(type(retried.outcome).__struct_config__.tag) if retried.answer is Settled.DONE else str(retried.answer)
