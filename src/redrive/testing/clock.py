"""A clock for tests of queues: it stands still until it is moved."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from redrive.model.instant import micros
from redrive.queues.clock import Clock


class ManualClock(Clock):
    """Stores go by it, and so does the lifecycle. How long a request waits is still real time."""

    def __init__(self, start: datetime | None = None) -> None:
        self._now = start or datetime.now(UTC)
        self._told: list[Callable[[], None]] = []

    def now(self) -> datetime:
        return self._now

    def now_us(self) -> int:
        return micros(self._now)

    def tell(self, moved: Callable[[], None]) -> None:
        self._told.append(moved)

    def advance(self, by: timedelta) -> None:
        """Let so much time pass, at once. Call it on the event loop that the queues are served on."""
        self._now += by
        for moved in self._told:
            moved()
