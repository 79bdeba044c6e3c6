"""`redrive run`: programs whose failures become letters, and `retry`, which runs them again."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.unit.shell import PATIENCE, PROGRAM, Shell, eventually


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_run_passes_output_and_leaves_no_letter_when_all_goes_well(shell: Shell) -> None:
    done = shell("run", "--source", "nightly", "--", "sh", "-c", "cat; echo err >&2; echo $0 $1", "a b", "--flag", stdin=b"in\n")
    assert (done.out, done.err) == ("in\na b --flag\n", "err\n")
    assert shell.letters() == []


def test_run_keeps_arguments_input_status_and_the_end_of_stderr(shell: Shell) -> None:
    script = "cat >/dev/null; for i in $(seq 20000); do echo line $i >&2; done; echo the end >&2; exit 3"
    done = shell("run", "--source", "nightly", "--source-id", "n-1", "--", "sh", "-c", script, stdin=b"\xffinput", status=3)
    (letter,) = shell.letters()
    assert (
        done.err.splitlines()[-1] == f"redrive: kept as letter {letter['id']}; `redrive replay {letter['id'][:8]}` runs it again"
    )
    assert (letter["source"], letter["source_id"], letter["kind"]) == ("nightly", "n-1", "command")
    assert base64.b64decode(letter["body_base64"]) == b"\xffinput"
    assert letter["failure"]["type"] == "redrive.CommandFailed"
    assert letter["failure"]["message"] == "sh: exit status 3: the end"
    assert letter["failure"]["traceback"].endswith("line 20000\nthe end\n")
    assert len(letter["failure"]["traceback"]) <= 65_536
    (header,) = letter["headers"]
    assert json.loads(header["value"]) == {"argv": ["sh", "-c", script], "cwd": str(shell.folder)}


def test_retry_runs_the_program_again_in_its_folder_with_its_input(shell: Shell) -> None:
    (shell.folder / "sub").mkdir()
    script = "cat >>../seen; pwd >>../seen; test -e ../mended"
    done = subprocess.run(
        [*PROGRAM, "run", "--source", "n", "--store", "sqlite:../redrive.db", "--", "sh", "-c", script],
        cwd=shell.folder / "sub",
        env=shell.environment,
        input=b"in\n",
        capture_output=True,
        check=False,
    )
    assert done.returncode == 1
    (letter,) = shell.letters()
    assert "1 failed again" in shell("replay", letter["id"], status=1).out
    (shell.folder / "mended").touch()
    assert shell("replay", letter["id"]).out.endswith("\n1 worked\n")
    assert (shell.folder / "seen").read_text() == f"in\n{shell.folder}/sub\n" * 3
    assert shell.letters()[0]["status"] == "completed"


def test_run_tries_as_often_as_it_is_told_and_one_success_is_enough(shell: Shell) -> None:
    script = "echo x >>tries; test $(wc -l <tries) -ge 3"
    shell("run", "--source", "n", "--attempts", "2", "--backoff", "immediate", "-q", "--", "sh", "-c", script, status=1)
    (letter,) = shell.letters()
    assert letter["attempts"] == 2
    shell("run", "--source", "n", "--attempts", "2", "--first", "1ms", "--", "sh", "-c", script)
    assert len(shell.letters()) == 1


def test_run_says_nothing_when_it_is_to_be_quiet(shell: Shell) -> None:
    assert shell("run", "--source", "n", "--quiet", "--", "false", status=1).err == ""
    assert len(shell.letters()) == 1


@pytest.mark.parametrize(
    ("argv", "status", "message"),
    [
        (["no-such-program-anywhere"], 127, "not found"),
        (["./not-executable"], 126, "may not be run"),
        (["sh", "-c", "kill -9 $$"], 137, "ended by SIGKILL"),
        (["sh", "-c", "kill -35 $$"], 163, "ended by"),
        (["./no-shebang"], 126, ""),
        (["./not-executable/below"], 127, ""),
        ([""], 127, ""),
    ],
    ids=["missing", "not executable", "killed", "real-time signal", "no shebang", "below a file", "empty"],
)  # fmt: skip
def test_every_way_to_fail_is_a_letter_and_the_status_a_shell_gives(
    argv: list[str], status: int, message: str, shell: Shell
) -> None:
    (shell.folder / "not-executable").write_text("#!/bin/sh\n")
    (shell.folder / "no-shebang").write_text("just text\n")
    (shell.folder / "no-shebang").chmod(0o755)
    done = shell.ended("run", "--source", "n", "--", *argv)
    assert "Traceback" not in done.err
    assert done.status in {status, 126, 127} if status in (126, 127) else done.status == status
    (letter,) = shell.letters()
    assert message in letter["failure"]["message"]
    assert letter["failure"]["type"] == "redrive.CommandFailed"


def test_arguments_that_are_no_text_are_kept(shell: Shell) -> None:
    """File names are bytes: `redrive run --source n -- gzip $FILE`."""
    shell("run", "--source", "n", "--", "test", "-e", b"caf\xe9.txt", status=1)
    (letter,) = shell.letters()
    (shell.folder / os.fsdecode(b"caf\xe9.txt")).touch()
    assert shell("replay", letter["id"]).out.endswith("\n1 worked\n")


def test_a_giant_last_line_does_not_make_a_giant_message(shell: Shell) -> None:
    shell("run", "--source", "n", "-q", "--", "sh", "-c", "head -c 60000 /dev/zero | tr '\\0' x >&2; exit 1", status=1)
    (letter,) = shell.letters()
    assert len(letter["failure"]["message"]) <= 8_192


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("whole_group", [False, True], ids=["redrive alone", "whole group"])
def test_a_run_that_is_told_to_stop_ends_its_program_and_is_not_captured(
    number: signal.Signals, whole_group: bool, shell: Shell
) -> None:
    # Its input ends once redrive minds it; and it takes its time to end, as it may.
    script = "trap 'sleep 0.2; touch ended; exit 0' TERM INT; cat; touch started; while :; do sleep 0.05; done"
    running = shell.start("run", "--source", "n", "--", "sh", "-c", script)
    eventually((shell.folder / "started").exists)
    if whole_group:
        os.killpg(running.pid, number)
    else:
        running.send_signal(number)
    out, err = running.communicate(timeout=PATIENCE)
    # The program may say something itself: a shell tells that its `sleep` was `Terminated`. We say nothing.
    assert (out, running.returncode) == ("", 128 + number)
    assert not [word for word in ("Traceback", "redrive", "Error", "Stopped") if word in err], err
    assert (shell.folder / "ended").exists()
    assert shell.letters() == []


def test_run_learns_first_whether_its_store_can_be_written(shell: Shell) -> None:
    done = shell("run", "--source", "n", "--store", "sqlite:nowhere/x.db", "--", "touch", "ran", status=1)
    assert "nowhere/x.db; does its folder exist" in done.err
    assert not (shell.folder / "ran").exists()


def test_a_batch_of_programs_is_settled_one_by_one_even_if_one_is_no_program(shell: Shell) -> None:
    shell("run", "--source", "n", "-q", "--", "sh", "-c", "echo x >>ran; test -e mended", status=1)
    shell("capture", "--source", "n", stdin=b"not a program")
    (shell.folder / "mended").touch()
    shell.ended("replay", "all", "--yes", "--to", "command:")
    assert [(letter["kind"], letter["status"]) for letter in shell.letters()] == [("command", "completed"), (None, "pending")]
    assert (shell.folder / "ran").read_text() == "x\nx\n"
