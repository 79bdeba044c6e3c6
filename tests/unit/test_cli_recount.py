"""`redrive doctor --recount`: the counts that a store keeps, compared with its letters."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from redrive import wiring
from redrive.backends.memory.letters import MemoryLetters
from redrive.model.census import Miscount
from redrive.model.finding import Finding, Health
from redrive.ports.opening import Opened
from redrive.serve.cli.doctor import command
from tests.unit.shell import Shell, filled, seen_on_a_terminal


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    shell = Shell(tmp_path)
    filled(shell)
    return shell


class Miscounting(MemoryLetters):
    """A store that keeps counts, some of them wrong."""

    capabilities = replace(MemoryLetters.capabilities, counters=True)
    wrong: Sequence[Miscount] = ()
    findings: Sequence[Finding] = (Finding("store", Health.OK, "is there"),)

    async def recount(self, *, repair: bool = False) -> list[Miscount]:
        found = list(self.wrong)
        if repair:
            type(self).wrong = ()
        return found


@pytest.fixture
def miscounting(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> type[Miscounting]:
    open_store = wiring.store

    async def examine() -> list[Finding]:
        return [*Miscounting.findings]

    def opening(url: str, **options: Any) -> Opened:
        return replace(open_store(url, **options), letters=Miscounting(), examine=examine)

    monkeypatch.setattr(wiring, "store", opening)
    monkeypatch.setattr(Miscounting, "wrong", [Miscount(what=f"source {n}, pending", kept=n, real=2000 + n) for n in range(25)])
    monkeypatch.setenv("XDG_STATE_HOME", str(shell.folder))
    monkeypatch.chdir(shell.folder)
    return Miscounting


def asked(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str]:
    status = command.main(["--recount", *args], standalone_mode=False)
    return status, capsys.readouterr().out


def test_counts_that_are_right_are_said_to_be(shell: Shell) -> None:
    out = shell("doctor", "--recount").out
    assert "recounted: all that are kept are what is there" in out
    assert out.splitlines()[-1] == "All is well."
    answer = shell("doctor", "--recount", "--json").json
    assert answer["healthy"]
    assert answer["recount"] == {"miscounts": [], "repaired": False}
    assert "counts" in {check["what"] for check in answer["checks"]}
    plain = shell("doctor", "--json").json
    assert "recount" not in plain
    assert "counts" not in {check["what"] for check in plain["checks"]}


def test_counts_that_differ_are_a_sickness_and_the_first_ones_are_named(
    miscounting: type[Miscounting], capsys: pytest.CaptureFixture[str]
) -> None:
    status, out = asked(capsys)
    assert status == 1
    assert "25 counts differ from what is there; mend with: redrive doctor --recount --repair" in out
    lines = [line for line in out.splitlines() if "kept" in line and "there are" in line]
    assert (lines[0], len(lines)) == ("   source 0, pending: kept 0, there are 2,000", 20)
    assert "   and 5 more" in out.splitlines()
    assert out.splitlines()[-1] == "Something must be done."


def test_repair_puts_them_right_and_says_so(miscounting: type[Miscounting], capsys: pytest.CaptureFixture[str]) -> None:
    miscounting.wrong = miscounting.wrong[:1]
    status, out = asked(capsys, "--repair")
    assert status == 0
    assert "1 count differed from what is there and was put right" in out
    assert "   source 0, pending: kept 0, there are 2,000" in out
    assert asked(capsys)[0] == 0


@pytest.mark.parametrize(
    ("what", "is_counted"), [("durability", True), ("disk", True), ("store", False), ("integrity", False), ("rights", False)]
)
def test_it_counts_unless_letters_cannot_be_looked_at(
    miscounting: type[Miscounting],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    what: str,
    is_counted: bool,
) -> None:
    monkeypatch.setattr(Miscounting, "findings", [Finding(what, Health.BAD, "is amiss")])
    monkeypatch.setattr(Miscounting, "wrong", ())
    status, out = asked(capsys)
    assert status == 1
    assert ("recounted: all that are kept are what is there" in out) == is_counted
    assert (f"not recounted before this is in order: {what}" in out) != is_counted
    assert ("sqlite:redrive.db: none" in out) == is_counted


def test_json_has_all_that_differ(miscounting: type[Miscounting], capsys: pytest.CaptureFixture[str]) -> None:
    from msgspec import json

    status, out = asked(capsys, "--json")
    answer = json.decode(out)
    assert (status, answer["healthy"], answer["recount"]["repaired"]) == (1, False, False)
    assert len(answer["recount"]["miscounts"]) == 25
    assert answer["recount"]["miscounts"][3] == {"what": "source 3, pending", "kept": 3, "real": 2003}
    status, out = asked(capsys, "--json", "--repair")
    answer = json.decode(out)
    assert (status, answer["healthy"], answer["recount"]["repaired"]) == (0, True, True)


def test_a_store_that_keeps_none_is_no_failure(shell: Shell) -> None:
    out = shell("doctor", "--recount", "--repair", "--store", "memory:").out
    assert "this store keeps none: it counts when somebody asks" in out


def test_a_store_that_is_not_there_is_not_made_by_counting(shell: Shell) -> None:
    out = shell("doctor", "--recount", "--store", "sqlite:new.db").out
    assert "new.db is not there yet" in out
    assert not (shell.folder / "new.db").exists()


def test_repair_alone_is_a_mistake(shell: Shell) -> None:
    assert shell.refused("doctor", "--repair") == "--repair goes with --recount."


def test_a_terminal_shows_that_it_counts(shell: Shell) -> None:
    seen, status = seen_on_a_terminal(shell, "doctor", "--recount")
    assert status == 0
    assert "counting…" in seen
    assert "counting" not in shell("doctor", "--recount").err
