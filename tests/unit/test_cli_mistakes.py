"""The command line explains itself, and every mistake gets one clear sentence."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from redrive.serve.cli.app import COMMANDS
from tests.unit.shell import PATIENCE, PROGRAM, Shell, filled


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_the_program_says_what_it_can_do(shell: Shell) -> None:
    out = shell("--help", cold=True).out
    for name in ("up", "demo", "ls", "show", "replay", "capture", "run", "config", "doctor", "completion"):
        assert re.search(rf"^  {name}\s+\S", out, re.MULTILINE), name
    assert shell("--version").out.startswith("redrive, version ")


def test_every_command_takes_a_store_and_explains_itself(shell: Shell) -> None:
    commands = ["up", "demo", "ls", "search", "show", "groups", "stats", "replay", "capture", "run", "config", "doctor"]
    for command in commands:
        done = shell(command, "--help")
        assert done.err == "", command
        assert "--store URL" in done.out, command


LISTINGS = [
    ["ls"],
    ["search", "all"],
    ["groups"],
    ["groups", "show", "ab"],
    ["dlq", "list"],
    ["ops", "ls"],
    ["receipts", "ls"],
    ["collect", "queue:q"],
]
MISTAKES: list[tuple[list[str], str]] = [
    (["lss"], "There is no command 'lss'; did you mean 'ls'?"),
    (["zzz"], f"There is no command 'zzz'; there are {', '.join(COMMANDS)}."),
    (["--bogus"], "No such option"),
    (["ls", "--sorce", "x"], "No such option"),
    (["ls", "--status", "pendin"], "'pendin' is not one of"),
    (["ls", "--limit", "-1"], "-1 is not in the range"),
    (["ls", "--limit", "many"], "'many' is not a valid integer"),
    *(([*listing, "--limit", "9" * 20], f"{'9' * 20} is not in the range") for listing in LISTINGS),
    (["purge", "all", "--older-than", "800000d"], "'800000d' is too long; 100000d is the longest"),
    (["stats", "--watch", "--interval", "999999999d"], "'999999999d' is too long; 100000d is the longest"),
    (["stats", "--watch", "--interval", "9999999999d"], "'9999999999d' is too long; 100000d is the longest"),
    (["ls", "--since", "800000d"], "'800000d' is too long; 100000d is the longest"),
    (["replay", "all", "--to", "py:json:loads", "--at", "999999999d"], "'999999999d' is not a time"),
    (["ls", "--since", "yesterday"], "'yesterday' is not a time; write how long ago (2h, 7d) or an ISO time"),
    (["ls", "extra"], "'extra' is no place of letters; a dead queue is written queue:NAME"),
    (["ls", "--store", "sqlit:x"], "did you mean sqlite:?"),
    (["ls", "--store", "x.db"], "'x.db' has no scheme"),
    (["ls", "--store", "sqlite:"], "sqlite: needs a path"),
    (["ls", "--store", ""], "store (flag --store) must be a URL such as sqlite:redrive.db"),
    (["ls", "--config", "no.toml"], "there is no settings file no.toml"),
    (["show"], "Missing argument 'ID'"),
    (["replay"], "Say which letters: ids, a question such as 'source:orders error:TimeoutError', or all."),
    (["replay", "abcd", "--source", "x"], "Give ids or filters, not both."),
    (["replay", "all", "--batch", "0"], "0 is not in the range"),
    (["capture"], "Missing option '--source'"),
    (["capture", "--source", "s", "--header", "no-equals"], "'no-equals' is not a header; write NAME=VALUE"),
    (["run", "--source", "s"], "Missing argument"),
    (["run", "--", "true"], "Missing option '--source'"),
    (["run", "--source", "s", "--attempts", "0", "--", "true"], "0 is not in the range"),
    (
        ["run", "--source", "s", "--first", "soon", "--", "true"],
        "'soon' is not a duration; write 500ms, 90s, 15m, 1h30m or 7d",
    ),
    (["run", "--source", "s", "--atempts", "3", "--", "true"], "No such option"),
    (["completion", "tcsh"], "'tcsh' is not one of"),
    (["up", "--listen", "nowhere"], "listen (flag --listen) must be host:port"),
    (["up", "--listen", "127.0.0.1:99999"], "listen (flag --listen) must be host:port"),
]


@pytest.mark.parametrize(("args", "sentence"), MISTAKES, ids=[" ".join(args) for args, _ in MISTAKES])
def test_a_mistake_gets_one_clear_sentence(args: list[str], sentence: str, shell: Shell) -> None:
    assert sentence in shell.refused(*args)
    assert list(shell.folder.iterdir()) == []


def test_a_mistake_of_the_real_program_ends_it_with_2(shell: Shell) -> None:
    assert shell.refused("lss", cold=True) == "There is no command 'lss'; did you mean 'ls'?"
    assert list(shell.folder.iterdir()) == []


def test_a_time_beyond_the_calendar_gets_one_clear_sentence(shell: Shell) -> None:
    calls = [["ls", "--since", moment] for moment in ("99999999999d", "1000000d", "0001-01-01", "9999-12-31T23:59:59-23:59")]
    for call in (*calls, ["run", "--source", "s", "--first", "99999999999w", "--", "true"]):
        done = shell.ended(*call)
        assert "Traceback" not in done.err, call
        assert done.status in (0, 2), call


@pytest.mark.parametrize(
    "command",
    [
        ["ls"],
        ["doctor"],
        ["capture", "--source", "s"],
        ["run", "--source", "s", "--", "true"],
        ["replay", "all", "--yes", "--to", "py:json:loads"],
    ],
    ids=lambda args: args[0],
)
def test_a_file_that_is_no_database_is_named_and_left_alone(command: list[str], shell: Shell) -> None:
    (shell.folder / "redrive.db").write_text("not a database, " * 100)
    done = shell(*command, status=1)
    assert "redrive.db is not a SQLite database; choose another path or move the file aside" in done.out + done.err
    assert (shell.folder / "redrive.db").read_text() == "not a database, " * 100


def test_an_unknown_setting_names_the_nearest(shell: Shell) -> None:
    assert "did you mean REDRIVE_STORE?" in shell.refused("ls", REDRIVE_STOR="sqlite:x.db")


@pytest.mark.parametrize(
    "call",
    [
        ["export"],
        ["ls"],
        ["ls", "--json"],
        ["stats"],
        ["doctor"],
        ["purge", "source:mails", "--yes", "--json"],
        ["--help"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_under_the_output_gets_one_clear_sentence(call: list[str], unbuffered: str, shell: Shell) -> None:
    filled(shell)
    with Path("/dev/full").open("wb", 0) as full:
        done = subprocess.run(
            [*PROGRAM, *call],
            cwd=shell.folder,
            env=shell.environment | {"PYTHONUNBUFFERED": unbuffered},
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    *told, mistake = done.stderr.splitlines()
    assert (done.returncode, mistake) == (1, "Error: No space left on device: standard output")
    came = "0 letters" if unbuffered else "3 letters"
    assert told == ([f"Broke off after {came}."] if call == ["export"] else [])


def test_who_has_closed_the_output_hears_nothing(shell: Shell) -> None:
    filled(shell)
    done = shell.sh("exec $program ls >&-")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_folder_that_was_removed_gets_one_clear_sentence(shell: Shell) -> None:
    gone = shell.folder / "gone"
    gone.mkdir()
    done = shell.sh(f"rmdir '{gone}'; exec $program ls", gone)
    assert "Traceback" not in done.stderr
    assert done.returncode in (1, 2)
