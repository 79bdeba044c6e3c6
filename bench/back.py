"""Back from the dead: letters driven to a function that does nothing, with ledger and leases."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import redrive
from bench.claim import copied, fill, work
from bench.harness import Effort, Row, Watch, compared, folder
from bench.samples import letters
from redrive import EVERYTHING
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
