"""The real program in a folder of its own, as people and scripts use it."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from msgspec.json import encode

from redrive import Message, blocking
from redrive.model.query import Order
from redrive.serve.shape import letter_shape
from tests.unit.warm import warm

PROGRAM = [sys.executable, "-m", "redrive"]
BAD = ValueError("bad")
PATIENCE = 60


class Shell:
    """A folder, an environment without any settings of ours, and the program."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "XDG_STATE_HOME": str(folder / "state"),
            "PYTHONWARNINGS": "error",
            "LC_ALL": "C.UTF-8",
        }

    def __call__(self, *args: str | bytes, stdin: bytes = b"", status: int = 0, cold: bool = False, **environment: str) -> Done:
        """Run the program, which must end with this status; `cold` starts an interpreter of its own for it."""
        done = (self.started_cold if cold else self.ended)(*args, stdin=stdin, **environment)
        assert "Traceback" not in done.err, done.err
        assert done.status == status, f"exit {done.status}: {done.err or done.out}"
        return done

    def ended(self, *args: str | bytes, stdin: bytes = b"", **environment: str) -> Done:
        """Run the program, however it ends."""
        with TemporaryDirectory() as scratch:
            given, out, err = streams = [Path(scratch) / name for name in ("in", "out", "err")]
            given.write_bytes(stdin)
            status = warm()(
                [os.fsencode(arg) for arg in args],
                folder=self.folder,
                environment=self.environment | environment,
                streams=streams,
            )
            return Done(status, out.read_bytes(), err.read_bytes())

    def started_cold(self, *args: str | bytes, stdin: bytes = b"", **environment: str) -> Done:
        """Run the program in an interpreter of its own, however it ends."""
        done = subprocess.run(
            [*PROGRAM, *args],
            input=stdin,
            cwd=self.folder,
            env=self.environment | environment,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def sh(self, command: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run a line of the system's shell, in which `$program` is the program."""
        return subprocess.run(
            ["sh", "-c", command],
            cwd=folder or self.folder,
            env=self.environment | {"program": " ".join(PROGRAM)},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def refused(self, *args: str | bytes, status: int = 2, stdin: bytes = b"", cold: bool = False, **environment: str) -> str:
        """The one sentence that a mistake gets."""
        done = self(*args, status=status, stdin=stdin, cold=cold, **environment)
        assert done.out == ""
        *usage, sentence = done.err.strip().splitlines()
        assert sentence.startswith("Error: "), done.err
        assert all(line.startswith(("Usage:", "Try ")) or not line for line in usage), done.err
        return sentence.removeprefix("Error: ")

    def letters(self) -> list[dict[str, Any]]:
        """What is in the store, oldest first, in the shape that `--json` has."""
        with self.store() as dlq:
            found: list[dict[str, Any]] = json.loads(encode([letter_shape(letter) for letter in dlq.find(order=Order.OLDEST)]))
        return found

    def store(self) -> blocking.DeadLetters:
        return blocking.open(f"sqlite:{self.folder}/redrive.db")

    def module(self, name: str, text: str) -> None:
        (self.folder / f"{name}.py").write_text(text)

    def start(self, *args: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*PROGRAM, *args],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )


class Done:
    """How the program ended, and what it said."""

    def __init__(self, status: int, out: bytes, err: bytes) -> None:
        self.status = status
        self.raw = out
        self.out = out.decode("utf-8", "surrogateescape")
        self.err = err.decode("utf-8", "surrogateescape")

    @property
    def json(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.out)
        assert answer["schema"] == 1
        return answer


def eventually(claim: Callable[[], Any]) -> Any:
    """Wait for a condition, with a bound."""
    deadline = time.monotonic() + PATIENCE
    while not (answer := claim()):
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.01)
    return answer


def heard(running: subprocess.Popen[str], word: str) -> str:
    """Read on what the program says to people until this is said; all that was."""
    assert running.stderr is not None
    said = ""
    while word not in said:
        line = running.stderr.readline()
        assert line, f"it ended without '{word}': {said}"
        said += line
    return said


def is_at_rest(running: subprocess.Popen[Any]) -> bool:
    """Does every thread of the program wait for something from outside? Then it has done all that it was given to do."""
    try:
        told = [(task / "stat").read_text() for task in Path(f"/proc/{running.pid}/task").iterdir()]
    except FileNotFoundError:  # one of them has just ended
        return False
    return {text.rpartition(")")[2].split()[0] for text in told} == {"S"}


def filled(shell: Shell) -> None:
    """Put three letters into the store: two are open, one is completed."""
    with shell.store() as dlq:
        for number, (source, error) in enumerate(
            [("orders", TimeoutError("slow")), ("orders", KeyError("id")), ("mails", PermissionError("no"))]
        ):
            dlq.capture(Message(body=b"x", id=str(number)), error, source=source, tags=[f"t{number}"])
        dlq.redrive(lambda body: None, ids=[next(letter.id for letter in dlq.find() if letter.source_id == "1")])


def seen_on_a_terminal(shell: Shell, *args: str, typed: bytes = b"", cold: bool = False, **more: str) -> tuple[str, int]:
    """What a person sees who runs the program on a terminal, and its exit status; `cold` is as in `Shell`."""
    ours, theirs = pty.openpty()
    environment = shell.environment | {"TERM": "xterm-256color", "COLUMNS": "160"} | more
    program = partial(_cold if cold else warm(), [os.fsencode(arg) for arg in args], folder=shell.folder, environment=environment)
    seen = b""
    with ThreadPoolExecutor(1) as aside:
        ended = aside.submit(program, streams=[Path(os.ttyname(theirs))] * 3)
        while not ended.done() or select.select([ours], [], [], 0)[0]:
            if select.select([ours], [], [], 0.01)[0]:
                seen += os.read(ours, 65536)
            if typed and seen.rstrip().endswith(b"]:"):
                os.write(ours, typed)
                typed = b""
    os.close(theirs)
    os.close(ours)
    return seen.decode(), ended.result()


def _cold(args: list[bytes], *, folder: Path, environment: dict[str, str], streams: list[Path]) -> int:
    """As a warm one is called, in an interpreter of its own."""
    with streams[0].open("rb") as given, streams[1].open("wb", 0) as out, streams[2].open("wb", 0) as err:
        files: Any = {"stdin": given, "stdout": out, "stderr": err}
        done = subprocess.run([*PROGRAM, *args], cwd=folder, env=environment, timeout=PATIENCE, check=False, **files)
    return done.returncode
