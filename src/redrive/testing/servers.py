"""Programs that listen on 127.0.0.1 for as long as a test needs them: killed, restarted and paused at will, never left behind.

```python
from redrive.testing.servers import Program, Server, accepts

redis = Program(
    name="redis",
    command=lambda place: ["redis-server", "--bind", "127.0.0.1", "--port", str(place.port), "--dir", str(place.folder)],
    is_ready=accepts,
)
with Server(redis) as server:  # ready
    server.kill()              # kill -9
    server.start()             # the same data, the same port
```

Each server has a watcher (`redrive.testing.watcher`), which outlives the process that asked for it by as long as it takes to
clean up.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

from redrive.testing import watcher
from redrive.testing.watcher import until

HOST = "127.0.0.1"
_PORTS = range(15_000, 32_000)
_LOG_TAIL = 20


class ServerFailed(RuntimeError):
    """A server did not start, or did not become ready in time. Its log's last lines are in the message."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a server lives: a folder of its own, and ports that were free."""

    folder: Path
    ports: tuple[int, ...]

    @property
    def port(self) -> int:
        return self.ports[0]

    @property
    def log(self) -> Path:
        """What the program says, over all its starts."""
        return self.folder / "server.log"


@dataclass(frozen=True, kw_only=True)
class Program:
    """How a server is prepared, run, known to be ready and stopped."""

    name: str
    command: Callable[[Place], Sequence[str]]
    is_ready: Callable[[Place], bool]
    """Asked again and again until it says yes; an `OSError` is a no."""
    prepare: Callable[[Place], Sequence[Sequence[str]]] = lambda place: ()
    """Before the first start: writes what is needed into the folder, and answers with the commands to run there."""
    url: Callable[[Place], str] = lambda place: f"{HOST}:{place.port}"
    ports: int = 1
    stop_signal: signal.Signals = signal.SIGTERM
    patience: timedelta = timedelta(seconds=30)
    sweep: Sequence[str] = ()
    """A command that removes what a kill leaves outside the folder, where it is run before the folder goes."""
    owner: str | None = None
    """The user whom the folder belongs to, for programs that do not run as root."""


class Server:
    """One program at a time in a place of its own. `start` and `with` wait until it is ready; `close` leaves nothing behind."""

    def __init__(self, program: Program, *, ports: Sequence[int] = ()) -> None:
        self.program = program
        self.place = Place(folder=_folder(program), ports=tuple(ports) or tuple(free_port() for _ in range(program.ports)))
        self.name, self.host, self.port = program.name, HOST, self.place.port
        self.url = program.url(self.place)
        self.log = self.place.log
        self.pid: int | None = None
        """The program's process while it lives."""
        self.ready_in = timedelta()
        """How long the last start took."""
        self._exit_code: int | None = None
        self._is_prepared = False
        self._unread = b""
        self._lock = threading.Lock()
        command = [sys.executable, "-I", watcher.__file__, str(self.place.folder), str(os.getpid())]
        # A session of its own, so that Ctrl-C in a terminal does not reach it before those who clean up.
        self._watcher = subprocess.Popen(
            command, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        assert self._watcher.stdin is not None
        assert self._watcher.stdout is not None
        self._orders, self._news = self._watcher.stdin, self._watcher.stdout
        os.set_blocking(self._news.fileno(), False)
        self._tell("sweep", list(program.sweep))

    @property
    def is_alive(self) -> bool:
        """Does its process run? (A paused one does.)"""
        self._hear()
        return self.pid is not None

    def start(self) -> None:
        """Run it on its data and its port, and wait until it is ready. Raises `ServerFailed`, with the end of its log."""
        if self.is_alive:
            raise ServerFailed(f"{self.name} runs already")
        began = time.monotonic()
        if not self._is_prepared:
            for command in self.program.prepare(self.place):
                self._prepare(command)
            self._is_prepared = True
        self._run(self.program.command(self.place))
        self._wait_until_ready()
        self.ready_in = timedelta(seconds=time.monotonic() - began)

    def kill(self) -> None:
        """kill -9 it and all its processes; nothing is flushed. `start` goes on with what it had written."""
        self._signal("family", signal.SIGKILL)
        if not self._ends_within(timedelta(seconds=10)):
            raise ServerFailed(f"{self.name} outlived a kill")

    def stop(self, within: timedelta = timedelta(seconds=10)) -> None:
        """End it in the way it likes best; kill it if that takes too long. Its data stay."""
        self.resume()
        self._signal("signal", self.program.stop_signal)
        if not self._ends_within(within):
            self.kill()

    def pause(self) -> None:
        """Freeze it: connections stay open and nothing answers."""
        self._signal("family", signal.SIGSTOP)

    def resume(self) -> None:
        """Let a frozen one go on."""
        self._signal("family", signal.SIGCONT)

    def close(self) -> None:
        """End it at once, and remove its folder. May be repeated."""
        self._orders.close()
        self._watcher.wait()
        self._hear()
        self.pid = None
        self._news.close()

    def __enter__(self) -> Self:
        try:
            if not self.is_alive:
                self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _prepare(self, command: Sequence[str]) -> None:
        self._run(command)
        if not self._ends_within(self.program.patience) or self._exit_code:
            raise self._failure(f"could not be prepared ({' '.join(command[:3])} …)")

    def _run(self, command: Sequence[str]) -> None:
        self._exit_code = None
        self._tell("run", list(command))
        if not until(lambda: self.is_alive or self._exit_code is not None, timedelta(seconds=10)):
            raise ServerFailed(f"{self.name} was not started: its watcher does not answer")

    def _wait_until_ready(self) -> None:
        patience = self.program.patience
        if not until(lambda: not self.is_alive or self._answers(), patience):
            failure = self._failure(f"was not ready after {patience.total_seconds():g} s")
            self.kill()
            raise failure
        if not self.is_alive:
            raise self._failure(f"ended by itself (exit code {self._exit_code})")

    def _answers(self) -> bool:
        with contextlib.suppress(OSError):
            return self.program.is_ready(self.place)
        return False

    def _failure(self, what: str) -> ServerFailed:
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return ServerFailed("\n  ".join([f"{self.name} {what}; the end of its log:", *lines[-_LOG_TAIL:]]))

    def _ends_within(self, bound: timedelta) -> bool:
        return until(lambda: not self.is_alive, bound)

    def _signal(self, whom: str, number: signal.Signals) -> None:
        if self.is_alive:
            self._tell(whom, number)

    def _tell(self, verb: str, what: object) -> None:
        try:
            self._orders.write(json.dumps([verb, what]).encode() + b"\n")
        except (BrokenPipeError, ValueError) as error:
            raise ServerFailed(f"{self.name} was closed") from error

    def _hear(self) -> None:
        """Take in what the watcher said since."""
        with self._lock:
            while not self._news.closed and (heard := self._news.read(65536)):
                *lines, self._unread = (self._unread + heard).split(b"\n")
                for line in lines:
                    self.pid, self._exit_code = json.loads(line)


def free_port() -> int:
    """A port of 127.0.0.1 that nothing uses.

    Below those that the system hands to outgoing connections: such a one could be taken while a server is down, even by a client
    that tries to reach that very server.
    """
    while True:
        port = secrets.choice(_PORTS)  # not `random`, which Hypothesis seeds alike in all processes
        if is_free(port):
            return port


def is_free(port: int) -> bool:
    """Could a server listen there now?"""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def accepts(place: Place) -> bool:
    """Is there someone who takes connections? Enough for programs that listen only when all is well."""
    with socket.create_connection((HOST, place.port), timeout=2):
        return True


def answers(path: str) -> Callable[[Place], bool]:
    """A readiness check: HTTP at this path answers with success."""

    def is_ready(place: Place) -> bool:
        with contextlib.closing(http.client.HTTPConnection(HOST, place.port, timeout=2)) as connection:
            connection.request("GET", path)
            with contextlib.suppress(http.client.HTTPException):
                return connection.getresponse().status == 200
            return False

    return is_ready


def _folder(program: Program) -> Path:
    """An empty folder that its owner can reach: not below a folder that is closed to others."""
    base = Path(tempfile.gettempdir())
    if program.owner and not all(above.stat().st_mode & 0o001 for above in (base, *base.parents)):
        base = Path("/tmp")  # noqa: S108  # mkdtemp makes it safe
    folder = Path(tempfile.mkdtemp(prefix=f"redrive-{program.name}-", dir=base))
    if program.owner:
        shutil.chown(folder, program.owner)
    return folder
