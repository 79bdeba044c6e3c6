"""The desk's receipts on SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec import Struct

from redrive.backends.sqlite.database import Database
from redrive.model.instant import instant, micros
from redrive.model.receipt import Receipt, ReceiptState, Which, begun, ended

_COLUMNS = "namespace, handler, key, token, at, state, until, by"
_ONE = "namespace = ? AND handler = ? AND key = ?"
_OVER = "SELECT namespace, handler, key FROM receipts WHERE until <= ? ORDER BY until LIMIT ?"


class _Begin(Struct, frozen=True):
    receipts: Sequence[Receipt]
    lease: timedelta
    again: bool
    now: datetime


class _End(Struct, frozen=True):
    receipts: Sequence[Receipt]
    done: bool
    keep: timedelta | None
    now: datetime


class SqliteReceipts:
    """As durable as the letters; only one writes at a time, so that each verb is one step."""

    _database: Database

    async def begin(
        self, receipts: Sequence[Receipt], lease: timedelta, *, again: bool = False, now: datetime | None = None
    ) -> list[Receipt]:
        return await self._database.write(_begin, _Begin(receipts, lease, again, self._database.now(now)))

    async def end(
        self, receipts: Sequence[Receipt], *, done: bool, keep: timedelta | None = None, now: datetime | None = None
    ) -> list[bool]:
        return await self._database.write(_end, _End(receipts, done, keep, self._database.now(now)))

    async def receipts(self, which: Which, *, limit: int = 100) -> list[Receipt]:
        where, values = _chosen(which)
        sql = f"SELECT {_COLUMNS} FROM receipts WHERE {where} ORDER BY at DESC, handler DESC, key DESC LIMIT ?"
        rows = await self._database.read(lambda connection: connection.execute(sql, [*values, limit]).fetchall())
        return list(map(_restored, rows))

    async def forget(self, which: Which, *, limit: int = 1000) -> int:
        return await self._database.write(_forget, (which, limit))

    async def expire(self, *, limit: int = 1000, now: datetime | None = None) -> int:
        moment = micros(self._database.now(now))
        # Mostly there is nothing to do, and whoever writes meanwhile need not be waited for to see that.
        is_due = await self._database.read(lambda connection: connection.execute(_OVER, [moment, 1]).fetchone())
        return await self._database.write(_expire, (limit, moment)) if is_due and limit else 0


def _begin(connection: sqlite3.Connection, requests: list[_Begin]) -> list[list[Receipt]]:
    answers: list[list[Receipt]] = []
    for request in requests:
        standing = []
        for one in request.receipts:
            known = _known(connection, one)
            after = begun(known, one, request.lease, again=request.again, now=request.now)
            if after != known:
                _write(connection, after)
            standing.append(after)
        answers.append(standing)
    return answers


def _end(connection: sqlite3.Connection, requests: list[_End]) -> list[list[bool]]:
    answers: list[list[bool]] = []
    for request in requests:
        theirs = []
        for one in request.receipts:
            after, is_theirs = ended(_known(connection, one), one, done=request.done, keep=request.keep, now=request.now)
            if is_theirs and after is None:
                connection.execute(f"DELETE FROM receipts WHERE {_ONE}", one.id)
            elif is_theirs and after is not None:
                _write(connection, after)
            theirs.append(is_theirs)
        answers.append(theirs)
    return answers


def _forget(connection: sqlite3.Connection, requests: list[tuple[Which, int]]) -> list[int]:
    answers = []
    for which, limit in requests:
        where, values = _chosen(which)
        some = f"SELECT namespace, handler, key FROM receipts WHERE {where} LIMIT ?"
        sql = f"DELETE FROM receipts WHERE (namespace, handler, key) IN ({some})"
        answers.append(connection.execute(sql, [*values, limit]).rowcount)
    return answers


def _expire(connection: sqlite3.Connection, requests: list[tuple[int, int]]) -> list[int]:
    answers = []
    for limit, moment in requests:
        rows = connection.execute(_OVER, [moment, limit]).fetchall()
        connection.executemany(f"UPDATE receipts SET state = 'unknown', until = NULL WHERE {_ONE} AND state = 'begun'", rows)
        connection.executemany(f"DELETE FROM receipts WHERE {_ONE} AND state = 'done'", rows)
        answers.append(len(rows))
    return answers


def _known(connection: sqlite3.Connection, receipt: Receipt) -> Receipt | None:
    row = connection.execute(f"SELECT {_COLUMNS} FROM receipts WHERE {_ONE}", receipt.id).fetchone()
    return _restored(row) if row else None


def _write(connection: sqlite3.Connection, receipt: Receipt) -> None:
    until = None if receipt.until is None else micros(receipt.until)
    row = (*receipt.id, receipt.token.bytes, micros(receipt.at), receipt.state.value, until, receipt.by)
    connection.execute(f"INSERT OR REPLACE INTO receipts ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)


def _restored(row: tuple[Any, ...]) -> Receipt:
    namespace, handler, key, token, at, state, until, by = row
    return Receipt(
        namespace=namespace,
        handler=handler,
        key=key,
        token=UUID(bytes=token),
        at=instant(at),
        state=ReceiptState(state),
        until=None if until is None else instant(until),
        by=by,
    )


def _chosen(which: Which) -> tuple[str, list[Any]]:
    """The condition for a choice, and its values."""
    parts: list[str] = ["namespace = ?"]
    values: list[Any] = [which.namespace]
    for column, value in (("handler = ?", which.handler), ("key = ?", which.key)):
        if value is not None:
            parts.append(column)
            values.append(value)
    if which.before is not None:
        parts.append("at < ?")
        values.append(micros(which.before))
    if which.states is not None:
        # Spelt out, so that SQLite sees that the index of those that are unknown will do.
        parts.append(f"state IN ({', '.join(sorted(repr(state.value) for state in which.states))})")
    return " AND ".join(parts), values
