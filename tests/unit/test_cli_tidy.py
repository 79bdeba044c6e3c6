"""`redrive tidy`: all that the store has put off, done and told."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from redrive import EVERYTHING
from redrive.testing import letter
from tests.unit.shell import Shell, filled, seen_on_a_terminal


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_tidy_does_what_was_put_off_and_then_there_is_nothing(shell: Shell) -> None:
    filled(shell)
    assert "ndexed the texts of 3 letters" in shell("tidy").out
    assert shell("tidy").out == "Nothing was put off.\n"
    with shell.store() as dlq:
        assert not dlq.letters.tidy(0)


def test_in_json_it_says_what_was_done_and_what_is_left(shell: Shell) -> None:
    filled(shell)
    answer = shell("tidy", "--json").json
    assert answer["done"]["texts"] == 3
    assert answer["left"] == {"texts": 0, "counts": 0, "space": 0}


def test_space_is_given_back(shell: Shell) -> None:
    with shell.store() as dlq:
        dlq.hold([letter(str(number), body=b"x" * 20_000) for number in range(300)])
        dlq.purge(EVERYTHING)
    before = (shell.folder / "redrive.db").stat().st_size
    assert "gave back" in shell("tidy").out.lower()
    assert (shell.folder / "redrive.db").stat().st_size < before / 2


def test_a_terminal_shows_how_far_it_is(shell: Shell) -> None:
    with shell.store() as dlq:
        dlq.hold([letter(str(number), body=b"some words") for number in range(300)])
    seen, status = seen_on_a_terminal(shell, "tidy")
    assert status == 0
    assert "tidying" in seen
    assert re.search(r"\b(\d+) of \1\b", seen)
    assert "Indexed the texts of 300 letters" in seen


def test_a_store_in_memory_has_nothing_to_tidy(shell: Shell) -> None:
    assert shell("tidy", "--store", "memory:").out == "Nothing was put off.\n"
