"""The claims' table: which letters wait for a retry, and who holds which."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from redrive.backends.sqlite.query import DATA
from redrive.backends.sqlite.rows import Numbered, filled, listed, marks, pieces, read_all, update_rows, write_rows
from redrive.model.changes import Holding, claimable_at
from redrive.model.instant import instant, micros
from redrive.model.lane import Lane, lane_of
from redrive.model.lease import Due, Lease
from redrive.model.letter import Letter
from redrive.model.stored import restored

_COLUMNS = ("seq", "id", "lane", "priority", "at", "is_due", "token", "owner", "until")
_REPLACE = (
    "ON CONFLICT (seq) DO UPDATE SET priority = excluded.priority, at = excluded.at, is_due = excluded.is_due,"
    " token = excluded.token, owner = excluded.owner, until = excluded.until"
)

_WAITING = "claims c INDEXED BY claims_due WHERE c.is_due AND c.lane = ?1"

_LEVELS = f"""
    WITH RECURSIVE level (priority) AS (
        SELECT * FROM (SELECT c.priority FROM {_WAITING} ORDER BY c.priority DESC LIMIT 1)
        UNION ALL
        SELECT (SELECT c.priority FROM {_WAITING} AND c.priority < level.priority ORDER BY c.priority DESC LIMIT 1)
        FROM level WHERE level.priority IS NOT NULL
    )
"""
"""The priorities that there are in a lane, the first parameter, without looking at more than one row of each."""

_DUE = f"""{_LEVELS}
    SELECT l.seq AS note, {DATA} AS data
    FROM level
    CROSS JOIN claims c INDEXED BY claims_due ON c.is_due AND c.lane = ?1 AND c.priority = level.priority AND c.at <= ?2
    CROSS JOIN letters l ON l.seq = c.seq
    LIMIT ?3
"""
# No ORDER BY: it would sort all that is due. The loops run level by level and along the index, which is the order.

_NEXT = f"""{_LEVELS}
    SELECT level.priority, (SELECT c.at FROM {_WAITING} AND c.priority = level.priority ORDER BY c.at LIMIT 1)
    FROM level WHERE level.priority IS NOT NULL
"""

_LONGEST = f"""
    SELECT c.at, c.id, c.seq, {DATA} FROM claims c INDEXED BY claims_due CROSS JOIN letters l ON l.seq = c.seq
    WHERE c.is_due AND c.lane = ?1 AND c.priority = ?2 AND c.at <= ?3 LIMIT ?4
"""


def due(connection: sqlite3.Connection, what: Due, moment: int, limit: int) -> list[Numbered]:
    """Letters of a lane that may be retried now: highest priority first, then the longest claimable; or just the longest."""
    lane = what.lane.number
    if not what.longest:
        return [Numbered(int(seq), restored(data)) for seq, data in read_all(connection, _DUE, [lane, moment, limit])]
    levels = [level for level, at in connection.execute(_NEXT, [lane]) if at <= moment]
    rows = [row for level in levels for row in connection.execute(_LONGEST, [lane, level, moment, limit])]
    return [Numbered(seq, restored(data)) for _, _, seq, data in sorted(rows)[:limit]]


def next_due(connection: sqlite3.Connection, lanes: Iterable[Lane]) -> datetime | None:
    """When the next letter of these lanes may be claimed as due; None: none waits for a retry."""
    at = min((at for lane in lanes for _, at in connection.execute(_NEXT, [lane.number])), default=None)
    return None if at is None else instant(at)


def next_token(connection: sqlite3.Connection, moment: int) -> int:
    """A token higher than any before: the clock's microseconds, or one more than the last."""
    (token,) = connection.execute("UPDATE fence SET token = max(token + 1, ?) RETURNING token", [moment]).fetchone()
    return int(token)


def lease_due(connection: sqlite3.Connection, leases: Iterable[tuple[Sequence[Numbered], str, int, int]]) -> None:
    """Lease letters that are due, for each owner with its token until its end: their rows are there already."""
    rows = [(letter.seq, end, token, owner, end) for letters, owner, token, end in leases for letter in letters]
    update_rows(connection, "claims", ("at", "token", "owner", "until"), rows)


def lease_free(connection: sqlite3.Connection, numbers: Sequence[int], owner: str, token: int, end: int) -> None:
    """Lease open letters that nobody holds. Where one waits for a retry, its row is there already."""
    connection.execute(
        """
            INSERT INTO claims (seq, lane, priority, at, is_due, token, owner, until)
            SELECT value, 0, 0, ?, 0, ?, ?, ? FROM json_each(?) WHERE true
            ON CONFLICT (seq) DO UPDATE SET
                at = max(at, excluded.at), token = excluded.token, owner = excluded.owner, until = excluded.until
        """,
        [end, token, owner, end, listed(numbers)],
    )


def lease(connection: sqlite3.Connection, letters: Iterable[Numbered], owner: str, token: int, end: int) -> None:
    """Lease letters, due or not."""
    write_rows(connection, "claims", _COLUMNS, [_row(*one, owner, token, end) for one in letters], _REPLACE)


def extend(connection: sqlite3.Connection, leases: Sequence[Lease], by: timedelta, now: datetime) -> list[Lease | None]:
    """Move the ends of live leases; None for each that is lost."""
    until = micros(now + by)
    held: dict[bytes, tuple[int, int, int, int]] = {}
    for keys in pieces([one.id.bytes for one in leases]):
        sql = (
            "SELECT l.id, l.seq, c.token, l.generation, max(c.until, ?) FROM letters l CROSS JOIN claims c ON c.seq = l.seq"
            f" WHERE c.until > ? AND l.id IN ({marks(len(keys))})"
        )
        held |= {row[0]: row[1:] for row in connection.execute(sql, [until, micros(now), *filled(keys)])}
    answers: list[Lease | None] = []
    numbers: list[int] = []
    for one in leases:
        seq, token, generation, end = held.get(one.id.bytes, (0, None, 0, 0))
        is_ours = token == one.token and generation == one.generation
        answers.append(replace(one, until=instant(end)) if is_ours else None)
        if is_ours:
            numbers.append(seq)
    sql = "UPDATE claims SET until = max(until, ?), at = max(at, ?) WHERE seq IN (SELECT value FROM json_each(?))"
    connection.execute(sql, [until, until, listed(numbers)])
    return answers


def unclaim(connection: sqlite3.Connection, numbers: Collection[int]) -> None:
    """Nobody holds these letters any more, and none of them is due."""
    if numbers:
        connection.execute("DELETE FROM claims WHERE seq IN (SELECT value FROM json_each(?))", [listed(numbers)])


def schedule(connection: sqlite3.Connection, letters: Iterable[Numbered], holdings: Mapping[UUID, Holding] = {}) -> None:
    """Those of the letters that have a next retry come due then; not before the lease that ran out on them had ended, which is kept."""
    rows = []
    for seq, letter in letters:
        held = holdings.get(letter.id, Holding(letter))
        if (at := claimable_at(letter, held)) is not None:
            until = None if held.until is None else micros(held.until)
            rows.append((seq, letter.id.bytes, lane_of(letter).number, letter.priority, micros(at), 1, held.token, None, until))
    if rows:
        write_rows(connection, "claims", _COLUMNS, rows, _REPLACE)


def _row(seq: int, letter: Letter, owner: str, token: int, end: int) -> tuple[Any, ...]:
    retry_at = claimable_at(letter)
    at = end if retry_at is None else max(end, micros(retry_at))
    return (seq, letter.id.bytes, lane_of(letter).number, letter.priority, at, int(retry_at is not None), token, owner, end)
