"""The program without the wait for its imports: one process has made them, and forks for each call.

A call is a process of its own all the same, with its own folder, environment and standard streams, and it goes through
`python -m redrive` to the end of the interpreter. What is decided when an interpreter starts (`PYTHONIOENCODING`, say)
needs a cold one.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

PATIENCE_SECONDS = 60.0
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND
_IMPORTED = (
    *("redrive.blocking", "redrive.backends.sqlite", "redrive.engine.otel", "redrive.serve.cli"),
    *("opentelemetry.metrics", "opentelemetry.trace", "rich._emoji_codes", "rich.syntax", "rich.table"),
    *("asyncio", "importlib.readers", "importlib.resources.readers", "zipfile"),
)
"""What most commands need. The extras among them are there wherever tests run."""


class Warm:
    """The process that forks. It ends when whoever started it does."""

    def __init__(self, environment: dict[str, str]) -> None:
        asked, self._ask = os.pipe()
        self._answered, answer = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(asked), str(answer)],
            env=environment,
            pass_fds=(asked, answer),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(asked)
        os.close(answer)
        self._answers = os.fdopen(self._answered, "rb")

    def __call__(self, args: list[bytes], *, folder: Path, environment: dict[str, str], streams: list[Path]) -> int:
        """The exit status of one call; the streams are the files of its standard input, output and error."""
        call = {
            "args": [arg.decode("latin-1") for arg in args],
            "folder": str(folder),
            "environment": environment,
            "streams": [str(stream) for stream in streams],
        }
        os.write(self._ask, json.dumps(call).encode() + b"\n")
        if not select.select([self._answered], [], [], PATIENCE_SECONDS)[0]:
            os.killpg(self._process.pid, signal.SIGKILL)
            warm.cache_clear()
            raise TimeoutError(f"redrive {b' '.join(args)!r} never came back")
        return int(self._answers.readline())


@cache
def warm() -> Warm:
    """The one of this process."""
    return Warm({"PATH": os.environ["PATH"], "PYTHONWARNINGS": "error", "LC_ALL": "C.UTF-8"})


def _serve(asked: int, answer: int) -> None:
    _import_all()
    gc.freeze()  # or each child would copy all that its collector looks at
    with os.fdopen(asked, "rb") as calls:
        for line in calls:
            child = os.fork()
            if child == 0:
                os.close(answer)
                _become(json.loads(line))
                return
            _, status = os.waitpid(child, 0)
            os.write(answer, b"%d\n" % os.waitstatus_to_exitcode(status))


def _import_all() -> None:
    for name in _IMPORTED:
        importlib.import_module(name)
    commands: Any = importlib.import_module("redrive.serve.cli")
    for found in pkgutil.iter_modules(commands.__path__, "redrive.serve.cli."):
        importlib.import_module(found.name)


def _become(call: dict[str, Any]) -> None:
    """Be the program, as if it had just been started there."""
    for number, (path, flags) in enumerate(zip(call["streams"], (os.O_RDONLY, _APPEND, _APPEND), strict=True)):
        opened = os.open(path, flags)
        os.dup2(opened, number)
        os.close(opened)
    if os.isatty(1):  # what was made for a file cannot be turned to a terminal
        sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.chdir(call["folder"])
    os.environ.clear()
    os.environ.update(call["environment"])
    sys.path[0] = call["folder"]
    sys.argv = ["redrive", *(os.fsdecode(arg.encode("latin-1")) for arg in call["args"])]
    runpy.run_module("redrive", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _serve(int(sys.argv[1]), int(sys.argv[2]))
