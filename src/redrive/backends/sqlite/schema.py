"""Install and upgrade of the schema: numbered SQL files, each applied once, all in one transaction."""

from __future__ import annotations

import sqlite3
from importlib import resources

from redrive.backends.sqlite.query import AT, at
from redrive.model.errors import SchemaTooNew, StoreCorrupt, Unsupported

APPLICATION_ID = 0x72647276
"""Marks a file as redrive's ("rdrv"), so that another program's database is never touched."""


def migrations() -> list[tuple[int, str]]:
    """Number and text of every migration, in order."""
    folder = resources.files(__package__) / "migrations"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return [(int(file.name.split("_")[0]), file.read_text()) for file in files]


def ensure_ours(connection: sqlite3.Connection, path: str) -> None:
    """Refuse another program's database, and one that a newer redrive wrote. Only looks."""
    # In one transaction, so that what another process makes of an empty file is seen whole or not at all.
    connection.execute("BEGIN")
    try:
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        found = _version(connection)
    finally:
        connection.execute("ROLLBACK")
    if application != APPLICATION_ID and (tables or application or found):
        raise StoreCorrupt(f"{path} is another program's database; choose another path")
    newest = migrations()[-1][0]
    if found > newest:
        raise SchemaTooNew(f"{path} has schema {found}, this redrive knows {newest}; upgrade redrive to open it")


def upgrade(connection: sqlite3.Connection) -> None:
    """Bring the database to this release's schema."""
    known = migrations()
    if _version(connection) == known[-1][0]:
        return
    if not connection.execute("SELECT 1 FROM pragma_module_list WHERE name = 'fts5'").fetchone():
        raise Unsupported("the SQLite of this Python lacks FTS5, by which words are found; use a Python whose SQLite has it")
    connection.execute("BEGIN EXCLUSIVE")
    try:
        found = _version(connection)
        for number, text in known:
            if number > found:
                for statement in _statements(text):
                    connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {known[-1][0]}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def empty() -> sqlite3.Connection:
    """A database without letters, in memory."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.create_function(AT, 2, at, deterministic=True)
    upgrade(connection)
    return connection


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def _statements(text: str) -> list[str]:
    # `executescript` would commit the open transaction, so the text is cut where SQLite says a statement is whole.
    statements, current = [], ""
    for line in text.splitlines(keepends=True):
        current += line
        if sqlite3.complete_statement(current):
            statements.append(current)
            current = ""
    return statements
