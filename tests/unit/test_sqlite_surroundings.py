"""SQLite and the world around it: clocks that were wrong, forks from many threads, files that are taken away."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from redrive import Claim, Status, blocking
from redrive.model.errors import StoreUnavailable
from redrive.testing import letter


def test_a_store_that_is_opened_twice_is_still_known_to_be_in_use(tmp_path: Path) -> None:
    """Else another process, on its end, would take the log away under whoever opened it first."""
    url = f"sqlite:{tmp_path}/redrive.db"
    program = "import sys; from redrive import blocking\nwith blocking.open(sys.argv[1]) as dlq: "

    def elsewhere(what: str) -> str:
        command = [sys.executable, "-c", program + what, url]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.strip()

    with blocking.open(url) as dlq:
        dlq.capture("first", ValueError("bad"), source="orders")
        with blocking.open(url) as again:
            again.capture("second", ValueError("bad"), source="orders")
        elsewhere("dlq.capture('third', ValueError('bad'), source='orders')")
        dlq.capture("fourth", ValueError("bad"), source="orders")
        assert elsewhere("print(dlq.count())") == "4"


def test_who_only_looks_waits_for_nobody_who_writes(tmp_path: Path) -> None:
    """Not even to open the file."""
    url = f"sqlite:{tmp_path / 'letters.db'}"
    with blocking.open(url) as dlq:
        dlq.letters.put([letter()])
    with closing(sqlite3.connect(tmp_path / "letters.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with blocking.open(url) as dlq:
            assert dlq.letters.count() == 1
            assert dlq.letters.find().letters == (letter(),)
        other.execute("ROLLBACK")


def test_leases_end_although_the_clock_was_once_ahead(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path}/redrive.db"
    with blocking.open(url) as dlq:
        id = dlq.capture("a", ValueError("bad"), source="orders").letter.id
        ahead = datetime.now(UTC) + timedelta(days=300)
        assert len(dlq.letters.claim(Claim(owner="ahead", lease=timedelta(milliseconds=1), what=(id,)), now=ahead)) == 1
    with blocking.open(url) as dlq:
        deadline = time.monotonic() + 20
        while not dlq.letters.claim(Claim(owner="today", lease=timedelta(milliseconds=300), what=(id,))):
            assert time.monotonic() < deadline, "the lease of the clock that was ahead never ended"
        while dlq.get(id).status is Status.RETRYING:
            assert time.monotonic() < deadline, "the store's clock stands still"


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="this system cannot fork")
def test_many_threads_may_fork_at_once(tmp_path: Path) -> None:
    program = """
import os, threading
from redrive import blocking
with blocking.open("sqlite:redrive.db") as dlq:
    def work(number):
        for _ in range(5):
            dlq.capture("a", ValueError("bad"), source=f"thread {number}")
            if (child := os.fork()) == 0:
                dlq.capture("b", ValueError("bad"), source=f"child of {number}")
                os._exit(0)
            os.waitpid(child, 0)
    threads = [threading.Thread(target=work, args=[number]) for number in range(3)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    print(dlq.count())
"""
    # From 3.12 on, Python warns of forks beside threads; they happen all the same.
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("30\n", "")


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_file_that_was_taken_away_is_said_to_be_and_opened_anew_by_the_next_letter(how: str, tmp_path: Path) -> None:
    """Letters that go into a file that nobody can open again are lost."""
    path = tmp_path / "redrive.db"
    with blocking.open(f"sqlite:{path}") as dlq:
        dlq.capture("gone", ValueError("bad"), source="orders")
        for file in tmp_path.glob("redrive.db*"):
            file.unlink()
        if how == "replaced":
            path.write_bytes(b"")
        for look in (dlq.letters.check, dlq.count):
            with pytest.raises(StoreUnavailable, match=r"redrive\.db was removed or replaced while it was open"):
                look()
        dlq.capture("new", ValueError("bad"), source="orders")
        dlq.letters.check()
        assert dlq.count() == 1
    with blocking.open(f"sqlite:{path}") as dlq:
        assert [letter.body for letter in dlq.find()] == [b"new"]
