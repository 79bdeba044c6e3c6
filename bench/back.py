"""Back from the dead: letters driven to a function that does nothing, with ledger and leases."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import redrive
from bench.claim import copied, fill, work
from bench.harness import Effort, Goal, Row, Watch, compared, folder
from bench.samples import letters
from redrive import EVERYTHING, Tempo
from redrive.model.operation import Entry


def rows(effort: Effort) -> Iterator[Row]:
    due = letters(effort.of(10_000, step=100), is_due=True)
    with folder(effort) as place:
        paths = (place / f"{number}.db" for number in count())
        filled = next(paths)
        asyncio.run(fill(filled, due))
        yield compared(
            "redrive to a no-op function",
            lambda: asyncio.run(_redrive(copied(filled, next(paths)), len(due))),
            lambda: asyncio.run(work(copied(filled, next(paths)), len(due))),
            effort,
            against="our claim + settle",
        )
        yield _operation(filled, paths, len(due), effort)


def _operation(filled: Path, paths: Iterator[Path], expected: int, effort: Effort) -> Row:
    """The run of an operation whose letters are chosen already, at full width; the goal is a rate of its own."""
    ours: list[float] = []
    limit: list[float] = []
    for _ in range(effort.rounds):
        ours.append(asyncio.run(_run(copied(filled, next(paths)), expected)))
        limit.append(asyncio.run(work(copied(filled, next(paths)), expected, batch=1000)))
    return Row(
        name="an operation's run, plain function, a thousand at a time",
        ours=statistics.median(ours),
        limit=statistics.median(limit),
        against="our claim + settle, batches of 1000",
        unit="letters/s",
        figures=tuple(ours),
        figure_unit="letters/s",
        goal=Goal("at least", 20_000),
    )


async def _run(path: Path, expected: int) -> float:
    async with redrive.open(f"sqlite:{path}") as dlq:
        plan = await dlq.operations.plan(_plain, query=EVERYTHING, tempo=Tempo(batch=1000))
        with Watch() as watch:
            report = await dlq.operations.run(plan.operation.id, to=_plain)
        assert report.entries == {Entry.CONFIRMED: expected}, report
    return watch.rate(expected)


def _plain(order: object) -> None:
    pass


async def _redrive(path: Path, expected: int) -> float:
    async with redrive.open(f"sqlite:{path}") as dlq:
        await dlq.letters.check()
        with Watch() as watch:
            report = await dlq.redrive(_nothing, query=EVERYTHING)
        done = report.entries.get(Entry.CONFIRMED, 0)
        assert done == expected, report
    return watch.rate(done)


async def _nothing(order: object) -> None:
    pass
