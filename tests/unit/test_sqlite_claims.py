"""What a claim costs on SQLite, in steps of its engine: the same however much is due."""

from __future__ import annotations

import sqlite3
from datetime import timedelta

import pytest

from redrive.backends.sqlite import claims
from redrive.model.instant import micros
from redrive.model.lease import Due
from redrive.testing import START, letter
from redrive.testing.kit.samples import LANE
from tests.unit.sqlite_use import filled, steps

FEW, MANY = 50, 5000


def waiting(count: int) -> sqlite3.Connection:
    """So many letters are due on three levels, and as many in another lane."""
    return filled(
        [
            letter(str(number), source=source, priority=number % 3, due=START - timedelta(seconds=number))
            for number in range(count)
            for source in ("orders", "bills")
        ]
    )


@pytest.mark.parametrize("longest", [False, True], ids=["by priority", "the longest due"])
def test_a_claim_costs_the_same_however_much_is_due(longest: bool) -> None:
    def claim(connection: sqlite3.Connection) -> None:
        assert len(claims.due(connection, Due(LANE, longest=longest), micros(START), 10)) == 10

    assert steps(waiting(MANY), claim) <= 1.5 * steps(waiting(FEW), claim)


def test_to_know_when_the_next_is_due_costs_the_same_however_many_wait() -> None:
    def ask(connection: sqlite3.Connection) -> None:
        assert claims.next_due(connection, [LANE]) is not None

    assert steps(waiting(MANY), ask) <= 1.5 * steps(waiting(FEW), ask)
