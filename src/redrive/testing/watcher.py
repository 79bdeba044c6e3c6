"""The parent of a server that a test runs: obeys the process that asked for it, and when that process ends in whatever way
(kill -9 too), ends the server and removes its folder.

Run as a program, without the package around it: it must start in an instant.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

_BLINK_SECONDS = 0.01


def until(condition: Callable[[], bool], within: timedelta) -> bool:
    """Wait until something is so; False: it was not, in all that time."""
    end = time.monotonic() + within.total_seconds()
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(_BLINK_SECONDS)
    return True


class Watcher:
    """The server's parent: obeys orders on its stdin; when no more can come, ends the server and removes the folder."""

    def __init__(self, folder: Path, master: int) -> None:
        self._folder = folder
        self._master = master
        self._child: subprocess.Popen[bytes] | None = None
        self._sweep: list[str] = []
        self._orders = b""

    def watch(self) -> None:
        ended, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        try:
            # A fork of the master may hold the pipe open after it, so that its end must be looked for, too.
            while os.getppid() == self._master:
                readable = select.select([0, ended], [], [], 1)[0]
                if ended in readable:
                    os.read(ended, 512)
                if self._child and self._child.poll() is not None:
                    code, self._child = self._child.returncode, None
                    self._say(None, code)
                if 0 in readable and not self._obey(os.read(0, 65536)):
                    break
        finally:
            self._clean_up()

    def _obey(self, heard: bytes) -> bool:
        *orders, self._orders = (self._orders + heard).split(b"\n")
        for order in orders:
            match json.loads(order):
                case ["run", command]:
                    self._run(command)
                case ["sweep", command]:
                    self._sweep = command
                case ["signal", number] if self._child:
                    self._child.send_signal(number)
                case ["family", number] if self._child:
                    _signal_family(self._child.pid, number)
        return bool(heard)

    def _run(self, command: list[str]) -> None:
        with (self._folder / "server.log").open("ab") as log:
            try:
                self._child = subprocess.Popen(
                    command, cwd=self._folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                )
            except OSError as error:
                log.write(f"{error}\n".encode())
                self._say(None, 127)
                return
        self._say(self._child.pid, None)

    def _say(self, pid: int | None, code: int | None) -> None:
        os.write(1, json.dumps([pid, code]).encode() + b"\n")

    def _clean_up(self) -> None:
        if self._child:
            _signal_family(self._child.pid, signal.SIGKILL)
            self._child.wait()
        if self._sweep:
            subprocess.run(self._sweep, cwd=self._folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(self._is_removed, timedelta(seconds=5))

    def _is_removed(self) -> bool:
        shutil.rmtree(self._folder, ignore_errors=True)
        return not self._folder.exists()


def _signal_family(pid: int, number: int) -> None:
    """Signal a process and all below it. PostgreSQL's are in sessions of their own, so that a process group would miss them."""
    family = [pid]
    for one in family:
        if number != signal.SIGCONT:
            _send(one, signal.SIGSTOP)  # whoever is stopped has no further children
        for children in Path(f"/proc/{one}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                family += map(int, children.read_text().split())
    for one in family:
        _send(one, number)


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


if __name__ == "__main__":
    Watcher(Path(sys.argv[1]), int(sys.argv[2])).watch()
