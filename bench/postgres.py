"""PostgreSQL: put, and claim with settle, in batches of one and of a hundred, and puts of many at once, beside the raw driver.

The raw side uses the same driver, schema and durability with statements written by hand: one round trip a batch, values
encoded in advance, nothing decoded, checked or answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import count
from typing import Any

import asyncpg

from bench import remote
from bench.harness import Effort, Row, Watch
from bench.remote import LEASE, Verb
from bench.samples import LANE
from dev.engines.registry import ENGINES
from redrive.backends.postgres import opened
from redrive.backends.postgres.rows import COLUMNS, arrays, row
from redrive.model.instant import micros
from redrive.model.letter import Letter
from redrive.model.settlement import Completed, settled
from redrive.model.stored import stored

_TYPES = {"id": "uuid", "key": "bytea", "data": "bytea"} | dict.fromkeys(
    ("generation", "lane", "priority", "attempts", "dead_lettered_at", "updated_at", "next_retry_at", "expires_at"), "bigint"
)
_INSERT = """
    WITH a AS (SELECT * FROM unnest({arrays}) AS a ({columns})), c AS (
        INSERT INTO {schema}.claims (id, lane, priority, at, is_due)
        SELECT id, lane, priority, next_retry_at, true FROM a WHERE next_retry_at IS NOT NULL
    )
    INSERT INTO {schema}.letters ({columns}) SELECT {values} FROM a
"""
_CLAIM = """
    WITH due AS (
        SELECT id FROM {schema}.claims WHERE is_due AND lane = {lane} AND at <= $1
        ORDER BY priority DESC, at LIMIT {batch} FOR UPDATE SKIP LOCKED
    ), taken AS (
        UPDATE {schema}.claims c SET token = nextval('{schema}.fence'), owner = 'raw', until = $2, at = $2
        FROM due WHERE c.id = due.id RETURNING c.id
    )
    SELECT l.id, l.data FROM {schema}.letters l JOIN taken ON taken.id = l.id
"""
_SETTLE = """
    WITH a AS (SELECT * FROM unnest($1::uuid[], $2::bytea[]) AS a (id, data)), written AS (
        UPDATE {schema}.letters l SET status = 'completed', updated_at = $3, next_retry_at = NULL, data = a.data
        FROM a WHERE l.id = a.id
    )
    DELETE FROM {schema}.claims c USING a WHERE c.id = a.id
"""


def rows(effort: Effort) -> Iterator[Row]:
    numbers = count()
    with ENGINES["postgres"].make(durable=True) as server:
        location = server.url.partition(":")[2]

        def fresh() -> str:
            return f"bench{next(numbers)}"

        async def ours(schema: str, letters: Sequence[Letter], work: Verb) -> float:
            store = opened(f"{location}?schema={schema}").letters
            await store.check()
            rate = await work(store, letters)
            await store.close()
            return rate

        async def raw(schema: str, letters: Sequence[Letter], batch: int, *, is_put: bool) -> float:
            store = opened(f"{location}?schema={schema}").letters
            await store.check()
            await store.close()
            connection = await asyncpg.connect(server.url)
            rate = await Raw(connection, schema, letters, batch).rate(is_put=is_put)
            await connection.close()
            return rate

        yield from remote.rows(
            "PostgreSQL",
            effort,
            ours=lambda letters, work: asyncio.run(ours(fresh(), letters, work)),
            raw=lambda letters, batch, is_put: asyncio.run(raw(fresh(), letters, batch, is_put=is_put)),
        )


class Raw:
    """The same work with bare statements on one connection."""

    def __init__(self, connection: Any, schema: str, letters: Sequence[Letter], batch: int) -> None:
        self._connection = connection
        self._batch = batch
        self._batches = [
            arrays([row(letter) for letter in letters[start : start + batch]], len(COLUMNS))
            for start in range(0, len(letters), batch)
        ]
        now = datetime.now(UTC)
        self._ended = {letter.id: stored(settled(letter, Completed(), now)) for letter in letters}
        self._now = micros(now)
        self._insert = _INSERT.format(
            schema=schema,
            columns=", ".join(COLUMNS),
            arrays=", ".join(f"${number}::{_TYPES.get(name, 'text')}[]" for number, name in enumerate(COLUMNS, 1)),
            values=", ".join("tags::jsonb" if name == "tags" else name for name in COLUMNS),
        )
        self._claim = _CLAIM.format(schema=schema, batch=batch, lane=LANE.number)
        self._settle = _SETTLE.format(schema=schema)

    async def rate(self, *, is_put: bool) -> float:
        with Watch() as watch:
            for columns in self._batches:
                await self._connection.execute(self._insert, *columns)
        return watch.rate(len(self._ended)) if is_put else await self.claimed_and_settled()

    async def claimed_and_settled(self) -> float:
        done, until = 0, self._now + int(LEASE.total_seconds() * 1e6)
        with Watch() as watch:
            while found := await self._connection.fetch(self._claim, self._now, until):
                ids = [id for id, _ in found]
                await self._connection.execute(self._settle, ids, [self._ended[id] for id in ids], self._now)
                done += len(ids)
        assert done == len(self._ended), done
        return watch.rate(done)
