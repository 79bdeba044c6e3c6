"""What a claim costs on SQLite, in steps of its engine: the same however much is due."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from datetime import timedelta

import pytest

from redrive.backends.sqlite import claims, table
from redrive.backends.sqlite.schema import empty
from redrive.model.instant import micros
from redrive.model.lease import Due
from redrive.testing import START, letter
from redrive.testing.kit.samples import LANE

FEW, MANY = 50, 5000


def filled(count: int) -> sqlite3.Connection:
    """So many letters are due on three levels, and as many in another lane."""
    connection = empty()
    letters = [
        letter(str(number), source=source, priority=number % 3, due=START - timedelta(seconds=number))
        for number in range(count)
        for source in ("orders", "bills")
    ]
    table.insert(connection, letters)
    claims.schedule(connection, letters)
    return connection


def steps(connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], object]) -> int:
    taken = 0

    def count() -> int:
        nonlocal taken
        taken += 1
        return 0

    connection.set_progress_handler(count, 1)
    work(connection)
    connection.set_progress_handler(None, 1)
    return taken


@pytest.mark.parametrize("longest", [False, True], ids=["by priority", "the longest due"])
def test_a_claim_costs_the_same_however_much_is_due(longest: bool) -> None:
    def claim(connection: sqlite3.Connection) -> None:
        assert len(claims.due(connection, Due(LANE, longest=longest), micros(START), 10)) == 10

    assert steps(filled(MANY), claim) <= 1.5 * steps(filled(FEW), claim)


def test_to_know_when_the_next_is_due_costs_the_same_however_many_wait() -> None:
    def ask(connection: sqlite3.Connection) -> None:
        assert claims.next_due(connection, [LANE]) is not None

    assert steps(filled(MANY), ask) <= 1.5 * steps(filled(FEW), ask)
