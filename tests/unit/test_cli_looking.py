"""`redrive ls` and `redrive show`: what people and scripts see, and what can never reach their terminal."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from rich.cells import cell_len
from rich.console import Console

from redrive import Letter, Message, blocking
from redrive.model.amendment import Amendment
from redrive.model.query import EVERYTHING, Query
from redrive.serve.cli.long_list import AT_ONCE, print_letters
from redrive.serve.cli.ls import command
from redrive.testing import START, letter
from tests.unit.shell import BAD, Shell, filled, seen_on_a_terminal


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_ls_says_when_there_is_nothing(shell: Shell) -> None:
    assert shell("ls").out == "No letters in sqlite:redrive.db.\n"
    assert shell("ls", "--json").json["letters"] == []
    assert shell("ls", "--source", "x").out == "No letters match in sqlite:redrive.db.\n"


FILTERS: list[tuple[list[str], str]] = [
    ([], "012"),
    (["--source", "orders"], "01"),
    (["--status", "completed"], "1"),
    (["--error", "TimeoutError"], "0"),
    (["--error", "builtins.KeyError"], "1"),
    (["--category", "permission"], "2"),
    (["--tag", "t2"], "2"),
    (["--since", "1h", "--source", "mails"], "2"),
    (["--until", "1h"], ""),
    (["--source", "orders", "--status", "pending"], "0"),
    (["--limit", "2"], "21"),
    (["--source", "o' OR '1'='1"], ""),
    (["--source", "", "--status", "pending"], ""),
]


@pytest.mark.parametrize(("args", "ids"), FILTERS, ids=[" ".join(args) for args, _ in FILTERS])
def test_ls_shows_what_the_filters_choose_and_nothing_more(args: list[str], ids: str, shell: Shell) -> None:
    filled(shell)
    found = [letter["source_id"] for letter in shell("ls", "--json", *args).json["letters"]]
    assert sorted(found) == sorted(ids)


def test_ls_in_json_has_every_letter_in_full(shell: Shell) -> None:
    filled(shell)
    assert shell("ls", "--json", "--order", "oldest").json["letters"] == shell.letters()


def test_ls_prints_a_table_that_people_can_read(shell: Shell) -> None:
    filled(shell)
    out = shell("ls").out
    assert out.splitlines()[-1] == "3 letters."
    assert re.search(r"^\s*[0-9a-f]{8} .* orders .* 0 .* pending .* 1 .* TimeoutError: slow$", out, re.MULTILINE)
    assert "2 of 3 letters; --limit 0 shows all." in shell("ls", "--limit", "2").out
    assert all(line == line.rstrip() for line in out.splitlines())


def aged(number: int, **more: Any) -> Letter:
    return letter(str(number), at=START + timedelta(seconds=number), source=f"source {number % 7}", **more)


def test_a_list_too_long_for_a_table_looks_like_one(shell: Shell) -> None:
    with shell.store() as dlq:
        dlq.hold([aged(number) for number in range(AT_ONCE + 1)])
    for width in ("160", "80"):
        table, _ = seen_on_a_terminal(shell, "ls", "--limit", str(AT_ONCE), COLUMNS=width)
        longer, _ = seen_on_a_terminal(shell, "ls", "--limit", "0", COLUMNS=width)
        lines, more = ([line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", seen).splitlines()] for seen in (table, longer))
        assert (len(lines), len(more)) == (AT_ONCE + 5, AT_ONCE + 6)
        assert more[: AT_ONCE + 3] == lines[: AT_ONCE + 3]
        assert more[-2:] == ["", "1,001 letters."]
        assert set(re.findall(r"\x1b\[[0-9;]*m", longer)) == set(re.findall(r"\x1b\[[0-9;]*m", table))
    assert shell("ls", "--limit", "0").out.count("\n") == AT_ONCE + 6
    assert "\x1b" not in shell("search", "all", "--limit", "0").out


def test_a_long_list_is_shown_as_it_comes() -> None:
    """Or a million letters would all be in memory before the first is seen."""
    shown, ahead = StringIO(), []

    def coming() -> Iterator[Letter]:
        for number in range(3 * AT_ONCE):
            ahead.append(number - shown.getvalue().count("source "))
            yield aged(number)

    assert print_letters(Console(file=shown, width=120), coming()) == 3 * AT_ONCE
    assert shown.getvalue().count("\n") == 3 * AT_ONCE + 4
    assert max(ahead) <= AT_ONCE + 1


@pytest.mark.parametrize("width", [200, 99, 60, 50])
def test_what_is_wide_in_a_long_list_is_cut_or_makes_room(width: int) -> None:
    shown = StringIO()
    wide = [aged(number) for number in range(2 * AT_ONCE)]
    wide[3] = replace(wide[3], source="日本" * 40, source_id="y" * 100)
    wide[-1] = replace(
        wide[-1], source="the longest source that there is", failure=replace(wide[-1].failure, message="\x1b[1m z" * 99)
    )
    print_letters(Console(file=shown, width=width, color_system=None), wide)
    lines = shown.getvalue().splitlines()
    assert max(map(cell_len, lines)) <= width
    assert "\x1b" not in shown.getvalue()
    assert lines[-2].endswith("…")
    assert ("the longest source that there is" in lines[-2]) == (width == 200)


def test_letters_that_are_shown_are_not_counted_unless_there_may_be_more(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Counting what matches may take a while among a million."""
    filled(shell)
    monkeypatch.chdir(shell.folder)
    counted: list[Query] = []
    count = blocking.DeadLetters.count

    def counting(self: blocking.DeadLetters, query: Query = EVERYTHING) -> int:
        counted.append(query)
        return count(self, query)

    monkeypatch.setattr(blocking.DeadLetters, "count", counting)
    for limit, number in (("50", 0), ("0", 0), ("3", 1), ("2", 2)):
        command.main(["--limit", limit], standalone_mode=False)
        assert len(counted) == number, limit
    assert "2 of 3 letters" in capsys.readouterr().out


def test_what_hostile_messages_say_cannot_command_the_terminal(shell: Shell) -> None:
    """Colours only on a terminal, and never those of a letter: escape sequences in it must not reach anybody's screen."""
    with shell.store() as dlq:
        evil = "\x1b[31mred\x1b]0;title\x07 \x9b2J \x00 \r over [bold]markup[/bold]"
        id = dlq.capture(
            Message(body=evil.encode(), id=evil, content_type=f"text/plain{evil}", headers=(("h\x1b[5m", b"\x1b[6n"),)),
            ValueError(evil),
            source=f"s{evil}",
        ).letter.id
    for args in (["ls"], ["show", str(id)], ["replay", str(id), "--to", "py:json:loads"]):
        out = shell(*args, status=1 if args[0] == "replay" else 0).out
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\x80-\x9f]", out), (args[0], out)
        assert args[0] == "replay" or "[bold]markup[/bold]" in out


def test_show_tells_the_whole_story(shell: Shell) -> None:
    with shell.store() as dlq:

        @dlq.guard(source="orders", tags=["vip"], metadata={"team": "shop"})
        def ship(order: dict[str, Any]) -> None:
            raise ConnectionError("warehouse is down")

        ship({"id": 7})
        (letter,) = dlq.find()
    out = shell("show", str(letter.id)[:8]).out
    for part in (
        str(letter.id),
        "pending",
        "builtins.ConnectionError (network)",
        "warehouse is down",
        "vip",
        "team",
        "shop",
        "history",
        "3.",
        "traceback",
        "ship",
        "application/json",
        '"id": 7',
    ):
        assert part in out, part
    shown = shell("show", str(letter.id), "--json").json["letter"]
    assert (shown["attempts"], len(shown["history"]), shown["metadata"]) == (3, 3, {"team": "shop"})
    assert set(shown) >= {
        "id",
        "namespace",
        "source",
        "source_id",
        "generation",
        "failure",
        "history",
        "retry",
        "redrive",
        "origin",
        "original",
        "expires_at",
    }


def test_an_unknown_id_gets_one_clear_sentence(shell: Shell) -> None:
    filled(shell)
    sentences = {
        "zz": "'zz' is not a letter's id: those are hexadecimal",
        "ffffffff": "there is no letter ffffffff",
        "": "is not a letter's id",
    }
    calls = [*(["show", id] for id in sentences), ["replay", "ffffffff", "--to", "py:json:loads"]]
    for call in calls:
        done = shell.ended(*call)
        assert (done.status, done.out) == (1, ""), call
        assert sentences[call[1]] in done.err, call


def test_show_gives_large_and_amended_bodies_in_full(shell: Shell) -> None:
    with shell.store() as dlq:
        big = dlq.capture(b"\xff" * 2_000_000, BAD, source="s").letter.id
        small = dlq.capture(b"\xfe\xff", BAD, source="s").letter.id
        dlq.letters.amend([Amendment(id=small, body=b"mended")])
    assert shell("show", str(big), "--body").raw == b"\xff" * 2_000_000
    assert shell("show", str(big), "--json").json["letter"]["body_ref"]["size"] == 2_000_000
    original = shell("show", str(small), "--json").json["letter"]["original"]
    assert base64.b64decode(original["body_base64"]) == b"\xfe\xff"
    assert "body" not in original


@pytest.mark.parametrize("form", ["--json", "--limit 1000"])
def test_a_reader_that_has_seen_enough_is_no_failure(shell: Shell, form: str) -> None:
    with shell.store() as dlq:
        for number in range(20):
            dlq.capture("x" * 50_000, BAD, source="s", id=str(number))
        dlq.hold([letter(str(number), source="many" * 20) for number in range(980)])
    done = shell.sh(f"($program ls {form}; echo $? >status) | head -c 10")
    assert (done.returncode, done.stderr) == (0, "")
    assert (shell.folder / "status").read_text().strip() == "0"


def test_an_old_terminal_gets_what_it_can_show(shell: Shell) -> None:
    with shell.store() as dlq:
        dlq.capture("日本 ✓", ValueError("✗ ü"), source="s")
    for args in (["ls"], ["show", shell.letters()[0]["id"]], ["groups"], ["stats"], ["doctor"]):
        seen = shell(*args, cold=True, PYTHONIOENCODING="ascii").raw
        assert seen.isascii(), args[0]
        assert args[0] == "doctor" or b"ValueError: " in seen or b"ValueError (" in seen, seen


def test_colours_appear_on_a_terminal_and_nowhere_else(shell: Shell) -> None:
    filled(shell)
    seen, status = seen_on_a_terminal(shell, "ls", cold=True)
    assert status == 0
    assert "\x1b[" in seen
    assert "\x1b" not in shell("ls").out
    assert "\x1b" not in shell("show", shell.letters()[0]["id"]).out
    assert "\x1b" not in shell("ls", FORCE_COLOR="1", CLICOLOR_FORCE="1").out
    colourless, _ = seen_on_a_terminal(shell, "ls", NO_COLOR="1")
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]", colourless)
