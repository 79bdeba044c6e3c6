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

from msgspec.structs import replace

from redrive.engine import metrics
from redrive.engine.background import Background
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


class RetryProcessor(Background):
    """Made by `DeadLetters.processor`. `async with` starts and stops it.

    The first look for due letters is at once. A stop claims no more, lets what is being tried finish within the grace, and gives
    the rest back. A plain function cannot be cut short: its letter is given back when it has ended.
    """

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
        super().__init__(f"redrive-processor:{owner}")
        self._store = store
        self._pace = pace
        self._intake = Intake(store, list(targets), owner=owner, pace=pace, breakers=breakers)
        self._retrier = Retrier(store, sender, targets, breakers=breakers, interval=pace.interval)
        self._listener = listener
        self._telemetry = telemetry

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
        answers = await settle(self._store, [Settlement.ending(one.claimed, one.outcome) for one in retried])
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
