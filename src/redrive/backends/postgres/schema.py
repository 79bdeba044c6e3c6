"""Install and upgrade of the schema: numbered SQL files, each applied once, all in one transaction under a lock.

Letters and desk come with the schema itself; what queues need comes when the first queue is asked for.
"""

from __future__ import annotations

from importlib import resources

import asyncpg

from redrive.backends.postgres.tables import Tables
from redrive.model.errors import BadSettings, SchemaTooNew, StoreCorrupt

_LOCK = 0x72647276
"""Which of the server's advisory locks is ours ("rdrv"); it ends with the transaction, so a pooler may stand in between."""


def _texts(folder: str) -> list[tuple[int, str]]:
    """Number and text of every migration in a folder, in order."""
    found = (resources.files(__package__) / folder).iterdir()
    files = sorted((file for file in found if file.name.endswith(".sql")), key=lambda file: file.name)
    return [(int(file.name.split("_")[0]), file.read_text()) for file in files]


def migrations(*, is_parted: bool = False) -> list[tuple[int, str]]:
    """Those of letters and desk."""
    texts = _texts("migrations")
    if is_parted:
        number, text = texts[0]
        texts[0] = number, text + (resources.files(__package__) / "parted.sql").read_text()
    return texts


async def ensure_current(connection: asyncpg.Connection, tables: Tables, name: str) -> None:
    """Bring the schema to this release's, or refuse one that a newer redrive wrote, that was made otherwise, or that is
    another program's.
    """
    schema = tables.schema
    known = migrations(is_parted=tables.is_parted)
    if await version(connection, schema) == known[-1][0]:
        await _ensure_same(connection, tables, name)
        return
    async with connection.transaction():
        await connection.execute(f"SELECT pg_advisory_xact_lock({_LOCK}, hashtext('{schema}'))")
        found = await version(connection, schema)
        ensure_known(found, schema, name)
        if await connection.fetchval("SHOW server_encoding") != "UTF8":
            raise StoreCorrupt(f"the database at {name} is not encoded in UTF-8; create one that is")
        if found == 0:
            if await _is_there(connection, schema, "letters"):
                raise StoreCorrupt(
                    f"the schema '{schema}' at {name} has another program's table 'letters'; choose another schema"
                )
            await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
            await connection.execute(
                f"CREATE TABLE {schema}.redrive (is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only), version int NOT NULL,"
                " is_parted boolean NOT NULL, queues int NOT NULL DEFAULT 0)"
            )
            await connection.execute(f"INSERT INTO {schema}.redrive (version, is_parted) VALUES (0, {tables.is_parted})")
        await _ensure_same(connection, tables, name)
        await _apply(connection, tables, known, found)
        await connection.execute(f"UPDATE {schema}.redrive SET version = {known[-1][0]}")


async def ensure_queues(connection: asyncpg.Connection, tables: Tables, name: str) -> None:
    """Bring what queues need to this release's, in a schema that is current; or refuse what a newer redrive wrote."""
    known = _texts("queue_migrations")
    newest = known[-1][0]
    sql = f"SELECT queues FROM {tables.schema}.redrive"
    if await connection.fetchval(sql) == newest:
        return
    async with connection.transaction():
        await connection.execute(f"SELECT pg_advisory_xact_lock({_LOCK}, hashtext('{tables.schema}'))")
        found = await connection.fetchval(sql)
        if found > newest:
            raise SchemaTooNew(f"{name} has queues {found} in '{tables.schema}', this redrive knows {newest}; upgrade redrive")
        await _apply(connection, tables, known, found)
        await connection.execute(f"UPDATE {tables.schema}.redrive SET queues = {newest}")


async def _apply(connection: asyncpg.Connection, tables: Tables, known: list[tuple[int, str]], found: int) -> None:
    # What functions say is known to be right: they are tested, and reading each anew takes longer than all tables.
    await connection.execute("SET LOCAL check_function_bodies = off")
    for number, text in known:
        if number > found:
            await connection.execute(tables.written(text))


async def _ensure_same(connection: asyncpg.Connection, tables: Tables, name: str) -> None:
    """Raise `BadSettings` when letters lie otherwise than the URL says."""
    is_parted = await connection.fetchval(f"SELECT is_parted FROM {tables.schema}.redrive")
    if is_parted == tables.is_parted:
        return
    if is_parted:
        raise BadSettings(f"the letters in '{tables.schema}' at {name} lie in months; say partitions=month in its URL")
    raise BadSettings(
        f"the letters in '{tables.schema}' at {name} do not lie in months; leave out partitions=month, or choose another schema"
    )


def ensure_known(found: int, schema: str, name: str) -> None:
    """Raise `SchemaTooNew` for a schema that a newer redrive wrote."""
    newest = migrations()[-1][0]
    if found > newest:
        raise SchemaTooNew(f"{name} has schema {found} in '{schema}', this redrive knows {newest}; upgrade redrive to open it")


async def version(connection: asyncpg.Connection, schema: str) -> int:
    """The number of the schema; 0: there is none yet."""
    if not await _is_there(connection, schema, "redrive"):
        return 0
    return int(await connection.fetchval(f"SELECT version FROM {schema}.redrive"))


async def _is_there(connection: asyncpg.Connection, schema: str, table: str) -> bool:
    # By the catalogue's rows, which show what others have just committed; `to_regclass` may answer from a cache.
    sql = "SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2"
    return await connection.fetchval(sql, schema, table) is not None
