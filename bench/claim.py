"""Claim and settle on SQLite, in batches of a hundred, beside bare statements that touch the same rows.

The bare side does what any leased queue must: read the due letters along the index, write their leases and the fence,
commit; write how each letter stands, remove its lease, commit. It neither decodes nor checks.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from uuid import UUID

import redrive
from bench import raw
from bench.harness import Effort, Goal, Row, Watch, compared, folder
from bench.samples import LANE, letters
from redrive.model.instant import micros
from redrive.model.lease import Claim, Due
from redrive.model.letter import Letter
from redrive.model.settlement import Completed, Settled, Settlement, settled
from redrive.model.status import Status
from redrive.model.stored import standing

BATCH = 100
LEASE = timedelta(minutes=5)

Changes = dict[bytes, tuple[str, int, bytes]]
"""For each id: status, instant of the change, and how the letter stands then."""

_DUE = (
    "SELECT l.seq, l.id, t.data, l.standing FROM claims c INDEXED BY claims_due JOIN letters l ON l.seq = c.seq"
    f" JOIN contents t ON t.seq = c.seq WHERE c.is_due AND c.lane = {LANE.number} AND c.priority = 0 AND c.at <= ?"
    " ORDER BY c.at LIMIT ?"
)
_LEASE = "UPDATE claims SET at = ?, token = ?, owner = 'raw', until = ? WHERE seq = ?"
_SETTLE = "UPDATE letters SET status = ?, updated_at = ?, next_retry_at = NULL, standing = ? WHERE seq = ?"


def rows(effort: Effort) -> Iterator[Row]:
    due = letters(effort.of(20_000, step=BATCH), is_due=True)
    changes = settled_rows(due)
    with folder(effort) as place:
        paths = (place / f"{number}.db" for number in count())
        filled = next(paths)
        asyncio.run(fill(filled, due))
        yield compared(
            "claim + settle, batches of 100",
            lambda: asyncio.run(work(copied(filled, next(paths)), len(due))),
            lambda: raw_rate(copied(filled, next(paths)), changes),
            effort,
            against="raw statements",
            goal=Goal("at least", 50),
        )


async def fill(path: Path, given: Sequence[Letter]) -> None:
    """A store with these letters."""
    async with redrive.open(f"sqlite:{path}") as dlq:
        for start in range(0, len(given), 1000):
            await dlq.letters.put(given[start : start + 1000])


def copied(filled: Path, path: Path) -> Path:
    """Fresh ground that looks the same every time; the one before is let go."""
    for old in path.parent.glob("*.db*"):
        if not old.name.startswith(filled.name):
            old.unlink()
    shutil.copy(filled, path)
    return path


async def work(path: Path, expected: int, workers: int = 1, batch: int = BATCH) -> float:
    """Letters a second, claimed and completed until none is due."""
    async with redrive.open(f"sqlite:{path}") as dlq:
        await dlq.letters.check()
        done = 0

        async def worker(number: int) -> None:
            nonlocal done
            claim = Claim(owner=f"worker-{number}", lease=LEASE, limit=batch, what=Due(LANE))
            while claimed := await dlq.letters.claim(claim):
                answers = await dlq.letters.settle([Settlement.of(one.lease, Completed()) for one in claimed])
                done += answers.count(Settled.DONE)

        with Watch() as watch:
            await asyncio.gather(*map(worker, range(workers)))
        assert done == expected, (done, expected)
    return watch.rate(done)


def raw_rate(path: Path, changes: Changes) -> float:
    connection = raw.connect(path)
    now = micros(datetime.now(UTC))
    with Watch() as watch:
        token = now
        while rows := _raw_claim(connection, now, token):
            _raw_settle(connection, [(*changes[id], seq) for seq, id in rows])
            token += 1
    (left,) = connection.execute("SELECT count(*) FROM claims").fetchone()
    assert left == 0, left
    connection.close()
    return watch.rate(len(changes))


def _raw_claim(connection: sqlite3.Connection, now: int, token: int) -> list[tuple[int, bytes]]:
    until = now + LEASE // timedelta(microseconds=1)
    connection.execute("BEGIN IMMEDIATE")
    found = connection.execute(_DUE, [now, BATCH]).fetchall()
    connection.execute("UPDATE fence SET token = ?", [token])
    connection.executemany(_LEASE, [(until, token, until, seq) for seq, *_ in found])
    connection.execute("COMMIT")
    return [(seq, id) for seq, id, *_ in found]


def _raw_settle(connection: sqlite3.Connection, changes: list[tuple[str, int, bytes, int]]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(_SETTLE, changes)
    connection.executemany("DELETE FROM claims WHERE seq = ?", [(seq,) for *_, seq in changes])
    connection.execute("COMMIT")


def settled_rows(given: Sequence[Letter]) -> Changes:
    now = datetime.now(UTC)
    outcome = Completed(operation=UUID(int=0))
    return {letter.id.bytes: (Status.COMPLETED.value, micros(now), standing(settled(letter, outcome, now))) for letter in given}
