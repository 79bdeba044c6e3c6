"""The line to one notifier: its quiet times, its tries, and what it could not be told."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from redrive.engine import metrics
from redrive.engine.telemetry import Telemetry
from redrive.model.alert import Alert, Pile, alert_of
from redrive.model.backoff import exponential
from redrive.model.errors import NotNotified
from redrive.model.policy import Policy
from redrive.ports.notifier import Notifier

log = logging.getLogger("redrive.alert")

RETRIES = Policy(max_attempts=5, backoff=exponential(timedelta(seconds=1), cap=timedelta(minutes=1), factor=4.0, jitter=0.2))
KEYS_LIMIT = 1000
"""Groups that are known at once. While all of them are in their quiet time, alerts of others are dropped."""
_PATIENCE_SECONDS = 60.0
"""For one alert: a notifier ends in a bounded time, and this is for one that does not."""


class _Past(Struct):
    """What is known of a key."""

    tried: datetime | None = None
    told: datetime | None = None


class Line:
    """Tells one notifier, whatever becomes of the others. Used on one event loop at a time."""

    def __init__(
        self,
        notifier: Notifier,
        *,
        quiet: timedelta,
        clock: Callable[[], datetime],
        retries: Policy,
        telemetry: Telemetry,
    ) -> None:
        self._notifier = notifier
        self._quiet = quiet
        self._clock = clock
        self._retries = retries
        self._telemetry = telemetry
        self._waiting: dict[str, Pile] = {}
        self._carried: dict[str, Pile] = {}
        """What was given up on. It is not tried again by itself, but is counted in the key's next alert."""
        self._past: dict[str, _Past] = {}
        self._is_finishing = False
        self._has_dropped = False
        self._woken: asyncio.Event | None = None

    @property
    def left(self) -> int:
        """Alerts that wait."""
        return len(self._waiting)

    def add(self, piles: Mapping[str, Pile]) -> None:
        """Tell of these too."""
        for key, pile in piles.items():
            if (known := self._waiting.get(key)) is not None:
                self._waiting[key] = known.joined(pile)
            elif self._has_room(key):
                self._past.setdefault(key, _Past())
                carried = self._carried.pop(key, None)
                self._waiting[key] = carried.joined(pile) if carried else pile
            else:
                self._drop()
        self._wake()

    def forget(self) -> None:
        """Leave what waits to the process that this one was forked from."""
        self._waiting, self._carried, self._woken = {}, {}, None

    def finish(self) -> None:
        """Send what waits, and end."""
        self._is_finishing = True
        self._wake()

    async def run(self) -> None:
        """Tell, until the end."""
        self._woken = asyncio.Event()
        while True:
            self._woken.clear()
            if due := self._due():
                await self._tell(due)
            elif self._is_finishing:
                break
            else:
                await self._rest(self._until_next())
        try:
            await self._notifier.close()
        except Exception as error:
            log.error("%s was not closed: %s", self._notifier.name, type(error).__name__)

    def _due(self) -> dict[str, Pile]:
        now = self._clock()
        return {key: pile for key, pile in self._waiting.items() if self._is_finishing or not self._is_quiet(key, now)}

    def _is_quiet(self, key: str, now: datetime) -> bool:
        tried = self._past[key].tried
        # A clock that was put back makes nobody wait.
        return tried is not None and timedelta() <= now - tried < self._quiet

    def _until_next(self) -> timedelta | None:
        """How long until a quiet time ends after which there is something to tell; None: there is nothing."""
        now = self._clock()
        tries = [tried for key in self._waiting if (tried := self._past[key].tried) is not None]
        return min(tries) + self._quiet - now if tries else None

    async def _tell(self, due: Mapping[str, Pile]) -> None:
        """Send one alert for each of these, with as many tries as it may take."""
        now = self._clock()
        alerts: dict[str, Alert] = {}
        for key in due:
            del self._waiting[key]
            past = self._past[key]
            alerts[key] = alert_of(due[key], at=now, since=past.told)
            past.tried = now
        try:
            lost = await self._sent(list(alerts.values()))
        except asyncio.CancelledError:
            # Whoever goes on may begin with them at once.
            for key, pile in due.items():
                self._waiting[key] = pile.joined(self._waiting[key]) if key in self._waiting else pile
                self._past[key] = _Past(told=self._past[key].told)
            raise
        for key, pile in due.items():
            if alerts[key] not in lost:
                self._past[key] = _Past(tried=now, told=now)
            elif key in self._waiting:
                self._waiting[key] = pile.joined(self._waiting[key])
            else:
                self._carried[key] = pile

    async def _sent(self, alerts: Sequence[Alert]) -> list[Alert]:
        """Send alerts; answer with those that were given up on."""
        left, tries, was_last = list(alerts), 0, False
        while True:
            tries += 1
            error = await self._tried(left)
            undelivered = [] if error is None else [one for one in left if not error.alerts or one.id in error.alerts]
            self._count(len(left) - len(undelivered), "sent")
            left = undelivered
            if error is None or not left:
                return []
            pause = self._pause(error, tries)
            if pause is None or was_last:
                log.error("alerts given up on: %d, tries: %d: %s", len(left), tries, error)
                self._count(len(left), "failed")
                return left
            was_last = self._is_finishing or not await self._slept(pause)

    async def _tried(self, alerts: Sequence[Alert]) -> NotNotified | None:
        """One try; what went wrong, if anything did."""
        name, patience = self._notifier.name, _PATIENCE_SECONDS * len(alerts)
        try:
            async with asyncio.timeout(patience):
                await self._notifier.notify(alerts)
        except NotNotified as error:
            return error
        except TimeoutError:
            return NotNotified(f"{name} did not come to an end within {patience:g} s")
        except Exception as error:
            # Not its text: it is foreign, and may hold what nobody should read in a log.
            return NotNotified(f"{name} raised {type(error).__name__}")
        return None

    def _pause(self, error: NotNotified, tries: int) -> timedelta | None:
        if not error.transient or tries >= self._retries.max_attempts:
            return None
        delay = self._retries.backoff.delay(tries - 1, roll=random.random())  # noqa: S311 - spreads tries, guards nothing
        return None if delay is None else max(delay, error.after or timedelta())

    async def _slept(self, pause: timedelta) -> bool:
        """Let time pass; False: the end came first."""
        loop = asyncio.get_running_loop()
        until = loop.time() + pause.total_seconds()
        while not self._is_finishing and (left := until - loop.time()) > 0:
            await self._rest(timedelta(seconds=left))
        return not self._is_finishing

    async def _rest(self, at_most: timedelta | None) -> None:
        assert self._woken is not None
        try:
            async with asyncio.timeout(None if at_most is None else max(0.0, at_most.total_seconds())):
                await self._woken.wait()
        except TimeoutError:
            return
        self._woken.clear()

    def _wake(self) -> None:
        if self._woken is not None:
            self._woken.set()

    def _has_room(self, key: str) -> bool:
        if key in self._past or len(self._past) < KEYS_LIMIT:
            return True
        now = self._clock()
        for known in [known for known in self._past if known not in self._waiting and not self._is_quiet(known, now)]:
            del self._past[known]
            self._carried.pop(known, None)
        return len(self._past) < KEYS_LIMIT

    def _drop(self) -> None:
        if not self._has_dropped:
            log.error("alerts to %s were dropped: there are more than %d groups", self._notifier.name, KEYS_LIMIT)
            self._has_dropped = True
        self._count(1, "dropped")

    def _count(self, alerts: int, outcome: str) -> None:
        if alerts:
            self._telemetry.add(metrics.ALERTS, alerts, outcome=outcome)
