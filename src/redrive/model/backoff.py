"""How long to wait before the next try. Pure: the roll of the dice is passed in."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from msgspec import Struct

from redrive.model.errors import BadSettings
from redrive.model.hint import hint

_NOTHING = timedelta(0)


class Backoff(Struct, frozen=True, kw_only=True, tag=True):
    """When to try again: `delay(n)` after the n-th retry, counted from 0."""

    jitter: float = 0.0
    """0.2 spreads each delay over ±20 %."""

    def base(self, retry_count: int) -> timedelta | None:
        """The delay before jitter; None: do not try again."""
        raise TypeError(f"{type(self).__name__} does not say how long to wait: override base()")

    def delay(self, retry_count: int, *, roll: float = 0.5) -> timedelta | None:
        """The delay before the retry after `retry_count` retries; `roll` in [0, 1) decides the jitter."""
        base = self.base(retry_count)
        if base is None:
            return None
        if not isinstance(base, timedelta):
            raise BadSettings(f"a backoff must answer with a timedelta or None, not {base!r}")
        if not self.jitter:
            return max(_NOTHING, base)
        try:
            return max(_NOTHING, base * (1 + self.jitter * (2 * roll - 1)))
        except OverflowError:
            return timedelta.max


class Never(Backoff, frozen=True, kw_only=True, tag="never"):
    """No automatic retry: a person decides."""

    def base(self, retry_count: int) -> timedelta | None:
        return None


class Immediate(Backoff, frozen=True, kw_only=True, tag="immediate"):
    """Again at once (for letters: in the next cycle)."""

    def base(self, retry_count: int) -> timedelta:
        return _NOTHING


class Linear(Backoff, frozen=True, kw_only=True, tag="linear"):
    """5, 10, 15 … minutes by default: one step more each time."""

    step: timedelta = timedelta(minutes=5)
    cap: timedelta | None = None

    def base(self, retry_count: int) -> timedelta:
        try:
            wait = self.step * (retry_count + 1)
        except OverflowError:
            wait = timedelta.max
        return wait if self.cap is None else min(wait, self.cap)


class Exponential(Backoff, frozen=True, kw_only=True, tag="exponential"):
    """1, 2, 4 … minutes up to an hour by default: doubling to a cap."""

    first: timedelta = timedelta(minutes=1)
    cap: timedelta = timedelta(minutes=60)
    factor: float = 2.0

    def base(self, retry_count: int) -> timedelta:
        if not self.first:
            return _NOTHING
        try:
            return min(self.first * self.factor**retry_count, self.cap)
        except OverflowError:
            return self.cap


class Custom(Backoff, frozen=True, kw_only=True, tag="custom"):
    """Whatever your function says: it gets the retry count and answers with a timedelta, or None to stop."""

    function: Callable[[int], timedelta | None]

    def base(self, retry_count: int) -> timedelta | None:
        return self.function(retry_count)


def never() -> Never:
    return Never()


def immediate() -> Immediate:
    return Immediate()


def linear(step: timedelta = timedelta(minutes=5), *, cap: timedelta | None = None, jitter: float = 0.0) -> Linear:
    return Linear(step=step, cap=cap, jitter=jitter)


def exponential(
    first: timedelta = timedelta(minutes=1), *, cap: timedelta = timedelta(minutes=60), factor: float = 2.0, jitter: float = 0.0
) -> Exponential:
    return Exponential(first=first, cap=cap, factor=factor, jitter=jitter)


def custom(function: Callable[[int], timedelta | None], *, jitter: float = 0.0) -> Custom:
    return Custom(function=function, jitter=jitter)


_STANDARD: dict[str, Backoff] = {"never": Never(), "immediate": Immediate(), "linear": Linear(), "exponential": Exponential()}
_BY_NAME = dict(_STANDARD)


def register(name: str, backoff: Backoff | Callable[[int], timedelta | None]) -> None:
    """Give a backoff of your own a name, by which letters can ask for it. Every process that retries them must know it."""
    if not name or name in _STANDARD:
        raise BadSettings(f"'{name}' cannot be the name of another retry policy; choose one that is not {', '.join(_STANDARD)}")
    _BY_NAME[name] = backoff if isinstance(backoff, Backoff) else Custom(function=backoff)


def is_named(policy: str) -> bool:
    """Does this process know a backoff of that name?"""
    return policy in _BY_NAME


def named(policy: str) -> Backoff:
    """The backoff that a letter's retry policy names, as the workflow DLQ has them."""
    try:
        return _BY_NAME[policy]
    except KeyError:
        raise BadSettings(f"'{policy}' is no retry policy; {hint(policy, _BY_NAME)}") from None
