"""Time as a test tells it: a loop that never really waits, and a wall clock that can be set, for all of redrive's modules."""

from __future__ import annotations

import asyncio
import selectors
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, tzinfo
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from redrive.testing import START

for backend in ("memory", "sqlite"):
    # They are loaded when they are used, which would be too late: their clocks could not be told any more.
    import_module(f"redrive.backends.{backend}")

_EPOCH = datetime.fromtimestamp(0, UTC)


class VirtualTime:
    """How late it is. It passes when everybody waits; the wall clock goes with it, and jumps when it is set."""

    def __init__(self, start: datetime = START) -> None:
        self.passed = 0.0
        """Seconds since the beginning: what a clock says that nobody can set."""
        self._wall = self._latest = start

    def now(self) -> datetime:
        return self._wall + timedelta(seconds=self.passed)

    def jump(self, by: timedelta) -> None:
        """Somebody sets the wall clock."""
        self._wall += by
        self._latest = max(self._latest, self._wall)

    def steady(self) -> datetime:
        """What a clock says that runs on from where it was when the wall clock is put back, as SQLite's does."""
        return self._latest + timedelta(seconds=self.passed)

    def micros(self) -> int:
        return (self.now() - _EPOCH) // timedelta(microseconds=1)


class _Impatient(selectors.DefaultSelector):
    """Instead of waiting, lets the time pass."""

    def __init__(self, time: VirtualTime) -> None:
        super().__init__()
        self._time = time

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        assert timeout is not None, "everybody waits for somebody, for ever"
        self._time.passed += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop on which time passes at once when there is nothing else to do. No thread may take part."""

    def __init__(self, time: VirtualTime) -> None:
        self._virtual = time
        super().__init__(_Impatient(time))

    def time(self) -> float:
        return self._virtual.passed


class _IsDatetime(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, datetime)


@contextmanager
def told(virtual: VirtualTime) -> Iterator[None]:
    """Meanwhile every module of redrive that is loaded hears this time, from both kinds of clocks."""

    class Told(datetime, metaclass=_IsDatetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Any:
            return virtual.now().astimezone(tz)

    clocks = SimpleNamespace(**vars(time))
    clocks.monotonic = lambda: virtual.passed
    clocks.monotonic_ns = lambda: int(virtual.passed * 1e9)
    clocks.time = lambda: virtual.micros() / 1e6
    clocks.time_ns = lambda: virtual.micros() * 1000
    instead = {id(datetime): Told, id(time): clocks, id(time.monotonic): clocks.monotonic}
    ours = [module for name, module in list(sys.modules.items()) if name.startswith("redrive.")]
    changed = [(module, name, value) for module in ours for name, value in list(vars(module).items()) if id(value) in instead]
    try:
        for module, name, value in changed:
            setattr(module, name, instead[id(value)])
        yield
    finally:
        for module, name, value in changed:
            setattr(module, name, value)
