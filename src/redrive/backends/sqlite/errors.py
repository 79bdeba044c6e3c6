"""SQLite's errors in redrive's words."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from redrive.model.errors import BadSettings, StoreCorrupt, StoreError, StoreFull, StoreNotWritable, StoreUnavailable

_MEANING: dict[int, tuple[type[StoreError], str]] = {
    sqlite3.SQLITE_BUSY: (StoreUnavailable, "another process has been writing to {path} for too long; try again"),
    sqlite3.SQLITE_LOCKED: (StoreUnavailable, "another process has been writing to {path} for too long; try again"),
    sqlite3.SQLITE_FULL: (StoreFull, "no space is left for {path}; free some, then try again"),
    sqlite3.SQLITE_CORRUPT: (StoreCorrupt, "{path} is damaged; restore it from a backup or move it aside"),
    sqlite3.SQLITE_NOTADB: (StoreCorrupt, "{path} is not a SQLite database; choose another path or move the file aside"),
    sqlite3.SQLITE_CANTOPEN: (StoreNotWritable, "cannot open {path}; does its folder exist, and may you write there?"),
    sqlite3.SQLITE_READONLY: (StoreNotWritable, "cannot write to {path}; mend its rights or choose another path"),
    sqlite3.SQLITE_PERM: (StoreNotWritable, "cannot write to {path}; mend its rights or choose another path"),
    sqlite3.SQLITE_IOERR: (StoreError, "reading or writing {path} failed; is its disk in order?"),
}


def translated(error: sqlite3.Error, path: str) -> StoreError:
    """What this error means for the caller."""
    code = getattr(error, "sqlite_errorcode", None)
    kind, sentence = _MEANING.get((code or 0) & 0xFF, (StoreError, "SQLite could not do it on {path}: {error}"))
    return kind(sentence.format(path=path, error=error))


@contextmanager
def translating(path: str) -> Iterator[None]:
    """Raise SQLite's errors in redrive's words."""
    try:
        yield
    except sqlite3.Error as error:
        raise translated(error, path) from error
    except UnicodeEncodeError as error:
        raise BadSettings(f"the question holds text that is no valid Unicode: {error.object!r}") from error
