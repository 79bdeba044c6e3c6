"""`redrive stats`: what people and scripts see of how the letters stand, once and live."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from redrive import Message, StoreUnavailable, blocking
from redrive.model.census import Backlog
from redrive.model.errors import RedriveError, StoreCorrupt
from redrive.serve.cli import chart
from redrive.serve.cli.stats import Look, look
from redrive.serve.cli.watch import watched
from redrive.testing import failure, letter
from tests.unit.shell import BAD, PATIENCE, PROGRAM, Shell, eventually, filled

HOUR = timedelta(hours=1)
STYLES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


class Screen:
    """The program on a terminal of some size, and what it has shown there so far."""

    def __init__(self, shell: Shell, *args: str, columns: int, rows: int = 40) -> None:
        self._raw = b""
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            os.chdir(shell.folder)
            os.execve(sys.executable, [*PROGRAM, *args], shell.environment | {"TERM": "xterm-256color"})

    @property
    def seen(self) -> str:
        return self._raw.decode(errors="replace")

    def until(self, sign: str) -> str:
        """Read on until this is seen; all that was."""
        deadline = time.monotonic() + PATIENCE
        while sign not in self.seen:
            assert time.monotonic() < deadline, self.seen
            if not self.read():
                break
        assert sign in self.seen, self.seen
        return self.seen

    def type(self, keys: bytes) -> None:
        os.write(self._terminal, keys)

    def ended(self) -> int:
        """Read to the end; the exit status."""
        deadline = time.monotonic() + PATIENCE
        while self.read():
            if time.monotonic() > deadline:
                os.kill(self._pid, signal.SIGKILL)
        _, status = os.waitpid(self._pid, 0)
        os.close(self._terminal)
        return os.waitstatus_to_exitcode(status)

    def read(self) -> bool:
        """Read what there is, waiting for it a little; False: it was the end."""
        if not select.select([self._terminal], [], [], 0.1)[0]:
            return True
        try:
            chunk = os.read(self._terminal, 65536)
        except OSError:
            return False
        self._raw += chunk
        return bool(chunk)


def busy(shell: Shell) -> None:
    """Put letters of several sources and hours into the store; one group of them grows."""
    now = datetime.now(UTC)
    with shell.store() as dlq:
        dlq.hold([letter(f"new {number}", at=now, failure=failure(message="gateway is slow")) for number in range(8)])
        dlq.hold(
            [
                letter(str(number), at=now - number * HOUR, source="mails", failure=failure("builtins.KeyError", "'id'"))
                for number in range(4, 8)
            ]
        )


def test_an_empty_store_is_told_in_one_line(shell: Shell) -> None:
    assert shell("stats").out.startswith("No letters in sqlite:redrive.db.")
    assert shell("stats", "--json").json["total"] == 0
    assert not (shell.folder / "redrive.db").exists()


def test_the_page_tells_how_the_letters_stand(shell: Shell) -> None:
    busy(shell)
    filled(shell)
    out = shell("stats").out
    for line in (
        r"^15 letters in sqlite:redrive\.db",
        r"^  pending +14  █+ +93\.3 %$",
        r"^  completed +1  █+.? +6\.7 %$",
        r"^  orders +10  █+ +66\.7 %$",
        r"^  mails +5  █+.? +33\.3 %$",
        r"^  permission +1 ",
        r"^  [·▁▂▃▄▅▆▇█]{48}  █ \d+ an hour$",
        r"^  ╵\d\d:00 +╵\d\d:00 +╵\d\d:00 +╵\d\d:00 +UTC$",
        r"^  \d+ this hour, \d+ in the hour before$",
        r"^ +\+8  [·▁▂▃▄▅▆▇█]{24}  builtins\S*  TimeoutError: gateway is slow$",
    ):
        assert re.search(line, out, re.MULTILINE), f"{line}\n{out}"
    assert all(line == line.rstrip() for line in out.splitlines())


def test_json_is_one_object_with_every_figure(shell: Shell) -> None:
    busy(shell)
    filled(shell)
    seen = shell("stats", "--json").json
    assert (seen["store"], seen["namespace"], seen["total"]) == ("sqlite:redrive.db", "default", 15)
    assert seen["statuses"] == {"pending": 14, "completed": 1}
    assert seen["sources"] == {"orders": {"pending": 9, "completed": 1}, "mails": {"pending": 5}}
    assert sum(seen["categories"].values()) == sum(seen["errors"].values()) == 15
    assert [len(seen["hours"]), sum(hour["count"] for hour in seen["hours"])] == [24, 15]
    assert seen["this_hour"] == seen["hours"][-1]["count"]
    assert set(seen["backlog"]) == {"texts", "counts", "space"}
    assert seen["growing"][0]["growth"] == 8
    assert seen["growing"][0]["message"] == "gateway is slow"


@pytest.mark.parametrize("columns", [40, 80, 139, 140, 200])
def test_the_page_fits_the_terminal_and_has_its_colours(shell: Shell, columns: int) -> None:
    busy(shell)
    with shell.store() as dlq:
        dlq.capture("x", ValueError("very " * 80), source="a source with a name that is longer than anybody would " * 3)
    screen = Screen(shell, "stats", columns=columns)
    assert screen.ended() == 0, screen.seen
    assert "\x1b[33m" in screen.seen
    lines = STYLES.sub("", screen.seen).replace("\r", "").splitlines()
    assert [line for line in lines if len(line) > columns] == []
    assert "\x1b[?1049h" not in screen.seen
    assert any(re.match(r"status +last 24 hours", line) for line in lines) is (columns >= 140)


def test_names_of_others_cannot_command_the_terminal(shell: Shell) -> None:
    evil = "\x1b[31mred\x1b]0;title\x07 \x9b2J \x00 \r over [bold]markup[/bold]"
    with shell.store() as dlq:
        dlq.capture(Message(body=b"x"), ValueError(evil), source=evil)
    out = shell("stats").out
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\x80-\x9f]", out)
    assert "ValueError: \\x1b[31mred" in out


def test_watching_shows_rates_in_place_until_ctrl_c(shell: Shell) -> None:
    busy(shell)
    screen = Screen(shell, "stats", "--watch", "--interval", "50ms", columns=80, rows=30)
    screen.until("Ctrl-C ends")
    with shell.store() as dlq:
        number = 0

        def is_rising() -> bool:
            nonlocal number
            number += 1
            dlq.capture(Message(body=b"x", id=f"more {number}"), BAD, source="orders")
            screen.read()
            return re.search(r"orders[^\n]*\x1b\[31m *\+[\d.,]+/s", screen.seen) is not None

        eventually(is_rising)
    screen.type(b"\x03")
    assert screen.ended() == 0
    assert screen.seen.startswith("\x1b[?1049h")
    assert screen.seen.endswith("\x1b[?25h\x1b[?1049l")
    frames = screen.seen.replace("\x1b[H", "\n").replace("^C", "")
    assert max(len(line.rstrip()) for line in STYLES.sub("", frames).replace("\r", "").splitlines()) <= 80


@pytest.mark.parametrize("form", ["", "--json"])
def test_watching_elsewhere_prints_one_look_after_another(shell: Shell, form: str) -> None:
    filled(shell)
    running = shell.start("stats", "--watch", "--interval", "50ms", *form.split())
    assert running.stdout is not None
    assert running.stderr is not None
    lines: list[str] = []
    sign = '"total":3' if form else "3 letters in sqlite:redrive.db"
    while sum(sign in line for line in lines) < 3:
        lines.append(running.stdout.readline())
        assert lines[-1], running.stderr.read()
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=PATIENCE)
    assert (running.returncode, err) == (0, "")
    assert "\x1b" not in "".join(lines) + out
    if form:
        first, second, *_ = map(json.loads, lines)
        assert (first["schema"], first["rates"]) == (1, None)
        assert second["rates"] == {
            "total": 0.0,
            "statuses": {"pending": 0.0, "completed": 0.0},
            "sources": {"mails": 0.0, "orders": 0.0},
        }


def watched_in_process(answers: list[Callable[[], Look]], *, as_json: bool) -> None:
    """Watch a store that answers so, one look after another, and press Ctrl-C then."""
    waiting: Iterator[Callable[[], Look]] = iter(answers)

    def answer() -> Look:
        found = next(waiting, None)
        if found is None:
            raise KeyboardInterrupt
        return found()

    watched(answer, timedelta(milliseconds=1), as_json=as_json)


@contextmanager
def looks() -> Iterator[Callable[[], Look]]:
    with blocking.open("memory:") as dlq:
        numbers = iter(range(1000))

        def one_more() -> Look:
            dlq.hold([letter(str(next(numbers)))])
            return look(dlq, "memory:")

        yield one_more


def refusing(error: RedriveError) -> Callable[[], Look]:
    def refuse() -> Look:
        raise error

    return refuse


def test_a_store_that_is_away_for_a_moment_is_told_of_with_the_last_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    away = refusing(StoreUnavailable("nobody answers at db:5432"))
    with looks() as see:
        watched_in_process([see, away, away, see], as_json=True)
        lines: list[dict[str, Any]] = list(map(json.loads, capsys.readouterr().out.splitlines()))
        assert [(line["total"], line["trouble"]) for line in lines] == [
            (1, None),
            (1, "nobody answers at db:5432"),
            (1, "nobody answers at db:5432"),
            (2, None),
        ]
        assert [line["rates"] is None for line in lines] == [True, True, True, False]
        watched_in_process([see, away], as_json=False)
        assert "nobody answers at db:5432. These numbers are of " in capsys.readouterr().out


def test_what_will_not_pass_ends_the_watch() -> None:
    with looks() as see:
        with pytest.raises(StoreCorrupt):
            watched_in_process([see, refusing(StoreCorrupt("damaged"))], as_json=True)
        with pytest.raises(StoreUnavailable):
            watched_in_process([refusing(StoreUnavailable("there was never anybody"))], as_json=True)


def test_what_the_store_has_put_off_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.console import Console

    from redrive.backends.memory.letters import MemoryLetters
    from redrive.serve.cli.overview import page

    async def behind(self: MemoryLetters, most: int = 200) -> Backlog:
        return Backlog(texts=12_345, counts=7, space=2_500_000)

    monkeypatch.setattr(MemoryLetters, "tidy", behind)
    with looks() as see:
        paper = Console(width=100, record=True, file=StringIO())
        paper.print(page(see()))
    told = "Put off: 12,345 letters to be indexed for search, 2.5 MB to be given back; `redrive tidy` does it."
    assert told in paper.export_text()


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["--interval", "1s"], "--interval goes with --watch."),
        (["--watch", "--interval", "1ms"], "--interval is too short; 50ms is the shortest."),
        (["--watch", "--interval", "soon"], "'soon' is not a duration"),
        (["--store", "sqlit:x"], "did you mean sqlite:?"),
        (["extra"], "unexpected extra argument"),
    ],
)
def test_a_mistake_gets_one_clear_sentence(shell: Shell, args: list[str], sentence: str) -> None:
    assert sentence in shell.refused("stats", *args)


def test_a_sparkline_tells_none_from_few_and_few_from_many() -> None:
    assert chart.sparkline([0, 1, 50, 100]).plain == "·▁▄█"
    assert chart.sparkline([0, 3], cells=2).plain == "··██"
    assert chart.sparkline([]).plain == ""
    assert chart.joined([1, 2, 3, 4, 5], 2) == [1, 5, 9]


def test_a_bar_shows_what_is_there_at_all() -> None:
    assert [chart.bar(part, 100, 4) for part in (0, 1, 50, 90, 100)] == ["", "▏", "██", "███▌", "████"]
    assert chart.bar(0, 0, 4) == ""


def test_numbers_are_short_and_true() -> None:
    assert [chart.brief_number(n) for n in (0, 999, 1000, 1234, 99_999, 1_250_000, -4200)] == [
        "0",
        "999",
        "1k",
        "1.2k",
        "99k",
        "1.2M",
        "-4.2k",
    ]
    assert [chart.share(part, 10_000) for part in (0, 1, 5000, 9999, 10_000)] == [
        "0.0 %",
        "<0.1 %",
        "50.0 %",
        ">99.9 %",
        "100.0 %",
    ]
    assert [chart.rate(a_second) for a_second in (0, 0.04, 0.5, -2.25, 12.4, 1234)] == [
        "",
        "",
        "+0.5/s",
        "-2.2/s",
        "+12/s",
        "+1,234/s",
    ]
    assert [chart.signed(n) for n in (0, 3, -1200)] == ["", "+3", "-1,200"]
