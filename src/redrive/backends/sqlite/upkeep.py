"""What is put off: texts are indexed, and space that was freed is given back, a little at a time."""

from __future__ import annotations

import sqlite3

from redrive.backends.sqlite import counts, texts
from redrive.model.census import Backlog

_PAGES = 200
"""Pages that are given back at a time. Each may have to be moved, so that few are."""
_SPARE = 512
"""Free pages that are kept for the next letters."""


def backlog(connection: sqlite3.Connection) -> Backlog:
    """What is left to do."""
    (size,) = connection.execute("PRAGMA page_size").fetchone()
    space = (_spare(connection) + texts.left_over(connection)) * size
    return Backlog(texts=texts.waiting(connection), counts=counts.waiting(connection), space=space)


def tidied(connection: sqlite3.Connection, requests: list[int]) -> list[Backlog]:
    """Do some of it, within a transaction that others may share."""
    for most in requests:
        texts.renew(connection)
        texts.index(connection, most)
        counts.fold(connection)
        if texts.left_over(connection):
            texts.clear(connection, _PAGES)
        else:
            _give_back(connection, min(_PAGES, _spare(connection)))
    return [backlog(connection)] * len(requests)


def _spare(connection: sqlite3.Connection) -> int:
    """Free pages that can be given back."""
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    return max(0, int(free) - _SPARE)


def _give_back(connection: sqlite3.Connection, pages: int) -> None:
    # The statement gives back a page a step, and Python takes one step of what has no columns, whatever number it is told.
    for _ in range(pages):
        connection.execute("PRAGMA incremental_vacuum(1)")
