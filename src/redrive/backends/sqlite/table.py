"""The letters' table: rows in, letters out."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from msgspec import json
from msgspec.structs import replace

from redrive.backends.sqlite.plan import Plan
from redrive.backends.sqlite.query import IS_FREE, IS_LEASED, as_hex
from redrive.backends.sqlite.rows import count_rows, filled, marks, pieces, read_all, update_rows, write_rows
from redrive.model.changes import Holding
from redrive.model.instant import instant, micros
from redrive.model.letter import Letter
from redrive.model.query import last_name
from redrive.model.settlement import Settlement
from redrive.model.status import Status
from redrive.model.stored import restored, stored
from redrive.model.texts import message_words

_FIXED = ("id", "namespace", "source", "source_id")
_CHANGING = (
    "key", "kind", "policy", "status", "generation", "category", "error", "error_name", "fingerprint", "tags", "words", "priority",
    "attempts", "dead_lettered_at", "updated_at", "next_retry_at", "expires_at", "data",
)  # fmt: skip
_COLUMNS = _FIXED + _CHANGING
_REPLACE = f"ON CONFLICT (id) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in _CHANGING)}"

_AS_CLAIMED = """
    SELECT count(*) FROM ({values}) v CROSS JOIN claims c ON c.id = v.column1 CROSS JOIN letters l ON l.id = v.column1
    WHERE c.token = v.column2 AND c.until > ? AND l.generation = v.column3
        AND l.attempts = v.column4 AND l.updated_at = v.column5 AND l.status = v.column6
"""

_SETTLED = ("status", "attempts", "updated_at", "next_retry_at", "data")
"""What the end of a claim changes while the failure stays the same; of the indexes, only the one by status."""


def insert(connection: sqlite3.Connection, letters: Sequence[Letter]) -> dict[UUID, Letter]:
    """Write those of the letters that are not there yet; answer with those that are, as they are stored.

    Nothing is read when all are new, which is the usual case.
    """
    written = write_rows(connection, "letters", _COLUMNS, [_row(letter) for letter in letters], "ON CONFLICT DO NOTHING")
    if written == len(letters):
        return {}
    ids = [letter.id for letter in letters]
    numbers: list[int] = []
    for some in pieces([id.bytes for id in ids]):
        sql = f"SELECT group_concat(l.seq, ' ') FROM letters l WHERE l.id IN ({marks(len(some))})"
        numbers += map(int, (connection.execute(sql, filled(some)).fetchone()[0] or "").split())
    # Numbers only grow, so what was there before has the lowest.
    return load(connection, ids, "l.seq <= ?", [sorted(numbers)[len(letters) - written - 1]])


def overwrite(connection: sqlite3.Connection, letters: Iterable[Letter]) -> None:
    """Write letters that are there already."""
    write_rows(connection, "letters", _COLUMNS, [_row(letter) for letter in letters], _REPLACE)


def overwrite_settled(connection: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> None:
    """Write letters whose claim ended and whose failure is the same as before: the usual end, and a cheaper one."""
    update_rows(connection, "letters", _SETTLED, rows)


def remove(connection: sqlite3.Connection, keys: Sequence[bytes]) -> None:
    for some in pieces(keys):
        connection.execute(f"DELETE FROM letters WHERE id IN ({marks(len(some))})", filled(some))


def load(
    connection: sqlite3.Connection, ids: Iterable[UUID], condition: str = "1", parameters: Sequence[Any] = ()
) -> dict[UUID, Letter]:
    """The letters with these ids, as they are stored, those that meet the condition."""
    found: dict[UUID, Letter] = {}
    for some in pieces([id.bytes for id in ids]):
        sql = f"SELECT '' AS note, l.data AS data FROM letters l WHERE l.id IN ({marks(len(some))}) AND {condition}"
        for _, data in read_all(connection, sql, [*filled(some), *parameters]):
            letter = restored(data)
            found[letter.id] = letter
    return found


def open_ones(connection: sqlite3.Connection, ids: Sequence[UUID], moment: int) -> list[bytes]:
    """The open ones of the letters with these ids that nobody holds, in their stored form."""
    found: list[bytes] = []
    for some in pieces([id.bytes for id in ids]):
        sql = f"SELECT '' AS note, l.data AS data FROM letters l WHERE l.id IN ({marks(len(some))}) AND {IS_FREE}"
        found += [data for _, data in read_all(connection, sql, [*filled(some), moment])]
    return found


def load_held(connection: sqlite3.Connection, ids: Iterable[UUID]) -> dict[UUID, Holding]:
    """The letters with these ids, each with the last lease on it."""
    held: dict[UUID, Holding] = {}
    for some in pieces([id.bytes for id in ids]):
        sql = (
            "SELECT coalesce(c.token, 0) || ' ' || coalesce(c.until, '') AS note, l.data AS data"
            f" FROM letters l LEFT JOIN claims c ON c.id = l.id WHERE l.id IN ({marks(len(some))})"
        )
        for note, data in read_all(connection, sql, filled(some)):
            letter = restored(data)
            token, _, until = note.partition(" ")
            held[letter.id] = Holding(letter, int(token), instant(int(until)) if until else None)
    return held


def claimed_row(settlement: Settlement, letter: Letter) -> tuple[Any, ...]:
    """What must be so that a claim holds, and its letter is as it was when it was claimed; for `are_as_claimed`."""
    return (
        letter.id.bytes,
        settlement.token,
        settlement.generation,
        letter.attempts,
        micros(letter.updated_at),
        letter.status.value,
    )


def are_as_claimed(connection: sqlite3.Connection, rows: Sequence[tuple[Any, ...]], now: datetime) -> bool:
    """Is all of it so?"""
    return count_rows(connection, _AS_CLAIMED, rows, [micros(now)]) == len(rows)


def seen(
    connection: sqlite3.Connection, condition: str, parameters: Sequence[Any], now: datetime, tail: str = ""
) -> list[Letter]:
    """Letters as readers see them: those under a live lease are `retrying`."""
    sql = f"SELECT {IS_LEASED} AS note, l.data AS data FROM letters l WHERE {condition} {tail}"
    letters = []
    for leased, data in read_all(connection, sql, [micros(now), *parameters]):
        letter = restored(data)
        letters.append(replace(letter, status=Status.RETRYING) if leased == "1" else letter)
    return letters


def oldest(connection: sqlite3.Connection, plan: Plan, moment: int, limit: int, more: str = "") -> list[Letter]:
    """The oldest letters that the plan finds, that meet the condition `more`, and that nobody holds."""
    condition, parameters, is_few = plan
    sql = f"""
        SELECT '' AS note, l.data AS data FROM letters l WHERE l.seq IN (
            SELECT l.seq FROM letters l WHERE {condition} {more} AND NOT {IS_LEASED}
            ORDER BY {"+" if is_few else ""}l.dead_lettered_at, l.id LIMIT ?
        ) ORDER BY +l.dead_lettered_at, l.id
    """
    return [restored(data) for _, data in read_all(connection, sql, [*parameters, moment, limit])]


def _row(letter: Letter) -> tuple[Any, ...]:
    failure, retry_at, expires_at = letter.failure, letter.retry.next_retry_at, letter.expires_at
    return (
        letter.id.bytes,
        letter.namespace,
        letter.source,
        letter.source_id,
        letter.key,
        letter.kind,
        letter.retry.policy,
        letter.status.value,
        letter.generation,
        failure.category.value,
        failure.type,
        last_name(failure.type),
        failure.fingerprint,
        json.encode([as_hex(tag) for tag in letter.tags]).decode() if letter.tags else None,
        message_words(letter),
        letter.priority,
        letter.attempts,
        micros(letter.dead_lettered_at),
        micros(letter.updated_at),
        None if retry_at is None else micros(retry_at),
        None if expires_at is None else micros(expires_at),
        stored(letter),
    )


def settled_row(letter: Letter) -> tuple[Any, ...]:
    """For `overwrite_settled`."""
    retry_at = letter.retry.next_retry_at
    return (
        letter.id.bytes,
        letter.status.value,
        letter.attempts,
        micros(letter.updated_at),
        None if retry_at is None else micros(retry_at),
        stored(letter),
    )
