"""Install and upgrade of the schema: numbered SQL files, each applied once, all in one transaction under a lock."""

from __future__ import annotations

from importlib import resources

import asyncpg

from redrive.model.errors import SchemaTooNew, StoreCorrupt

_LOCK = 0x72647276
"""Which of the server's advisory locks is ours ("rdrv"); it ends with the transaction, so a pooler may stand in between."""


def migrations() -> list[tuple[int, str]]:
    """Number and text of every migration, in order."""
    folder = resources.files(__package__) / "migrations"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return [(int(file.name.split("_")[0]), file.read_text()) for file in files]


async def ensure_current(connection: asyncpg.Connection, schema: str, name: str) -> None:
    """Bring the schema to this release's, or refuse one that a newer redrive wrote or that is another program's."""
    known = migrations()
    if await version(connection, schema) == known[-1][0]:
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
                f"CREATE TABLE {schema}.redrive (is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only), version int NOT NULL)"
            )
            await connection.execute(f"INSERT INTO {schema}.redrive (version) VALUES (0)")
        for number, text in known:
            if number > found:
                await connection.execute(text.replace("{schema}", schema))
        await connection.execute(f"UPDATE {schema}.redrive SET version = {known[-1][0]}")


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
