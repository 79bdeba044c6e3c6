"""The desk's receipts on PostgreSQL: each verb is one statement, so that of many who ask at once one gets the work."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg

from redrive.backends.postgres.database import CLOCK, Database
from redrive.backends.postgres.rows import arrays, plain, restored_text
from redrive.model.instant import instant, micros
from redrive.model.receipt import Receipt, ReceiptState, Which

_COLUMNS = "namespace, handler, key, token, at, state, until, by"
_MICROSECOND = timedelta(microseconds=1)

_IS_OVER = "r.until <= excluded.at"
_IS_LAPSED = f"r.state = 'begun' AND {_IS_OVER}"
_IS_FREE = f"""
    (r.state = 'done' AND {_IS_OVER})
    OR ($7 AND r.token <> excluded.token AND (r.state = 'unknown' OR ({_IS_LAPSED})))
"""
"""May whoever asks begin, though there is a receipt? With `again`, also what is unknown."""

_BEGIN = f"""
    INSERT INTO {{schema}}.receipts AS r ({_COLUMNS})
    SELECT a.namespace, a.handler, a.key, a.token, n.now, 'begun', n.now + $6, a.by
    FROM unnest($1::text[], $2::text[], $3::text[], $4::uuid[], $5::text[]) AS a (namespace, handler, key, token, by),
        (SELECT coalesce($8::bigint, {CLOCK}) AS now) n
    ON CONFLICT (namespace, handler, key) DO UPDATE SET
        token = CASE WHEN {_IS_FREE} THEN excluded.token ELSE r.token END,
        by = CASE WHEN {_IS_FREE} THEN excluded.by ELSE r.by END,
        at = CASE WHEN {_IS_FREE} THEN excluded.at ELSE r.at END,
        until = CASE WHEN {_IS_FREE} THEN excluded.until WHEN {_IS_LAPSED} THEN NULL ELSE r.until END,
        state = CASE WHEN {_IS_FREE} THEN 'begun' WHEN {_IS_LAPSED} THEN 'unknown' ELSE r.state END
    RETURNING {_COLUMNS}
"""
# Where there is one already the row is written once more, even as it was: only so does it come back.

_THEIRS = """
    FROM unnest($1::text[], $2::text[], $3::text[], $4::uuid[]) AS a (namespace, handler, key, token)
    WHERE (r.namespace, r.handler, r.key, r.token) = (a.namespace, a.handler, a.key, a.token)
"""
_DONE = f"""
    UPDATE {{schema}}.receipts r SET state = 'done', until = coalesce($6::bigint, {CLOCK}) + $5::bigint {_THEIRS}
    RETURNING r.namespace, r.handler, r.key, r.token
"""
_FAILED = f"""
    DELETE FROM {{schema}}.receipts r USING {_THEIRS.strip().removeprefix("FROM")} AND r.state <> 'done'
    RETURNING r.namespace, r.handler, r.key, r.token
"""
_EXPIRE = f"""
    WITH over AS (
        SELECT namespace, handler, key, state FROM {{schema}}.receipts WHERE until <= coalesce($1::bigint, {CLOCK})
        ORDER BY until LIMIT $2 FOR UPDATE SKIP LOCKED
    ), lapsed AS (
        UPDATE {{schema}}.receipts r SET state = 'unknown', until = NULL FROM over o
        WHERE (r.namespace, r.handler, r.key) = (o.namespace, o.handler, o.key) AND o.state = 'begun'
    ), gone AS (
        DELETE FROM {{schema}}.receipts r USING over o
        WHERE (r.namespace, r.handler, r.key) = (o.namespace, o.handler, o.key) AND o.state = 'done'
    )
    SELECT count(*) FROM over
"""


class PostgresReceipts:
    """As durable as the letters."""

    _database: Database
    _schema: str

    async def begin(
        self, receipts: Sequence[Receipt], lease: timedelta, *, again: bool = False, now: datetime | None = None
    ) -> list[Receipt]:
        answers: dict[int, Receipt] = {}
        left = dict(enumerate(receipts))
        while left:
            # A statement changes a row but once, so that the same delivery asked for twice takes two of them.
            some = {one.id: (number, one) for number, one in reversed(left.items())}
            rows = sorted((*map(plain, one.id), one.token, plain(one.by)) for _, one in some.values())
            standing = await self._database.write(
                _BEGIN.format(schema=self._schema), *arrays(rows, 5), lease // _MICROSECOND, again, _given(now)
            )
            found = {one.id: one for one in map(_restored, standing)}
            for id, (number, _) in some.items():
                answers[number] = found[id]
                del left[number]
        return [answers[number] for number in range(len(receipts))]

    async def end(
        self, receipts: Sequence[Receipt], *, done: bool, keep: timedelta | None = None, now: datetime | None = None
    ) -> list[bool]:
        if not receipts:
            return []
        theirs = arrays(sorted((*map(plain, one.id), one.token) for one in receipts), 4)
        if done:
            stays = None if keep is None else keep // _MICROSECOND
            rows = await self._database.write(_DONE.format(schema=self._schema), *theirs, stays, _given(now))
        else:
            rows = await self._database.write(_FAILED.format(schema=self._schema), *theirs)
        ended = {(*map(restored_text, id), token.int) for *id, token in rows}
        return [(*one.id, one.token.int) in ended for one in receipts]

    async def receipts(self, which: Which, *, limit: int = 100) -> list[Receipt]:
        where, values = _chosen(which)
        order = f"ORDER BY at DESC, handler DESC, key DESC LIMIT ${len(values) + 1}"
        sql = f"SELECT {_COLUMNS} FROM {self._schema}.receipts WHERE {where} {order}"
        return [_restored(row) for row in await self._database.read(sql, *values, limit)]

    async def forget(self, which: Which, *, limit: int = 1000) -> int:
        where, values = _chosen(which)
        some = f"SELECT namespace, handler, key FROM {self._schema}.receipts WHERE {where} LIMIT ${len(values) + 1} FOR UPDATE"
        sql = f"DELETE FROM {self._schema}.receipts WHERE (namespace, handler, key) IN ({some}) RETURNING 1"
        return len(await self._database.write(sql, *values, limit))

    async def expire(self, *, limit: int = 1000, now: datetime | None = None) -> int:
        ((count,),) = await self._database.write(_EXPIRE.format(schema=self._schema), _given(now), limit)
        return int(count)


def _given(now: datetime | None) -> int | None:
    return None if now is None else micros(now)


def _restored(row: asyncpg.Record) -> Receipt:
    namespace, handler, key, token, at, state, until, by = row
    return Receipt(
        namespace=restored_text(namespace),
        handler=restored_text(handler),
        key=restored_text(key),
        token=UUID(int=token.int),
        at=instant(at),
        state=ReceiptState(state),
        until=None if until is None else instant(until),
        by=restored_text(by),
    )


def _chosen(which: Which) -> tuple[str, list[Any]]:
    """The condition for a choice, and its values."""
    parts: list[str] = ["namespace = $1"]
    values: list[Any] = [plain(which.namespace)]
    for column, value in (("handler", which.handler), ("key", which.key)):
        if value is not None:
            values.append(plain(value))
            parts.append(f"{column} = ${len(values)}")
    if which.before is not None:
        values.append(micros(which.before))
        parts.append(f"at < ${len(values)}")
    if which.states is not None:
        listed = ", ".join(sorted(repr(state.value) for state in which.states)) or "NULL"
        # Spelt out, so that the planner sees that the index of those that are unknown will do.
        parts.append(f"state IN ({listed})")
    return " AND ".join(parts), values
