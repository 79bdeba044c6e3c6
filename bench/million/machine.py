"""What the machine itself does meanwhile: a file of its own, written over and made durable every few milliseconds by a process of its own.

A capture is durable when it is answered, so that it can be no quicker than the disk. Where this process had to wait at the same instant, for the
disk or to be woken at all, nobody's locks or threads were to blame.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from time import perf_counter, sleep
from types import TracebackType
from typing import Self

from msgspec import json

EVERY_SECONDS = 0.01
SLOW_SECONDS = 0.01
"""What takes longer is told of."""
_BYTES = 4096
_FILE_BYTES = 4_000_000

Span = tuple[float, float]
"""From, until: `perf_counter` of any process of this machine."""


class Machine:
    """Watches as long as it is entered."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self.slow: list[Span] = []
        self.longest_ms = 0.0

    async def __aenter__(self) -> Self:
        program = [sys.executable, "-m", __spec__.name, str(self._place)]
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(*program, stdin=pipe, stdout=pipe)
        assert self._process.stdout is not None
        await self._process.stdout.readline()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        said, _ = await self._process.communicate(b"")
        longest, self.slow = json.decode(said, type=tuple[float, list[Span]])
        self.longest_ms = 1000 * longest

    def held_up(self, began: float, ended: float) -> float:
        """For how many seconds of this time it did not answer."""
        return sum(max(0.0, min(ended, until) - max(began, since)) for since, until in self.slow)


def watch(place: Path) -> tuple[float, Sequence[Span]]:
    """Until nobody wants to know any more: the longest, and when it was slow."""
    slow: list[Span] = []
    longest = 0.0
    os.set_blocking(sys.stdin.fileno(), False)
    with tempfile.TemporaryFile(dir=place) as file:
        number = file.fileno()
        os.pwrite(number, bytes(_FILE_BYTES), 0)
        os.fsync(number)
        print(flush=True)
        began = perf_counter()
        for turn in count():
            os.pwrite(number, os.urandom(_BYTES), turn % (_FILE_BYTES // _BYTES) * _BYTES)
            os.fdatasync(number)
            ended = perf_counter()
            longest = max(longest, ended - began)
            if ended - began > SLOW_SECONDS:
                slow.append((began, ended))
            if sys.stdin.buffer.read() is not None:
                break
            began = perf_counter() + EVERY_SECONDS
            sleep(EVERY_SECONDS)
    return longest, slow


if __name__ == "__main__":
    sys.stdout.buffer.write(json.encode(watch(Path(sys.argv[1]))))
