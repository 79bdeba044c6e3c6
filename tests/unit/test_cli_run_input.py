"""`redrive run` and its program's input: handed on as it comes, kept for the letter and for the next try."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

PROGRAM = [sys.executable, "-m", "redrive"]


def started(folder: Path, *command: str) -> subprocess.Popen[bytes]:
    arguments = ["run", "--source", "nightly", "-q", "--attempts", "2", "--first", "1ms", "--", *command]
    return subprocess.Popen(
        [*PROGRAM, *arguments], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def test_the_program_starts_before_its_input_has_ended_and_the_next_try_gets_all_of_it_again(tmp_path: Path) -> None:
    running = started(tmp_path, "sh", "-c", "touch started; cat; exit 3")
    assert running.stdin is not None
    deadline = time.monotonic() + 30
    while not (tmp_path / "started").exists():
        assert time.monotonic() < deadline, "the program waits for the end of its input"
    running.stdin.write(b"first ")
    running.stdin.flush()
    out, err = running.communicate(b"second", timeout=30)
    assert (out, err, running.returncode) == (b"first secondfirst second", b"", 3)
    listed = subprocess.run([*PROGRAM, "ls", "--json"], cwd=tmp_path, capture_output=True, check=True)
    (letter,) = json.loads(listed.stdout)["letters"]
    assert (letter["body"], letter["attempts"]) == ("first second", 2)


def test_a_program_that_ends_before_its_input_does_not_wait_for_it(tmp_path: Path) -> None:
    with started(tmp_path, "true") as running:
        assert running.wait(timeout=30) == 0


def test_what_a_program_leaves_in_the_background_is_not_waited_for(tmp_path: Path) -> None:
    running = started(tmp_path, "sh", "-c", "sleep 3600 >&- & echo $! >>pids; exit 1")
    try:
        out, err = running.communicate(timeout=30)
    finally:
        for pid in (tmp_path / "pids").read_text().split():
            os.kill(int(pid), signal.SIGKILL)
    assert (out, err, running.returncode) == (b"", b"", 1)
