"""What is put off: indexing bodies and tracebacks, and summing up changes of counts."""

from __future__ import annotations

from redrive.backends.postgres.database import Database
from redrive.backends.postgres.rows import arrays
from redrive.backends.postgres.statements import INDEXING
from redrive.backends.postgres.terms import terms
from redrive.model.census import Backlog
from redrive.model.stored import restored
from redrive.model.texts import body_words, traceback_words


class Texts:
    """Indexes texts, one process at a time: so what is written last is what was read last."""

    def __init__(self, database: Database) -> None:
        self._database = database
        schema = database.schema
        self._is_free = f"SELECT pg_try_advisory_xact_lock({INDEXING}, hashtext('{schema}'))"
        self._take = f"""
            WITH taken AS (
                DELETE FROM {schema}.unread WHERE ctid = ANY (ARRAY(SELECT ctid FROM {schema}.unread LIMIT $1)) RETURNING id
            )
            SELECT l.data FROM (SELECT DISTINCT id FROM taken) t {database.tables.joined("t")}
        """
        self._write = f"""
            INSERT INTO {schema}.texts (id, traceback, body) SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[])
            ON CONFLICT (id) DO UPDATE SET traceback = excluded.traceback, body = excluded.body
        """
        self._left = f"SELECT {schema}.unread_count(), (SELECT count(*) FROM {schema}.noted)"

    async def index(self, most: int) -> None:
        """Index about so many letters, unless another is at it."""
        async with self._database.transaction() as connection:
            if not await connection.fetchval(self._is_free):
                return
            letters = [restored(data) for (data,) in await connection.fetch(self._take, most)]
            rows = sorted((one.id, terms(traceback_words(one)), terms(body_words(one))) for one in letters)
            if rows:
                await connection.execute(self._write, *arrays(rows, 3))

    async def left(self) -> Backlog:
        """What is still to be done."""
        ((texts, counts),) = await self._database.read(self._left)
        return Backlog(texts=texts, counts=counts)
