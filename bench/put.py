"""`put` on SQLite: a hundred callers beside raw batches of a hundred; one caller beside raw single inserts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

import redrive
import redrive.blocking
from bench import raw
from bench.harness import Effort, Goal, Row, Watch, compared, folder
from bench.samples import letters
from redrive.model.letter import Letter

CALLERS = 100


def rows(effort: Effort) -> Iterator[Row]:
    many, few = letters(effort.of(10_000, step=CALLERS)), letters(effort.of(1_000))
    many_raw, few_raw = raw.encoded(many), raw.encoded(few)
    with folder(effort) as place:
        paths = (place / f"{number}.db" for number in count())

        def raw_rate(rows: list[tuple[object, ...]], batch: int) -> float:
            path = next(paths)
            raw.install(path)
            connection = raw.connect(path)
            with Watch() as watch:
                raw.insert(connection, rows, batch=batch)
            connection.close()
            return watch.rate(len(rows))

        yield compared(
            "put, 100 async callers",
            lambda: asyncio.run(crowd(next(paths), many)),
            lambda: raw_rate(many_raw, CALLERS),
            effort,
            against="raw batches of 100",
            goal=Goal("at least", 50),
        )
        yield compared(
            "put, one blocking caller",
            lambda: one_blocking(next(paths), few),
            lambda: raw_rate(few_raw, 1),
            effort,
            against="raw single inserts",
            goal=Goal("at least", 70),
        )
        yield compared(
            "put, one async caller",
            lambda: asyncio.run(crowd(next(paths), few, callers=1)),
            lambda: raw_rate(few_raw, 1),
            effort,
            against="raw single inserts",
            goal=Goal("at least", 50),
        )


async def crowd(path: Path, given: Sequence[Letter], callers: int = CALLERS) -> float:
    """Letters a second, held one at a time by so many callers at once."""
    async with redrive.open(f"sqlite:{path}") as dlq:
        await dlq.letters.check()
        put = dlq.letters.put

        async def caller(mine: Sequence[Letter]) -> None:
            for letter in mine:
                await put([letter])

        with Watch() as watch:
            await asyncio.gather(*(caller(given[number::callers]) for number in range(callers)))
        assert await dlq.letters.count() == len(given)
    return watch.rate(len(given))


def one_blocking(path: Path, given: Sequence[Letter]) -> float:
    """Letters a second, held one after another from blocking code."""
    with redrive.blocking.open(f"sqlite:{path}") as dlq:
        dlq.letters.check()
        put = dlq.letters.put
        with Watch() as watch:
            for letter in given:
                put([letter])
        assert dlq.letters.count() == len(given)
    return watch.rate(len(given))
