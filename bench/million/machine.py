"""What the machine itself does meanwhile, seen by processes of their own.

One writes a file of its own over and makes it durable every few milliseconds: a capture is durable when it is answered, so that it can be no quicker
than the disk. But the disk is shared with whatever goes on. So there is one more for each core, which touches no disk and only sleeps, before
everybody else in the queue for that core where the system allows it: when it wakes up late, the core itself stood still, and whatever ran
there can do nothing for it.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import count
from pathlib import Path
from time import perf_counter, sleep
from types import TracebackType
from typing import Self

from msgspec import Struct, field, json

SLOW_SECONDS = 0.01
"""What takes longer is told of."""
_EVERY_SECONDS = 0.01
_NAP_SECONDS = 0.002
_BYTES = 4096
_FILE_BYTES = 4_000_000
_PRIORITY = 50

Span = tuple[float, float]
"""From, until: `perf_counter` of any process of this machine."""


class Lateness(Struct):
    """When something took longer than it should, and the longest that it ever took."""

    longest: float = 0.0
    """In seconds."""
    slow: list[Span] = field(default_factory=list)

    @property
    def longest_ms(self) -> float:
        return 1000 * self.longest

    def within(self, began: float, ended: float) -> float:
        """For how many seconds of this time it was late."""
        return sum(max(0.0, min(ended, until) - max(began, since)) for since, until in self.slow)

    def heard(self, began: float, ended: float) -> None:
        self.longest = max(self.longest, ended - began)
        if ended - began > SLOW_SECONDS:
            self.slow.append((began, ended))


class Machine:
    """Watches as long as it is entered."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self.disk = Lateness()
        """Bare fsyncs."""
        self.halts = Lateness()
        """Cores that stood still, whichever."""

    async def __aenter__(self) -> Self:
        cores = sorted(os.sched_getaffinity(0))
        self._processes = [await _started("disk", str(self._place)), *[await _started("core", str(core)) for core in cores]]
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.disk, *cores = [await _told(process) for process in self._processes]
        self.halts = Lateness(max(core.longest for core in cores), merged(span for core in cores for span in core.slow))


def merged(spans: Iterable[Span]) -> list[Span]:
    """The same time, with nothing twice."""
    whole: list[Span] = []
    for since, until in sorted(spans):
        if whole and since <= whole[-1][1]:
            whole[-1] = whole[-1][0], max(until, whole[-1][1])
        else:
            whole.append((since, until))
    return whole


async def _started(*what: str) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", __spec__.name, *what, stdin=pipe, stdout=pipe)
    assert process.stdout is not None
    await process.stdout.readline()
    return process


async def _told(process: asyncio.subprocess.Process) -> Lateness:
    said, _ = await process.communicate(b"")
    return json.decode(said, type=Lateness)


def watch_disk(place: str, is_over: Callable[[], bool]) -> Lateness:
    """How long a bare fsync takes, one after another."""
    late = Lateness()
    with tempfile.TemporaryFile(dir=place) as file:
        number = file.fileno()
        os.pwrite(number, bytes(_FILE_BYTES), 0)
        os.fsync(number)
        print(flush=True)
        began = perf_counter()
        for turn in count():
            os.pwrite(number, os.urandom(_BYTES), turn % (_FILE_BYTES // _BYTES) * _BYTES)
            os.fdatasync(number)
            late.heard(began, perf_counter())
            if is_over():
                return late
            began = perf_counter() + _EVERY_SECONDS
            sleep(_EVERY_SECONDS)
    raise AssertionError


def watch_core(core: str, is_over: Callable[[], bool]) -> Lateness:
    """How late this core wakes somebody who is before all others."""
    os.sched_setaffinity(0, {int(core)})
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(_PRIORITY))
    late = Lateness()
    print(flush=True)
    while True:
        due = perf_counter() + _NAP_SECONDS
        sleep(_NAP_SECONDS)
        late.heard(due, perf_counter())
        if is_over():
            return late


def _watched(what: str, where: str) -> Lateness:
    """Until nobody wants to know any more."""
    os.set_blocking(sys.stdin.fileno(), False)
    return (watch_disk if what == "disk" else watch_core)(where, lambda: sys.stdin.buffer.read() is not None)


if __name__ == "__main__":
    sys.stdout.buffer.write(json.encode(_watched(*sys.argv[1:])))
