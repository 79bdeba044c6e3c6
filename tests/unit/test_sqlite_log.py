"""SQLite's log: copied behind those who write, looked at from outside, and written over from its start."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest

import redrive.blocking
from redrive.backends.sqlite import checkpoints
from redrive.backends.sqlite.connections import PAGE_BYTES
from redrive.backends.sqlite.log import Log
from redrive.model.query import EVERYTHING
from redrive.testing import letter


def test_it_is_copied_behind_and_begins_anew(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "LOG_BYTES", 200_000)
    log = disk / "letters.db-wal"
    copied: list[str] = []
    copy = checkpoints._come_near

    def told(connection: sqlite3.Connection) -> bool:
        copied.append(threading.current_thread().name)
        return copy(connection)

    monkeypatch.setattr(checkpoints, "_come_near", told)
    sizes = []
    with redrive.blocking.open(f"sqlite:{disk / 'letters.db'}") as dlq:
        for number in range(200):
            dlq.letters.put([letter(str(number), body=b"x" * 20_000)])
            sizes.append(log.stat().st_size)
        assert dlq.letters.count() == 200
    assert set(copied) == {"redrive-checkpoint"}
    assert max(sizes) < 200 * 20_000, "it has begun anew, several times"
    assert sizes == sorted(sizes), "and was not cut: to write over what is there is quicker than to append"


def test_pages_that_a_purge_frees_are_not_written(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'letters.db'}"
    with redrive.blocking.open(url) as dlq:
        dlq.letters.put([letter(str(number), body=b"x" * 100_000) for number in range(10)])
    with redrive.blocking.open(url) as dlq:
        assert len(dlq.letters.purge(EVERYTHING)) == 10
        assert (tmp_path / "letters.db-wal").stat().st_size < 10 * 100_000 / 4


def test_one_that_has_begun_anew_is_short_though_its_file_is_long(tmp_path: Path) -> None:
    path = tmp_path / "letters.db"
    log = Log(str(path))
    assert log.look(0) == (b"", False)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute("CREATE TABLE t (x)")
    first, is_long = log.look(50 * PAGE_BYTES)
    assert first
    assert not is_long
    connection.execute("INSERT INTO t VALUES (zeroblob(?))", [60 * PAGE_BYTES])
    assert log.look(50 * PAGE_BYTES) == (first, True)
    length = Path(f"{path}-wal").stat().st_size
    assert log.look(length) == (first, False)

    connection.execute("PRAGMA wal_checkpoint(RESTART)")
    connection.execute("INSERT INTO t VALUES (1)")
    second, is_long = log.look(50 * PAGE_BYTES)
    assert second not in (b"", first)
    assert not is_long
    assert log.look(0) == (second, True)
    assert Path(f"{path}-wal").stat().st_size == length
    connection.close()
    assert log.look(0) == (b"", False), "the last one who closes it takes it away"
