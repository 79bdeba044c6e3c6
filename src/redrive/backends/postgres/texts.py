"""What is put off: indexing bodies and tracebacks, and summing up changes of counts."""

from __future__ import annotations

from redrive.backends.postgres.database import Database
from redrive.backends.postgres.rows import arrays
from redrive.backends.postgres.statements import INDEXING
from redrive.backends.postgres.terms import terms
from redrive.model.census import Backlog
from redrive.model.stored import restored
from redrive.model.texts import body_words, traceback_words

_COUNTED = 5000
"""Fewer than so many that wait are counted. Of more PostgreSQL itself tells, and late: see `unread_count`."""
_UNTOLD = 2500
"""So many may have been indexed of which it has not told yet."""


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
        self._told = self._done = 0
        """How many wait, as PostgreSQL told the last time, and how many were indexed since it told so."""
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
        self._done += most

    async def left(self) -> Backlog:
        """What is still to be done. Whoever goes on until nothing is left sees that it gets less, however late PostgreSQL tells."""
        ((texts, counts),) = await self._database.read(self._left)
        if texts != self._told or texts < _COUNTED:
            self._told, self._done = texts, 0
        texts -= self._done % _UNTOLD
        return Backlog(texts=texts, counts=counts)
