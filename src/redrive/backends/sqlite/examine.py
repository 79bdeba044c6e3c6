"""Looking a SQLite file over, without making or changing anything."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

from redrive.backends.sqlite.database import Database
from redrive.backends.sqlite.errors import translated
from redrive.model.errors import StoreError
from redrive.model.finding import Finding, Health

_LOW_DISK_BYTES = 100 * 1024 * 1024
_MOST_PROBLEMS = 10


async def examine(database: Database) -> list[Finding]:
    """Is the file there, sound and writable, and is there room for more?"""
    path = Path(database.path)
    if not path.exists():
        return [Finding("store", Health.NOTE, f"{path} is not there yet; the first letter makes it"), _disk(path.parent)]
    try:
        await database.check()
        problems = await database.read(_problems)
    except StoreError as error:
        return [Finding("store", Health.BAD, str(error)), _disk(path.parent)]
    except sqlite3.Error as error:
        return [Finding("store", Health.BAD, str(translated(error, str(path)))), _disk(path.parent)]
    size = path.stat().st_size
    findings = [Finding("store", Health.OK, f"{path} is writable and has {size / 1e6:.1f} MB")]
    if problems:
        detail = f"{path} is damaged ({problems[0]}); restore it from a backup"
        findings.append(Finding("integrity", Health.BAD, detail))
    else:
        findings.append(Finding("integrity", Health.OK, "SQLite finds no damage"))
    return [*findings, _disk(path.parent)]


def _problems(connection: sqlite3.Connection) -> list[str]:
    rows = connection.execute(f"PRAGMA quick_check({_MOST_PROBLEMS})").fetchall()
    return [text for (text,) in rows if text != "ok"]


def _disk(folder: Path) -> Finding:
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return Finding("disk", Health.BAD, f"{folder}: {error.strerror}; make the folder, or choose another path")
    detail = f"{free / 1e9:.1f} GB free"
    return Finding("disk", Health.OK if free > _LOW_DISK_BYTES else Health.BAD, detail)
