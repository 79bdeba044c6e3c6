"""The whole failure path: a hundred callers whose handler raises, each message held as a letter on SQLite."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import redrive
from bench import raw
from bench.harness import Effort, Goal, Row, Watch, alone, compared, folder
from bench.put import CALLERS
from bench.samples import BODY, letters


def rows(effort: Effort) -> Iterator[Row]:
    messages = effort.of(5_000, step=CALLERS)
    encoded = raw.encoded(letters(messages))
    with folder(effort) as place:
        paths = (place / f"{number}.db" for number in count())

        def raw_rate() -> float:
            path = next(paths)
            raw.install(path)
            connection = raw.connect(path)
            with Watch() as watch:
                raw.insert(connection, encoded, batch=CALLERS)
            connection.close()
            return watch.rate(messages)

        yield compared(
            "capture of an exception, held; 100 async callers",
            lambda: asyncio.run(_capture(next(paths), messages)),
            raw_rate,
            effort,
            against="raw batches of 100",
            goal=Goal("at least", 15_000),
            figure=alone,
        )
        yield compared(
            "guard, three tries, then held; 100 async callers",
            lambda: asyncio.run(_fail(next(paths), messages)),
            raw_rate,
            effort,
            against="raw batches of 100",
        )


async def _fail(path: Path, messages: int) -> float:
    async with redrive.open(f"sqlite:{path}") as dlq:
        await dlq.letters.check()

        @dlq.guard(source="orders")
        async def handle(order: bytes) -> None:
            _reserve(order)

        async def caller() -> None:
            for _ in range(messages // CALLERS):
                await handle(BODY)

        with Watch() as watch:
            await asyncio.gather(*(caller() for _ in range(CALLERS)))
        assert await dlq.letters.count() == messages
    return watch.rate(messages)


async def _capture(path: Path, messages: int) -> float:
    async with redrive.open(f"sqlite:{path}") as dlq:
        await dlq.letters.check()

        async def caller() -> None:
            for _ in range(messages // CALLERS):
                try:
                    _reserve(BODY)
                except TimeoutError as error:
                    await dlq.capture(BODY, error, source="orders")

        with Watch() as watch:
            await asyncio.gather(*(caller() for _ in range(CALLERS)))
        assert await dlq.letters.count() == messages
    return watch.rate(messages)


def _reserve(order: bytes) -> None:
    raise TimeoutError(f"no answer for an order of {len(order)} bytes")
