"""Looking a PostgreSQL store over, without making or changing anything."""

from __future__ import annotations

import asyncpg

from redrive.backends.postgres.database import Database
from redrive.model.errors import RedriveError
from redrive.model.finding import Finding, Health


async def examine(database: Database) -> list[Finding]:
    """Does the server answer, may we write, and does it keep what it confirms?"""
    name = database.address.name
    try:
        connection = await database.connected()
    except RedriveError as error:
        return [Finding("store", Health.BAD, str(error))]
    try:
        return await _looked_over(connection, database.schema, name)
    except asyncpg.PostgresError as error:
        return [Finding("store", Health.BAD, f"PostgreSQL at {name} could not say how it is: {error}")]
    finally:
        await connection.close()


async def _looked_over(connection: asyncpg.Connection, schema: str, name: str) -> list[Finding]:
    version = await connection.fetchval("SHOW server_version")
    if not await connection.fetchval("SELECT to_regclass($1) IS NOT NULL", f"{schema}.redrive"):
        return [Finding("store", Health.NOTE, f"{name} has no schema '{schema}' yet; the first letter makes it")]
    size = await connection.fetchval("SELECT pg_total_relation_size(to_regclass($1))", f"{schema}.letters")
    findings = [Finding("store", Health.OK, f"PostgreSQL {version} at {name}, schema '{schema}', {size / 1e6:.1f} MB")]
    if await connection.fetchval("SELECT pg_is_in_recovery()"):
        findings.append(Finding("rights", Health.BAD, f"{name} may only be read (a standby?); use the primary"))
    elif not await connection.fetchval("SELECT has_table_privilege($1, 'INSERT')", f"{schema}.letters"):
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
