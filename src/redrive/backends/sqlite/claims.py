"""The claims' table: which letters wait for a retry, and who holds which."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from redrive.backends.sqlite.query import IS_FREE
from redrive.backends.sqlite.rows import filled, marks, pieces, read_all, update_rows, write_rows
from redrive.model.changes import Holding, claimable_at
from redrive.model.instant import instant, micros
from redrive.model.lane import Lane, lane_of
from redrive.model.lease import Due, Lease
from redrive.model.letter import Letter
from redrive.model.stored import restored

_COLUMNS = ("id", "lane", "priority", "at", "is_due", "token", "owner", "until")
_REPLACE = (
    "ON CONFLICT (id) DO UPDATE SET priority = excluded.priority, at = excluded.at, is_due = excluded.is_due,"
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
    SELECT '' AS note, l.data AS data
    FROM level
    CROSS JOIN claims c INDEXED BY claims_due ON c.is_due AND c.lane = ?1 AND c.priority = level.priority AND c.at <= ?2
    CROSS JOIN letters l ON l.id = c.id
    LIMIT ?3
"""
# No ORDER BY: it would sort all that is due. The loops run level by level and along the index, which is the order.

_NEXT = f"""{_LEVELS}
    SELECT level.priority, (SELECT c.at FROM {_WAITING} AND c.priority = level.priority ORDER BY c.at LIMIT 1)
    FROM level WHERE level.priority IS NOT NULL
"""

_LONGEST = """
    SELECT c.at, c.id, l.data FROM claims c INDEXED BY claims_due CROSS JOIN letters l ON l.id = c.id
    WHERE c.is_due AND c.lane = ?1 AND c.priority = ?2 AND c.at <= ?3 LIMIT ?4
"""


def due(connection: sqlite3.Connection, what: Due, moment: int, limit: int) -> list[Letter]:
    """Letters of a lane that may be retried now: highest priority first, then the longest claimable; or just the longest."""
    lane = what.lane.number
    if not what.longest:
        return [restored(data) for _, data in read_all(connection, _DUE, [lane, moment, limit])]
    levels = [level for level, at in connection.execute(_NEXT, [lane]) if at <= moment]
    rows = [row for level in levels for row in connection.execute(_LONGEST, [lane, level, moment, limit])]
    return [restored(data) for _, _, data in sorted(rows)[:limit]]


def next_due(connection: sqlite3.Connection, lanes: Iterable[Lane]) -> datetime | None:
    """When the next letter of these lanes may be claimed as due; None: none waits for a retry."""
    at = min((at for lane in lanes for _, at in connection.execute(_NEXT, [lane.number])), default=None)
    return None if at is None else instant(at)


def next_token(connection: sqlite3.Connection, moment: int) -> int:
    """A token higher than any before: the clock's microseconds, or one more than the last."""
    (token,) = connection.execute("SELECT max(token + 1, ?) FROM fence", [moment]).fetchone()
    connection.execute("UPDATE fence SET token = ?", [token])
    return int(token)


def lease_due(connection: sqlite3.Connection, leases: Iterable[tuple[Sequence[Letter], str, int, int]]) -> None:
    """Lease letters that are due, for each owner with its token until its end: their rows are there already."""
    rows = [(letter.id.bytes, end, token, owner, end) for letters, owner, token, end in leases for letter in letters]
    update_rows(connection, "claims", ("at", "token", "owner", "until"), rows)


def lease_free(connection: sqlite3.Connection, ids: Sequence[UUID], owner: str, token: int, end: int, moment: int) -> None:
    """Lease the open ones of the letters with these ids that nobody holds. Where one waits for a retry, its row is there already."""
    for some in pieces([id.bytes for id in ids]):
        connection.execute(
            f"""
                INSERT INTO claims (id, lane, priority, at, is_due, token, owner, until)
                SELECT l.id, 0, l.priority, ?, 0, ?, ?, ? FROM letters l WHERE l.id IN ({marks(len(some))}) AND {IS_FREE}
                ON CONFLICT (id) DO UPDATE SET
                    at = max(at, excluded.at), token = excluded.token, owner = excluded.owner, until = excluded.until
            """,
            [end, token, owner, end, *filled(some), moment],
        )


def lease(connection: sqlite3.Connection, letters: Iterable[Letter], owner: str, token: int, end: int) -> None:
    """Lease letters, due or not."""
    write_rows(connection, "claims", _COLUMNS, [_row(letter, owner, token, end) for letter in letters], _REPLACE)


def extend(connection: sqlite3.Connection, leases: Sequence[Lease], by: timedelta, now: datetime) -> list[Lease | None]:
    """Move the ends of live leases; None for each that is lost."""
    until = micros(now + by)
    held: dict[bytes, tuple[int, int, int]] = {}
    for keys in pieces([one.id.bytes for one in leases]):
        sql = (
            "SELECT c.id, c.token, l.generation, max(c.until, ?) FROM claims c JOIN letters l ON l.id = c.id"
            f" WHERE c.until > ? AND c.id IN ({marks(len(keys))})"
        )
        held |= {row[0]: row[1:] for row in connection.execute(sql, [until, micros(now), *filled(keys)])}
    answers: list[Lease | None] = []
    for one in leases:
        token, generation, end = held.get(one.id.bytes, (None, 0, 0))
        is_ours = token == one.token and generation == one.generation
        answers.append(replace(one, until=instant(end)) if is_ours else None)
    for keys in pieces([one.id.bytes for one in answers if one is not None]):
        connection.execute(
            f"UPDATE claims SET until = max(until, ?), at = max(at, ?) WHERE id IN ({marks(len(keys))})",
            [until, until, *filled(keys)],
        )
    return answers


def unclaim(connection: sqlite3.Connection, keys: Collection[bytes]) -> None:
    """Nobody holds these letters any more, and none of them is due."""
    for some in pieces(list(keys)):
        connection.execute(f"DELETE FROM claims WHERE id IN ({marks(len(some))})", filled(some))


def schedule(connection: sqlite3.Connection, letters: Iterable[Letter], holdings: Mapping[UUID, Holding] = {}) -> None:
    """Those of the letters that have a next retry come due then; not before the lease that ran out on them had ended."""
    rows = [
        (letter.id.bytes, lane_of(letter).number, letter.priority, micros(at), 1, None, None, None)
        for letter in letters
        if (at := claimable_at(letter, holdings.get(letter.id))) is not None
    ]
    if rows:
        write_rows(connection, "claims", _COLUMNS, rows, _REPLACE)


def _row(letter: Letter, owner: str, token: int, end: int) -> tuple[Any, ...]:
    retry_at = claimable_at(letter)
    at = end if retry_at is None else max(end, micros(retry_at))
    return (letter.id.bytes, lane_of(letter).number, letter.priority, at, int(retry_at is not None), token, owner, end)
