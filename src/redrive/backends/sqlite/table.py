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
from redrive.backends.sqlite.query import IS_FREE, IS_LEASED, WHOLE, WITH_CONTENT, as_hex
from redrive.backends.sqlite.rows import Numbered, count_rows, filled, listed, marks, pieces, read_all, update_rows, write_rows
from redrive.model.changes import Holding
from redrive.model.instant import instant, micros
from redrive.model.letter import Letter
from redrive.model.query import last_name
from redrive.model.settlement import Settlement
from redrive.model.status import Status
from redrive.model.stored import content, restored, standing
from redrive.model.texts import message_words

_FIXED = ("seq", "id", "namespace", "source", "source_id")
_CHANGING = (
    "key", "kind", "policy", "status", "generation", "category", "error", "error_name", "fingerprint", "tags", "words", "priority",
    "attempts", "dead_lettered_at", "updated_at", "next_retry_at", "expires_at", "standing",
)  # fmt: skip
_COLUMNS = _FIXED + _CHANGING
_CONTENT = ("seq", "data")

_AS_CLAIMED = """
    SELECT count(*) FROM ({values}) v CROSS JOIN claims c ON c.seq = v.column1 CROSS JOIN letters l ON l.seq = v.column1
    WHERE c.token = v.column2 AND c.until > ? AND l.generation = v.column3
        AND l.attempts = v.column4 AND l.updated_at = v.column5 AND l.status = v.column6
"""

_SETTLED = ("status", "attempts", "updated_at", "next_retry_at", "standing")
"""What the end of a claim changes in a letter's first row while the failure stays the same."""


def insert(connection: sqlite3.Connection, letters: Sequence[Letter]) -> tuple[list[Numbered], dict[UUID, Numbered]]:
    """Write those of the letters that are not there yet; answer with these, and with the others as they are stored.

    Nothing is read when all are new, which is the usual case.
    """
    (last,) = connection.execute("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'letters'").fetchone()
    new = [Numbered(seq, letter) for seq, letter in enumerate(letters, last + 1)]
    contents = [(seq, content(letter)) for seq, letter in new]
    written = write_rows(connection, "letters", _COLUMNS, [_row(*one) for one in new], "ON CONFLICT DO NOTHING")
    known: dict[UUID, Numbered] = {}
    if written < len(letters):
        known = load(connection, [letter.id for letter in letters], "l.seq <= ?", [last])
        contents = [row for row, one in zip(contents, new, strict=True) if one.letter.id not in known]
        new = [one for one in new if one.letter.id not in known]
    write_rows(connection, "contents", _CONTENT, contents, "")
    return new, known


def overwrite(connection: sqlite3.Connection, letters: Sequence[Numbered]) -> None:
    """Write the first rows of letters that are there already."""
    changing = slice(len(_FIXED), None)
    update_rows(connection, "letters", _CHANGING, [(one.seq, *_row(*one)[changing]) for one in letters])


def overwrite_settled(connection: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> None:
    """Write the first rows of letters whose claim ended and whose failure is the same as before: the usual end, and a cheaper one."""
    update_rows(connection, "letters", _SETTLED, rows)


def overwrite_content(connection: sqlite3.Connection, rows: Sequence[tuple[int, bytes]]) -> None:
    """Write the second rows."""
    update_rows(connection, "contents", _CONTENT[1:], rows)


def remove(connection: sqlite3.Connection, numbers: Sequence[int]) -> None:
    for table in ("letters", "contents"):
        connection.execute(f"DELETE FROM {table} WHERE seq IN (SELECT value FROM json_each(?))", [listed(numbers)])


def load(
    connection: sqlite3.Connection, ids: Iterable[UUID], condition: str = "1", parameters: Sequence[Any] = ()
) -> dict[UUID, Numbered]:
    """The letters with these ids, those that meet the condition."""
    found: dict[UUID, Numbered] = {}
    for some in pieces([id.bytes for id in ids]):
        sql = f"SELECT l.seq AS note, {WHOLE} AS data FROM {WITH_CONTENT} WHERE l.id IN ({marks(len(some))}) AND {condition}"
        for seq, data in read_all(connection, sql, [*filled(some), *parameters]):
            letter = restored(data)
            found[letter.id] = Numbered(int(seq), letter)
    return found


def open_ones(connection: sqlite3.Connection, ids: Sequence[UUID], moment: int) -> list[tuple[int, bytes]]:
    """The open ones of the letters with these ids that nobody holds, in their stored form, with the numbers of their rows."""
    found: list[tuple[int, bytes]] = []
    for some in pieces([id.bytes for id in ids]):
        sql = f"SELECT l.seq AS note, {WHOLE} AS data FROM {WITH_CONTENT} WHERE l.id IN ({marks(len(some))}) AND {IS_FREE}"
        found += [(int(seq), data) for seq, data in read_all(connection, sql, [*filled(some), moment])]
    return found


def load_held(connection: sqlite3.Connection, ids: Iterable[UUID]) -> tuple[dict[UUID, Holding], dict[UUID, int]]:
    """The letters with these ids, each with the last lease on it; and the numbers of their rows."""
    held: dict[UUID, Holding] = {}
    numbers: dict[UUID, int] = {}
    for some in pieces([id.bytes for id in ids]):
        sql = (
            f"SELECT l.seq || ' ' || coalesce(c.token, 0) || ' ' || coalesce(c.until, '') AS note, {WHOLE} AS data"
            f" FROM {WITH_CONTENT} LEFT JOIN claims c ON c.seq = l.seq WHERE l.id IN ({marks(len(some))})"
        )
        for note, data in read_all(connection, sql, filled(some)):
            letter = restored(data)
            seq, token, until = note.split(" ")
            held[letter.id] = Holding(letter, int(token), instant(int(until)) if until else None)
            numbers[letter.id] = int(seq)
    return held, numbers


def claimed_row(settlement: Settlement, seq: int, letter: Letter) -> tuple[Any, ...]:
    """What must be so that a claim holds, and its letter is as it was when it was claimed; for `are_as_claimed`."""
    return (
        seq,
        settlement.token,
        settlement.generation,
        letter.attempts,
        micros(letter.updated_at),
        letter.status._value_,
    )


def are_as_claimed(connection: sqlite3.Connection, rows: Sequence[tuple[Any, ...]], now: datetime) -> bool:
    """Is all of it so?"""
    return count_rows(connection, _AS_CLAIMED, rows, [micros(now)]) == len(rows)


def seen(connection: sqlite3.Connection, numbers: str, parameters: Sequence[Any], now: datetime) -> list[Letter]:
    """The letters whose numbers this statement gives, as readers see them: those under a live lease are `retrying`."""
    letters = []
    for leased, data in read_all(connection, _numbered(IS_LEASED, numbers), [micros(now), *parameters]):
        letter = restored(data)
        letters.append(replace(letter, status=Status.RETRYING) if leased == "1" else letter)
    return letters


def oldest(connection: sqlite3.Connection, plan: Plan, moment: int, limit: int, more: str = "") -> list[Numbered]:
    """The oldest letters that the plan finds, that meet the condition `more`, and that nobody holds."""
    numbers = f"""
        SELECT l.seq AS seq FROM {plan.source} WHERE {plan.condition} {more} AND NOT {IS_LEASED}
        ORDER BY {plan.ordered("l.dead_lettered_at", "ASC")} LIMIT ?
    """
    found = read_all(connection, _numbered("l.seq", numbers), [*plan.parameters, moment, limit])
    return [Numbered(int(seq), restored(data)) for seq, data in found]


def _numbered(note: str, numbers: str) -> str:
    """For `read_all`: the letters whose numbers a statement gives as `seq`, in its order. So numbers are sorted, not whole letters."""
    return f"SELECT {note} AS note, {WHOLE} AS data FROM ({numbers}) n CROSS JOIN {WITH_CONTENT} WHERE l.seq = n.seq"


def _row(seq: int, letter: Letter) -> tuple[Any, ...]:
    failure, retry_at, expires_at = letter.failure, letter.retry.next_retry_at, letter.expires_at
    return (
        seq,
        letter.id.bytes,
        letter.namespace,
        letter.source,
        letter.source_id,
        letter.key,
        letter.kind,
        letter.retry.policy,
        letter.status._value_,  # `value` of an enum is slow, and this is done for every letter
        letter.generation,
        failure.category._value_,
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
        standing(letter),
    )


def content_row(seq: int, letter: Letter) -> tuple[int, bytes]:
    """For `overwrite_content`."""
    return seq, content(letter)


def settled_row(seq: int, letter: Letter, updated_at: int) -> tuple[Any, ...]:
    """For `overwrite_settled`."""
    retry_at = letter.retry.next_retry_at
    return (
        seq,
        letter.status._value_,
        letter.attempts,
        updated_at,
        None if retry_at is None else micros(retry_at),
        standing(letter),
    )
