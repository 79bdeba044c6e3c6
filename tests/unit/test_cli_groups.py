"""`redrive groups`: the failures among letters, a line each, and one of them in full."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from redrive import Message, Status
from redrive.backends.sqlite import groups
from redrive.model.query import GroupPage
from redrive.serve.cli.groups import command, short_names
from redrive.testing import failure, letter
from tests.unit.shell import Shell, seen_on_a_terminal

HOUR = timedelta(hours=1)
SLOW, KEY = "5107" * 4, "4e1d" * 4


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Twelve letters of two groups: one grows, the other was seen last long ago."""
    shell = Shell(tmp_path)
    now = datetime.now(UTC)
    slow = failure(
        message="gateway did not answer",
        fingerprint=SLOW,
        fingerprint_reason="in shop.orders:reserve",
    )
    key = failure("builtins.KeyError", "'address'", fingerprint=KEY)
    with shell.store() as dlq:
        dlq.hold([letter(f"slow {number}", at=now, failure=slow) for number in range(3)])
        dlq.hold([letter("given up", at=now - timedelta(seconds=90), failure=slow, source="mails", status=Status.EXHAUSTED)])
        dlq.hold([letter(f"key {number}", at=now - (10 + number) * HOUR, failure=key, body=b"Acme Corp") for number in range(8)])
    return shell


def names(shell: Shell, *args: str) -> list[str]:
    return [group["fingerprint"] for group in shell("groups", *args, "--json").json["groups"]]


def test_groups_are_a_line_each(shell: Shell) -> None:
    out = shell("groups").out
    assert re.search(
        r"^ 51075107 +4   3 pending, 1 exhausted +[·▁▂▃▄▅▆▇█]{24} +\+4 +2m ago +(?:just now|\S+ ago) +TimeoutError: gateway did not answer$",
        out,
        re.MULTILINE,
    ), out
    assert re.search(r"^ 4e1d4e1d +8   8 pending +[·▁▂▃▄▅▆▇█]{24} +17h ago +10h ago +KeyError: 'address'$", out, re.MULTILINE), (
        out
    )
    assert out.splitlines()[-1] == "2 groups, 12 letters."
    assert "The first 1 group; --limit 0 shows all." in shell("groups", "--limit", "1").out


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ([], [SLOW, KEY]),
        (["--order", "last-seen"], [SLOW, KEY]),
        (["--order", "count"], [KEY, SLOW]),
        (["--order", "growth"], [SLOW, KEY]),
        (["--limit", "1"], [SLOW]),
        (["--limit", "0"], [SLOW, KEY]),
        (["status:exhausted"], [SLOW]),
        (["list", "status:exhausted"], [SLOW]),
        (["source:orders", "age>5h"], [KEY]),
        (['body~"acme corp"'], [KEY]),
        (["source:nowhere"], []),
    ],
    ids=str,
)
def test_groups_come_in_the_order_and_of_the_letters_that_are_asked_for(
    shell: Shell, args: list[str], expected: list[str]
) -> None:
    assert names(shell, *args) == expected


@pytest.mark.parametrize(
    "args", [["--limit", "1"], ["--limit", "2"], ["--limit", "0"], ["--limit", "1", "--json"], ["--json"], []], ids=str
)
def test_a_listing_takes_one_look_at_the_letters(shell: Shell, monkeypatch: pytest.MonkeyPatch, args: list[str]) -> None:
    looks = []
    listed = groups.listed

    def counted(*args: Any) -> GroupPage:
        looks.append(args)
        return listed(*args)

    monkeypatch.setattr(groups, "listed", counted)
    monkeypatch.chdir(shell.folder)
    command.main(["list", "status:pending", *args], standalone_mode=False)
    assert len(looks) == 1


def test_json_has_all_of_a_group(shell: Shell) -> None:
    (group,) = shell("groups", "group:" + SLOW, "--json").json["groups"]
    assert (group["error"], group["message"], group["count"]) == ("builtins.TimeoutError", "gateway did not answer", 4)
    assert (group["statuses"], group["growth"], len(group["hours"])) == ({"pending": 3, "exhausted": 1}, 4, 24)
    assert group["first_seen"] < group["last_seen"]


def test_nothing_is_told_with_where_else_to_look(shell: Shell) -> None:
    assert shell("groups", "source:nowhere").out == "No letters match in sqlite:redrive.db.\n"
    assert shell("groups", "acme corp").out.endswith("anywhere~acme also looks into bodies and tracebacks.\n")
    assert shell("groups", "--store", "sqlite:new.db").out == "No letters in sqlite:new.db.\n"
    assert not (shell.folder / "new.db").exists()


def test_one_group_is_shown_with_its_course_and_its_latest_letters(shell: Shell) -> None:
    out = shell("groups", "show", SLOW[:6], "--limit", "3").out
    for line in (
        rf"^{SLOW}$",
        r"^  failed with +builtins\.TimeoutError \(permanent\)$",
        r"^ +gateway did not answer$",
        r"^  grouped +in shop\.orders:reserve$",
        r"^  letters +4: 3 pending, 1 exhausted$",
        r"^  growth +\+4$",
        r"^  first seen +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC \(2m ago\)$",
        r"^  sources +orders 3, mails 1$",
        r"^  [·▁▂▃▄▅▆▇█]{48}  █ \d an hour$",
        r"^  ╵\d\d:00 +╵\d\d:00 +╵\d\d:00 +╵\d\d:00 +UTC$",
        rf"^3 of 4 letters; redrive ls --group {SLOW} --limit 0 lists all\.$",
    ):
        assert re.search(line, out, re.MULTILINE), f"{line}\n{out}"
    assert len(re.findall(r"^ [0-9a-f]{8} .* orders .* slow \d .* pending ", out, re.MULTILINE)) == 3
    listed = shell("ls", "--group", SLOW, "--limit", "0").out
    assert "4 letters." in listed
    assert "lists all" not in shell("groups", "show", SLOW).out


def test_one_group_in_json_has_its_sources_and_letters(shell: Shell) -> None:
    answer = shell("groups", "show", KEY, "--limit", "2", "--json").json
    assert (answer["group"]["fingerprint"], answer["group"]["sources"]) == (KEY, {"orders": 8})
    assert [one["source_id"] for one in answer["letters"]] == ["key 0", "key 1"]
    assert len(shell("groups", "show", KEY, "--limit", "0", "--json").json["letters"]) == 8


@pytest.mark.parametrize(
    ("args", "status", "sentence"),
    [
        (["show", "zz"], 1, "there is no group zz"),
        (["show", ""], 1, "there is no group"),
        (["show"], 2, "Missing argument 'FINGERPRINT'."),
        (["--order", "size"], 2, "'size' is not one of 'last-seen', 'count', 'growth'."),
        (["--limit", "-1"], 2, "-1 is not in the range"),
        (["--ordr", "count"], 2, "No such option '--ordr'"),
    ],
    ids=str,
)
def test_a_mistake_gets_one_clear_sentence(shell: Shell, args: list[str], status: int, sentence: str) -> None:
    assert sentence in shell.refused("groups", *args, status=status)


def test_a_beginning_that_several_groups_share_is_not_enough(shell: Shell) -> None:
    with shell.store() as dlq:
        dlq.hold([letter("other", failure=failure("x.Y", fingerprint=SLOW[:8] + "ffff"))])
    assert shell.refused("groups", "show", "5107", status=1) == (
        "more than one group begins with 5107; give more of the fingerprint"
    )
    assert f" {SLOW[:9]} " in shell("groups").out


def test_a_question_that_cannot_be_read_is_pointed_at(shell: Shell) -> None:
    assert "did you mean status? (column 1)\n  statu:pending\n  ^^^^^" in shell("groups", "statu:pending", status=2).err


def test_what_failures_say_cannot_command_the_terminal(shell: Shell) -> None:
    evil = "\x1b[31mred\x1b]0;title\x07 \x9b2J \x00 \r over [bold]markup[/bold]"
    with shell.store() as dlq:
        dlq.hold([letter("evil", source=evil, failure=failure(evil, evil, fingerprint=evil, fingerprint_reason=evil))])
    for args in (["groups"], ["groups", "show", "\x1b[31m"]):
        out = shell(*args).out
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\x80-\x9f]", out), out
        assert "[bold]markup[/bold]" in out


def test_what_todays_rules_hide_is_shown_by_no_listing(shell: Shell) -> None:
    with shell.store() as dlq:
        dlq.hold([letter("1", at=datetime.now(UTC), failure=failure(message="ann@example.com is unknown", fingerprint="abc"))])
    (shell.folder / "redrive.toml").write_text('[redact]\npresets = ["emails"]\n')
    for args in (["groups"], ["groups", "--json"], ["groups", "show", "abc"], ["groups", "show", "abc", "--json"], ["stats"]):
        out = shell(*args).out
        assert "is unknown" in out, args
        assert "ann@example.com" not in out, args


@pytest.mark.parametrize("columns", ["60", "80", "139", "140", "200"])
def test_lines_fit_the_terminal(shell: Shell, columns: str) -> None:
    with shell.store() as dlq:
        dlq.capture(Message(body=b"x"), ValueError("very " * 80), source="long " * 50)
        long = dlq.get(next(one.id for one in dlq.find() if one.source.startswith("long"))).failure.fingerprint
    for args in (["groups"], ["groups", "show", long]):
        seen, status = seen_on_a_terminal(shell, *args, COLUMNS=columns)
        assert status == 0
        lines = re.sub(r"\x1b\[[0-9;]*m", "", seen).replace("\r", "").splitlines()
        assert max(len(line.rstrip()) for line in lines) <= int(columns), args


def test_help_tells_of_the_listing_and_of_the_commands(shell: Shell) -> None:
    out = shell("groups", "--help").out
    assert "Usage: redrive groups [OPTIONS] [QUERY]..." in out
    assert "--order [last-seen|count|growth]" in out
    assert re.search(r"^  show +Show one group", out, re.MULTILINE)


def test_completion_knows_fingerprints(shell: Shell) -> None:
    words = f"redrive groups show {SLOW[:3]}"
    assert SLOW in shell(_REDRIVE_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD="3").out


def test_short_names_tell_groups_apart() -> None:
    assert list(short_names(["a" * 16, "b" * 16])) == ["a" * 8, "b" * 8]
    assert list(short_names(["aaaaaaaa1", "aaaaaaaa2"])) == ["aaaaaaaa1", "aaaaaaaa2"]
    assert list(short_names(["card", "builtins.KeyError"])) == ["card", "builtins"]
    assert list(short_names([])) == []
