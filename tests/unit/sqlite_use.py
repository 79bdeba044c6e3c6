"""SQLite stores to look into: filled by hand, and how many steps of its engine something takes."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence

from redrive.backends.sqlite import changing
from redrive.backends.sqlite.schema import empty
from redrive.model.letter import Letter
from redrive.testing import START


def filled(letters: Sequence[Letter]) -> sqlite3.Connection:
    """A store in memory with these letters."""
    connection = empty()
    changing.put(connection, [(letters, START)])
    return connection


def steps(connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], object]) -> int:
    """How many instructions of SQLite's machine the work takes."""
    taken = 0

    def count() -> int:
        nonlocal taken
        taken += 1
        return 0

    connection.set_progress_handler(count, 1)
    work(connection)
    connection.set_progress_handler(None, 1)
    return taken
