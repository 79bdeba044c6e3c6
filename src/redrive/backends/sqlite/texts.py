"""Words found by an index: those of messages at once, those of tracebacks and bodies when they have been indexed."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

from redrive.backends.sqlite import counts
from redrive.backends.sqlite.query import matching
from redrive.backends.sqlite.rows import filled, marks, pieces, read_all
from redrive.model.census import Scope
from redrive.model.letter import Letter
from redrive.model.query import And, Not, Or, Query, Text
from redrive.model.stored import restored
from redrive.model.texts import body_words, traceback_words

FEW = 10_000
"""Up to so many letters, it is quicker to sort all that have a phrase than to look for it in one letter after another. At a million
letters a phrase that more of them have is in every hundredth."""
_MERGED_PAGES = 64


def rare(connection: sqlite3.Connection, query: Query) -> frozenset[Text]:
    """Those of the question's phrases that few letters have."""
    return frozenset(text for text in _texts(query) if _is_rare(connection, text))


def _is_rare(connection: sqlite3.Connection, text: Text) -> bool:
    found = matching(text)
    if found is None:
        return True
    sql, parameters = found
    (count,) = connection.execute(f"SELECT count(*) FROM ({sql} LIMIT {FEW + 1})", parameters).fetchone()
    return bool(count <= FEW)


def _texts(query: Query) -> Iterable[Text]:
    match query:
        case Text():
            yield query
        case And(parts=parts) | Or(parts=parts):
            for part in parts:
                yield from _texts(part)
        case Not(part=part):
            yield from _texts(part)


def waiting(connection: sqlite3.Connection) -> int:
    """How many letters are not indexed yet."""
    (done,) = connection.execute("SELECT letters FROM indexed").fetchone()
    return counts.counted(connection, Scope(), 0) - int(done)


def index(connection: sqlite3.Connection, most: int) -> None:
    """Index tracebacks and bodies of some letters: those that have changed, then those that have waited the longest."""
    again = _load(connection, "l.seq IN (SELECT seq FROM unindexed ORDER BY seq LIMIT ?)", [most])
    new = _load(connection, "l.seq > (SELECT seq FROM indexed) ORDER BY l.seq LIMIT ?", [most - len(again)])
    connection.executemany(
        "INSERT INTO letter_texts (rowid, traceback, body) VALUES (?, ?, ?)",
        [(seq, traceback_words(letter), body_words(letter)) for seq, letter in again + new],
    )
    if again:
        connection.execute("DELETE FROM unindexed WHERE seq <= ?", [max(seq for seq, _ in again)])
    last = new[-1][0] if new else 0
    connection.execute("UPDATE indexed SET seq = max(seq, ?), letters = letters + ?", [last, len(again) + len(new)])


def _load(connection: sqlite3.Connection, condition: str, parameters: Sequence[int]) -> list[tuple[int, Letter]]:
    sql = f"SELECT l.seq AS note, l.data AS data FROM letters l WHERE {condition}"
    return [(int(seq), restored(data)) for seq, data in read_all(connection, sql, parameters)]


def forget(connection: sqlite3.Connection, letters: Sequence[Letter]) -> None:
    """Take letters out of the index, which are still stored as they are given here; they wait to be indexed again."""
    by_key = {letter.id.bytes: letter for letter in letters}
    rows: list[tuple[int, bytes]] = []
    for keys in pieces(list(by_key)):
        sql = f"""
            SELECT l.seq, l.id FROM letters l WHERE l.id IN ({marks(len(keys))})
                AND l.seq <= (SELECT seq FROM indexed) AND l.seq NOT IN (SELECT seq FROM unindexed)
        """
        rows += connection.execute(sql, filled(keys)).fetchall()
    connection.executemany(
        "INSERT INTO letter_texts (letter_texts, rowid, traceback, body) VALUES ('delete', ?, ?, ?)",
        [(seq, traceback_words(by_key[key]), body_words(by_key[key])) for seq, key in rows],
    )
    connection.executemany("INSERT INTO unindexed VALUES (?)", [(seq,) for seq, _ in rows])
    if rows:
        connection.execute("UPDATE indexed SET letters = letters - ?", [len(rows)])


def merge(connection: sqlite3.Connection, requests: list[None]) -> list[None]:
    """Merge some of the index's parts: as much as a purge or a step of indexing has added, times the levels there are."""
    connection.execute("INSERT INTO letter_texts (letter_texts, rank) VALUES ('merge', ?)", [_MERGED_PAGES])
    return requests


def lower(connection: sqlite3.Connection) -> None:
    """After letters were removed: a new letter may get the number of one that is gone, and is not indexed for that."""
    connection.execute("UPDATE indexed SET seq = min(seq, coalesce((SELECT max(seq) FROM letters), 0))")
