"""Uses the embedded store and the journal under the shim, and marks each confirmation as soon as it comes.

A marker names the tokens of what was confirmed. `alone` says that nothing else was under way: then whatever was written
to this file up to here must be on the disk.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from redrive.backends.sqlite import Database, SqliteDesk, SqliteLetters
from redrive.backends.sqlite.connections import Connections
from redrive.engine.journal import Journal
from redrive.model.lease import Claim
from redrive.model.letter import Letter
from redrive.model.operation import Entry, LedgerRow
from redrive.model.settlement import Completed, Settlement
from redrive.ports.inline import drive
from redrive.testing.kit.samples import START, letter

T = TypeVar("T")
Run = Callable[[Coroutine[Any, Any, Any]], Any]

CROWD = 100
THREADS = 20
SINGLE = 10
BATCH = 25


def _hastily(connect: Callable[[Connections], sqlite3.Connection]) -> Callable[[Connections], sqlite3.Connection]:
    """A mutant: connections that commit without waiting for the disk."""

    def connected(connections: Connections) -> sqlite3.Connection:
        connection = connect(connections)
        connection.execute("PRAGMA synchronous = NORMAL")
        return connection

    return connected


class Marker:
    """Writes what was confirmed to a file that the shim watches."""

    def __init__(self, place: Path) -> None:
        self._descriptor = os.open(place / "marker", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def __call__(self, file: str, verb: str, tokens: Sequence[int] = (), *, alone: bool = False) -> None:
        words = [file, verb, "alone" if alone else "crowd", *(f"{token:06}" for token in tokens)]
        os.write(self._descriptor, " ".join(words).encode())


def numbered(token: int) -> Letter:
    return letter(str(token), body=b"token-%06d;" % token * 3)


def take(tokens: Iterator[int], number: int) -> list[int]:
    return [next(tokens) for _ in range(number)]


def use_alone(run: Run, store: SqliteLetters, desk: SqliteDesk, tokens: Iterator[int], marked: Marker) -> None:
    """One call after another."""
    for size in [1] * SINGLE + [BATCH] * 2:
        some = take(tokens, size)
        letters = [numbered(token) for token in some]
        run(store.put(letters))
        marked("wal", "put", some, alone=True)
        claimed = run(store.claim(Claim(owner="ann", lease=timedelta(minutes=1), what=tuple(one.id for one in letters))))
        assert len(claimed) == size
        marked("wal", "claim", alone=True)
        rows = [
            LedgerRow(operation=one.id, number=0, letter=one.id, generation=1, entry=Entry.INTENDED, at=START) for one in letters
        ]
        run(desk.record(rows))
        marked("wal", "record", alone=True)
        run(store.settle([Settlement.of(one.lease, Completed()) for one in claimed]))
        marked("wal", "settle", alone=True)


async def crowd(
    verb: Callable[[Sequence[Letter]], Coroutine[Any, Any, Any]], file: str, tokens: Sequence[int], marked: Marker
) -> None:
    """Many callers at once on an event loop."""

    async def one(token: int) -> None:
        await verb([numbered(token)])
        marked(file, "crowd", [token])

    await asyncio.gather(*map(one, tokens))


def crowd_of_threads(
    verb: Callable[[Sequence[Letter]], Coroutine[Any, Any, Any]], file: str, tokens: Sequence[int], marked: Marker
) -> None:
    """Many blocking callers at once."""

    def one(token: int) -> None:
        drive(verb([numbered(token)]))
        marked(file, "thread", [token])

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(one, tokens))


def live(place: Path, mutant: str) -> None:
    marked = Marker(place)
    tokens = count(1)
    if mutant == "hasty database":
        Connections._connect = _hastily(Connections._connect)  # type: ignore[method-assign]  # that is the mutation
    database = Database(str(place / "letters.db"))
    store, desk = SqliteLetters(database), SqliteDesk(database)
    use_alone(drive, store, desk, tokens, marked)
    with asyncio.Runner() as runner:
        use_alone(runner.run, store, desk, tokens, marked)
        runner.run(crowd(store.put, "wal", take(tokens, CROWD), marked))
    crowd_of_threads(store.put, "wal", take(tokens, CROWD), marked)
    database.close()

    if mutant == "hasty journal":
        os.fsync = lambda fd: None
    journal = Journal(place / "journal", "a store")
    for run in (drive, asyncio.run):
        for size in [1] * SINGLE + [BATCH]:
            some = take(tokens, size)
            run(journal.append([numbered(token) for token in some]))
            marked("journal", "append", some, alone=True)
    asyncio.run(crowd(journal.append, "journal", take(tokens, CROWD), marked))
    crowd_of_threads(journal.append, "journal", take(tokens, CROWD), marked)
    journal.close()


if __name__ == "__main__":
    live(Path(sys.argv[1]), sys.argv[2])
