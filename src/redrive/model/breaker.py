"""A circuit breaker: after some failures in a row nothing is tried for a while, then one trial decides. Time is passed in."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum

from redrive.model.errors import BadSettings

DENIED = "Circuit breaker is open, request denied"


class BreakerState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"
    """Its rest is over: one trial may pass."""


class Breaker:
    """For one source. Whoever is let pass says how it went: `succeeded`, `failed`, or `gave_up` when it was not tried at all.

    They name the pass that they got. One from before the breaker opened, or of a trial that is over, changes nothing: what a
    slow one has to tell is of another time.
    """

    def __init__(self, failures: int = 5, rest: timedelta = timedelta(seconds=60)) -> None:
        if failures < 1:
            raise BadSettings(f"a breaker opens after at least 1 failure, got {failures}")
        if rest <= timedelta():
            raise BadSettings(f"a breaker must rest for longer than nothing, got {rest}")
        self._limit = failures
        self._rest_seconds = rest.total_seconds()
        self._failures = 0
        self._opened_at: float | None = None
        self._pass = 1
        """What is given out now, or was to the last trial. Rises whenever the breaker opens, and with each trial."""
        self._is_on_trial = False

    def state(self, now: float) -> BreakerState:
        """Where it stands at this many seconds of a clock that never goes back."""
        if self._opened_at is None:
            return BreakerState.CLOSED
        return BreakerState.OPEN if self.rest_left(now) > timedelta() else BreakerState.HALF_OPEN

    def rest_left(self, now: float) -> timedelta:
        """How long until a trial may pass."""
        if self._opened_at is None:
            return timedelta()
        return timedelta(seconds=max(0.0, self._opened_at + self._rest_seconds - now))

    def can_pass(self, now: float) -> bool:
        """Would somebody be let pass? Changes nothing."""
        match self.state(now):
            case BreakerState.CLOSED:
                return True
            case BreakerState.OPEN:
                return False
            case BreakerState.HALF_OPEN:
                return not self._is_on_trial

    def passes(self, now: float) -> int:
        """The number of a pass, or 0: this one may not be tried. In a half-open breaker whoever passes is the trial."""
        if not self.can_pass(now):
            return 0
        if self._opened_at is not None:
            self._pass += 1
            self._is_on_trial = True
        return self._pass

    def succeeded(self, number: int) -> None:
        if number == self._pass:
            self._failures = 0
            self._opened_at = None
            self._is_on_trial = False

    def failed(self, number: int, now: float) -> None:
        if number != self._pass:
            return
        self._failures += 1
        if self._is_on_trial or self._failures >= self._limit:
            self._opened_at = now
            self._pass += 1
            self._is_on_trial = False

    def gave_up(self, number: int) -> None:
        """The one that was let pass was not tried, or nobody knows how it went: the next may be the trial."""
        if number == self._pass:
            self._is_on_trial = False
