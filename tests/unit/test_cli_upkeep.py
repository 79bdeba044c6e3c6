"""Looking after an installation: the demonstration, `config`, `doctor`, completion, and which store is used."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dev.extras import extras
from redrive.testing import letter
from tests.unit.shell import PATIENCE, Shell, eventually, filled


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_the_demo_shows_five_failures_and_what_goes_back(shell: Shell) -> None:
    out = shell("demo").out
    assert out.count("dead letter held") == 5
    assert out.count("shipped") >= 2
    assert "3 worked" in out
    assert "2 failed again" in out
    first = {letter["id"] for letter in shell.letters()}
    assert len(first) == 5
    shell("demo", "--fast")
    second = {letter["id"] for letter in shell.letters()}
    assert len(second) == 10
    assert second > first
    waiting = re.search(r"redrive replay ([0-9a-f]{8}) --to (\S+)", out)
    assert waiting
    assert "failed again" in shell("replay", waiting[1], "--to", waiting[2], status=1).out


def test_config_prints_each_value_with_where_it_came_from(shell: Shell) -> None:
    (shell.folder / "redrive.toml").write_text('namespace = "shop"\n')
    settings = shell("config", "--json", "--store", "sqlite:x.db", REDRIVE_BODY_LIMIT="77").json["settings"]
    assert (settings["store"]["value"], settings["store"]["origin"]) == ("sqlite:x.db", "flag --store")
    assert (settings["namespace"]["value"], settings["namespace"]["origin"]) == ("shop", "redrive.toml")
    assert (settings["body_limit"]["value"], settings["body_limit"]["origin"]) == ("77", "environment REDRIVE_BODY_LIMIT")
    assert settings["listen"]["origin"] == "default"
    plain = shell("config", "--store", "postgres://ann:sesame@db/x?token=abc").out
    assert "postgres://ann:***@db/x?token=***" in plain
    assert "sesame" not in plain
    assert "body_limit" in plain


def test_doctor_knows_every_extra_that_the_project_offers(shell: Shell) -> None:
    told = re.search(r"extras +installed: (.+)", shell("doctor").out)
    assert told
    assert sorted(told[1].split(", ")) == sorted(extras())


def test_doctor_finds_all_well_or_says_what_must_be_done(shell: Shell) -> None:
    new = shell("doctor")
    assert "redrive.db is not there yet; the first letter makes it" in new.out
    assert not (shell.folder / "redrive.db").exists()
    filled(shell)
    out = shell("doctor").out
    assert "1 completed, 2 pending" in out
    assert out.splitlines()[-1] == "All is well."
    answer = shell("doctor", "--json").json
    assert answer["healthy"] is True
    assert {check["what"] for check in answer["checks"]} >= {
        "redrive",
        "extras",
        "store",
        "integrity",
        "disk",
        "letters",
        "journal",
    }
    raw = bytearray((shell.folder / "redrive.db").read_bytes())
    raw[4096:] = b"\xa5" * (len(raw) - 4096)
    (shell.folder / "redrive.db").write_bytes(raw)
    sick = shell("doctor", "--json", status=1).json
    assert sick["healthy"] is False
    assert any(check["health"] == "bad" and "redrive.db" in check["detail"] for check in sick["checks"])
    assert shell("doctor", status=1).out.splitlines()[-1] == "Something must be done."


def test_doctor_changes_nothing(shell: Shell) -> None:
    import sqlite3

    connection = sqlite3.connect(shell.folder / "redrive.db")
    connection.execute("CREATE TABLE customers (name TEXT)")
    connection.commit()
    connection.close()
    before = (shell.folder / "redrive.db").read_bytes()
    assert "another program's database" in shell("doctor", status=1).out
    assert (shell.folder / "redrive.db").read_bytes() == before
    assert [path.name for path in shell.folder.iterdir()] == ["redrive.db"]


@pytest.mark.parametrize("kind", ["bash", "zsh", "fish"])
def test_the_completion_script_is_printed_for_each_shell(kind: str, shell: Shell) -> None:
    out = shell("completion", kind).out
    assert "_REDRIVE_COMPLETE" in out
    if kind == "bash":
        subprocess.run(["bash", "-n"], input=out, text=True, check=True)


def test_completion_knows_commands_options_and_ids(shell: Shell) -> None:
    filled(shell)
    id = shell.letters()[0]["id"]
    for words, expected in (("redrive s", "show"), ("redrive ls --st", "--status"), (f"redrive show {id[:6]}", id)):
        out = shell(_REDRIVE_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=str(len(words.split()) - 1)).out
        assert expected in out, words


def test_the_store_of_the_environment_is_used_by_every_command(shell: Shell) -> None:
    shell("capture", "--source", "s", REDRIVE_STORE="sqlite:elsewhere.db")
    assert len(shell("ls", "--json", REDRIVE_STORE="sqlite:elsewhere.db").json["letters"]) == 1
    assert shell("ls", "--json", "--store", "sqlite:other.db", REDRIVE_STORE="sqlite:elsewhere.db").json["letters"] == []
    assert not (shell.folder / "redrive.db").exists()


@contextmanager
def up(shell: Shell, *args: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The program while it is up, and what it said when it came up."""
    running = shell.start("up", "--listen", "127.0.0.1:0", *args)
    assert running.stdout is not None
    try:
        yield running.stdout.readline(), running
    finally:
        running.send_signal(signal.SIGTERM)
        running.communicate(timeout=PATIENCE)


def test_up_keeps_house_by_the_rules_of_the_settings(shell: Shell) -> None:
    (shell.folder / "redrive.toml").write_text(
        '[[retention]]\nquery = "age>30d"\nact = "purge"\nname = "old ones"\n[[retention]]\nquery = "all"\nact = "archive"\n'
    )
    with shell.store() as dlq:
        dlq.hold([letter("1"), letter("2")])
        with up(shell) as (first, running):
            assert first.startswith("redrive is up on ")
            assert running.stdout is not None
            _, _, fourth = (running.stdout.readline() for _ in range(3))
            assert fourth == "  2 retention rules run every 10 minutes: old ones; archive: all\n"
            eventually(lambda: [row.detail for row in dlq.desk.audit()[:1]] == ["done: 2 removed"])
            running.send_signal(signal.SIGTERM)
            assert running.wait(PATIENCE) == 0
            assert running.stderr is not None
            assert "retention rule old ones: 2 matched, 2 removed" in running.stderr.read()
        assert dlq.desk.audit()[0].detail == "done: 2 removed"


def test_up_indexes_what_was_put_off(shell: Shell) -> None:
    with shell.store() as dlq:
        dlq.hold([letter(str(number)) for number in range(20)])
        assert dlq.letters.tidy(0).texts == 20
        with up(shell, "--json") as (first, _):
            assert json.loads(first) | {"housekeeping": True, "retention": []} == json.loads(first)
            eventually(lambda: not dlq.letters.tidy(0).texts)


def test_up_without_housekeeping_leaves_all_as_it_is(shell: Shell) -> None:
    with shell.store() as dlq:
        dlq.hold([letter("1")])
        with up(shell, "--no-housekeeping", "--json") as (first, running):
            assert json.loads(first)["housekeeping"] is False
            running.send_signal(signal.SIGTERM)
            assert running.wait(PATIENCE) == 0
        assert dlq.letters.tidy(0).texts == 1


def test_config_shows_retention_rules_as_the_environment_has_them(shell: Shell) -> None:
    (shell.folder / "redrive.toml").write_text('[[retention]]\nquery = "age>30d"\nact = "purge"\n')
    settings = shell("config", "--json").json["settings"]
    assert (settings["retention"]["value"], settings["retention"]["origin"]) == ("purge: age>30d", "redrive.toml")
    assert "purge: age>30d" in shell("config").out


def test_a_mistake_in_a_retention_rule_is_pointed_at_by_every_command(shell: Shell) -> None:
    (shell.folder / "redrive.toml").write_text('[[retention]]\nquery = "stats:completed"\nact = "purge"\n')
    done = shell("up", status=2)
    assert done.err.splitlines() == [
        "Error: retention (redrive.toml): rule 1, in its query 'stats:completed': there is no field 'stats';"
        " did you mean status? (column 1)",
        "  stats:completed",
        "  ^^^^^",
    ]
