"""Looking a PostgreSQL store over, without making or changing anything."""

from __future__ import annotations

from contextlib import suppress

import asyncpg

from redrive.backends.postgres.database import IS_READ_ONLY, MAY_WRITE, Database, written_tables
from redrive.backends.postgres.errors import LOST
from redrive.backends.postgres.schema import ensure_known, version
from redrive.backends.postgres.tables import Tables
from redrive.model.errors import RedriveError
from redrive.model.finding import Finding, Health

_CLOSING_SECONDS = 5.0
_SIZE = (
    "SELECT pg_total_relation_size(to_regclass($1)) + coalesce("
    "(SELECT sum(pg_total_relation_size(relid)) FROM pg_partition_tree(to_regclass($1)) WHERE isleaf), 0)::bigint"
)
"""Of a table, with its partitions if it has some; NULL: there is none."""


async def examine(database: Database) -> list[Finding]:
    """Does the server answer, may we write, and does it keep what it confirms?"""
    name = database.address.name
    try:
        connection = await database.connected()
    except RedriveError as error:
        return [Finding("store", Health.BAD, str(error))]
    try:
        return await _looked_over(connection, database.tables, name)
    except RedriveError as error:
        return [Finding("store", Health.BAD, str(error))]
    except (asyncpg.PostgresError, *LOST) as error:
        return [Finding("store", Health.BAD, f"PostgreSQL at {name} could not say how it is: {error}")]
    finally:
        with suppress(*LOST):
            await connection.close(timeout=_CLOSING_SECONDS)


async def _looked_over(connection: asyncpg.Connection, tables: Tables, name: str) -> list[Finding]:
    schema = tables.schema
    release = await connection.fetchval("SHOW server_version")
    if not await connection.fetchval("SELECT to_regclass($1) IS NOT NULL", f"{schema}.redrive"):
        return [Finding("store", Health.NOTE, f"{name} has no schema '{schema}' yet; the first letter makes it")]
    ensure_known(await version(connection, schema), schema, name)
    size = await connection.fetchval(_SIZE, f"{schema}.letters")
    if size is None:
        return [
            Finding("store", Health.BAD, f"the table of letters is missing in '{schema}' at {name}; restore it from a backup")
        ]
    findings = [Finding("store", Health.OK, f"PostgreSQL {release} at {name}, schema '{schema}', {size / 1e6:.1f} MB")]
    if await connection.fetchval(f"SELECT {IS_READ_ONLY}"):
        findings.append(Finding("rights", Health.BAD, f"{name} may only be read (a standby?); use the primary"))
    elif not await connection.fetchval(f"SELECT {MAY_WRITE}", written_tables(tables)):
        findings.append(Finding("rights", Health.BAD, f"the user may not write the letters at {name}; grant the rights"))
    weak = [
        f"{setting} is off"
        for setting in ("fsync", "full_page_writes", "synchronous_commit")
        if await connection.fetchval(f"SHOW {setting}") == "off"
    ]
    if weak:
        detail = f"{' and '.join(weak)} at {name}: a crash may lose letters that were confirmed; turn it on"
        findings.append(Finding("durability", Health.BAD, detail))
    else:
        findings.append(Finding("durability", Health.OK, "what PostgreSQL confirms survives a crash"))
    return findings
