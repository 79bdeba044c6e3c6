"""What is put off: texts are indexed, and space that was freed is given back, a little at a time."""

from __future__ import annotations

import sqlite3

from redrive.backends.sqlite import counts, texts
from redrive.model.census import Backlog

_PAGES = 100
"""Pages that are given back at a time. Each may have to be moved, so that few are."""
_SPARE = 256
"""Free pages that are kept for the next letters."""


def backlog(connection: sqlite3.Connection) -> Backlog:
    """What is left to do."""
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    (size,) = connection.execute("PRAGMA page_size").fetchone()
    return Backlog(texts=texts.waiting(connection), counts=counts.waiting(connection), space=max(0, free - _SPARE) * size)


def tidied(connection: sqlite3.Connection, requests: list[int]) -> list[Backlog]:
    """Do some of it, within a transaction that others may share."""
    for most in requests:
        texts.index(connection, most)
        counts.fold(connection)
        if backlog(connection).space:
            connection.execute(f"PRAGMA incremental_vacuum({_PAGES})").fetchall()
    return [backlog(connection)] * len(requests)
