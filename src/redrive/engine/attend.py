"""Attend to a process that performs a task: it is fed and listened to, and nothing of it stays."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector
from time import perf_counter
from typing import Self

from msgspec import DecodeError, Struct, msgpack

from redrive.engine.perform import LENGTH_BYTES, WHERE, Called, Final, Report, Task, framed

OUTPUT_BYTES = 65_536
"""How much is kept of what a handler prints: the end of it."""

_REPORT_BYTES = 8 << 20
_CHUNK = 65_536
_GLANCE_SECONDS = 0.05
_GRACE_SECONDS = 2.0
"""How long a process may take to end when its handler is done."""
_STRAGGLERS_SECONDS = 0.5
_BOOT = "import sys; sys.path.append(sys.argv.pop()); from redrive.engine.perform import perform; perform(int(sys.argv.pop()))"


class Output(Struct, frozen=True, kw_only=True):
    """The end of what was printed, and how many bytes before it were let go."""

    text: str = ""
    dropped: int = 0


class Tail:
    """The end of a stream."""

    def __init__(self, limit: int = OUTPUT_BYTES) -> None:
        self._limit = limit
        self._kept = bytearray()
        self._size = 0

    def add(self, chunk: bytes) -> None:
        self._size += len(chunk)
        self._kept += chunk
        if len(self._kept) > 2 * self._limit:
            del self._kept[: -self._limit]

    def output(self) -> Output:
        kept = self._kept[-self._limit :]
        return Output(text=kept.decode("utf-8", "replace"), dropped=self._size - len(kept))

    def reports(self) -> list[Report]:
        """The reports in it; one that is not whole is none."""
        found: list[Report] = []
        rest = bytes(self._kept)
        with contextlib.suppress(DecodeError):
            while len(rest) >= LENGTH_BYTES and len(rest) >= (end := LENGTH_BYTES + int.from_bytes(rest[:LENGTH_BYTES], "big")):
                found.append(msgpack.decode(rest[LENGTH_BYTES:end], type=Report))
                rest = rest[end:]
        return found


class Child:
    """The process, seen from here: fed, listened to, and ended in any case."""

    def __init__(self, task: Task) -> None:
        self.stdout, self.stderr, self._report = Tail(), Tail(), Tail(_REPORT_BYTES)
        self.where = Tail()
        """Where a process that is late said it was."""
        self.final: Final | None = None
        """What it said in the end; None: it did not come to that."""
        self.was_called = False
        self.is_late = False
        self._since = self._last_heard = perf_counter()
        self._given = memoryview(framed(task))
        self._told, telling = os.pipe()
        try:
            self.process = _started(telling, task.folder)
        except BaseException:
            os.close(self._told)
            raise
        finally:
            os.close(telling)
        self._selector = DefaultSelector()
        for stream, tail in ((self.process.stdin, None), (self.process.stdout, self.stdout), (self.process.stderr, self.stderr)):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
            self._selector.register(stream.fileno(), EVENT_READ if tail else EVENT_WRITE, tail)
        self._selector.register(self._told, EVENT_READ, self._report)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Whatever happened here, also Ctrl-C, the process does not outlive it."""
        if self.process.returncode is None:
            self._kill()
        self._selector.close()
        os.close(self._told)
        with self.process:
            pass

    def attended(self, limit: timedelta) -> None:
        """Listen until the process has told how it ended, is gone, or is late; then end it with all that it started."""
        self._listen(limit.total_seconds(), until_told=True)
        self.is_late = self.final is None and self.process.poll() is None
        if self.is_late:
            self._ask_where()
        else:
            self._listen(_GRACE_SECONDS)
        self._kill()
        self.process.wait()
        self._drain()

    @property
    def took(self) -> timedelta:
        """From the handler's call, or else from the start, until it was last heard of."""
        return timedelta(seconds=self._last_heard - self._since)

    def _ask_where(self) -> None:
        """Of a process that hangs, people want to know where; what it prints from now on is the answer."""
        assert self.process.stderr is not None
        self._step(0)
        self._last_heard = perf_counter()
        if self.process.stderr.fileno() in self._selector.get_map():
            self._selector.modify(self.process.stderr.fileno(), EVENT_READ, self.where)
            self.process.send_signal(WHERE)
            self._step(_STRAGGLERS_SECONDS)
            self._listen(_GLANCE_SECONDS)

    def _listen(self, seconds: float, *, until_told: bool = False) -> None:
        end = perf_counter() + seconds
        while self.process.poll() is None and (left := end - perf_counter()) > 0:
            self._step(min(left, _GLANCE_SECONDS))
            if until_told and self.final is not None:
                return

    def _drain(self) -> None:
        """Hear what is left in the pipes; one that left the group may hold them open for ever."""
        end = perf_counter() + _STRAGGLERS_SECONDS
        while self._selector.get_map() and (left := end - perf_counter()) > 0:
            self._step(left)

    def _step(self, seconds: float) -> None:
        for key, _ in self._selector.select(seconds):
            if key.data is None:
                self._feed(key.fd)
            elif chunk := os.read(key.fd, _CHUNK):
                key.data.add(chunk)
                if key.data is self._report:
                    self._hear()
            else:
                self._last_heard = perf_counter()
                self._selector.unregister(key.fd)

    def _hear(self) -> None:
        for report in self._report.reports():
            if not isinstance(report, Called):
                self.final = report
            elif not self.was_called:
                self.was_called, self._since = True, perf_counter()

    def _feed(self, descriptor: int) -> None:
        """Its input stays open when all is written: by its end, the process would know that we are gone."""
        try:
            self._given = self._given[os.write(descriptor, self._given[:_CHUNK]) :]
        except BrokenPipeError:
            self._given = memoryview(b"")
        if not self._given:
            self._selector.unregister(descriptor)

    def _kill(self) -> None:
        # On some systems a group of which only the dead are left may not be signalled.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)


def _started(telling: int, folder: str) -> subprocess.Popen[bytes]:
    # Unbuffered, so that nothing printed is lost with the process; and without the current folder on its path until redrive
    # itself is imported, since a file there may have any name.
    home = str(Path(__file__).parents[2])
    return subprocess.Popen(
        [sys.executable, "-u", "-P", "-X", "faulthandler", "-c", _BOOT, str(telling), home],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        pass_fds=(telling,),
        start_new_session=True,
    )
