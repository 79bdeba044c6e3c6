"""The retry processor with a handler that does nothing, beside bare claims and settlements; and what a letter takes in memory.

The raw side is that of the other benches, on one lane: it claims and settles a hundred at a time, along the index, and neither
tries nor decodes anything. It does one thing after another; the processor claims, tries and settles side by side, and more than
a hundred at a time, so that across a network it may well be ahead.
"""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any

import asyncpg

import redrive
from bench import claim, postgres
from bench.harness import Effort, Goal, Row, Watch, alone, compared, folder
from bench.samples import LANE, letters
from dev.engines.registry import ENGINES
from redrive.backends.memory import MemoryLetters
from redrive.engine.dead_letters import DeadLetters
from redrive.engine.retry import Retried
from redrive.model.letter import Letter
from redrive.model.settlement import Settled
from redrive.ports.inline import drive

LETTERS = 10_000
SEED_BYTES = 1024.0
"""What the workflow DLQ's document says that a task takes in memory."""


def rows(effort: Effort) -> Iterator[Row]:
    """For another engine: what fills it and works, and its bare side, given to `row`."""
    due = letters(effort.of(LETTERS, step=claim.BATCH), is_due=True)
    yield from _sqlite(due, effort)
    yield from _postgres(due, effort)
    yield _memory(effort)


def row(engine: str, ours: Callable[[], float], bare: Callable[[], float], effort: Effort) -> Row:
    return compared(
        f"{engine}: processor, a handler that does nothing",
        ours,
        bare,
        effort,
        against="raw claim + settle",
        goal=Goal("at least", 40),
    )


async def retried(dlq: DeadLetters, expected: int) -> float:
    """Letters a second, tried and completed by one processor until none is left."""
    done, is_over = 0, asyncio.Event()

    async def handler(order: Any) -> None:
        """Do nothing."""

    async def count_them(some: Sequence[Retried]) -> None:
        nonlocal done
        done += sum(one.answer is Settled.DONE and one.has_worked for one in some)
        if done == expected:
            is_over.set()

    async with dlq.processor({LANE.source: handler}, listener=count_them):
        with Watch() as watch:
            await is_over.wait()
    return watch.rate(expected)


def _sqlite(due: Sequence[Letter], effort: Effort) -> Iterator[Row]:
    changes = claim.settled_rows(due)
    with folder(effort) as place:
        paths = (place / f"{number}.db" for number in count())
        filled = next(paths)
        asyncio.run(claim.fill(filled, due))

        async def ours() -> float:
            async with redrive.open(f"sqlite:{claim.copied(filled, next(paths))}") as dlq:
                await dlq.letters.check()
                return await retried(dlq, len(due))

        yield row(
            "SQLite",
            lambda: asyncio.run(ours()),
            lambda: claim.raw_rate(claim.copied(filled, next(paths)), changes),
            effort,
        )


def _postgres(due: Sequence[Letter], effort: Effort) -> Iterator[Row]:
    numbers = count()
    with ENGINES["postgres"].make(durable=True) as server:

        async def rate(*, is_raw: bool) -> float:
            schema = f"processor{next(numbers)}"
            async with redrive.open(f"{server.url}?schema={schema}") as dlq:
                for start in range(0, len(due), 1000):
                    await dlq.letters.put(due[start : start + 1000])
                if not is_raw:
                    return await retried(dlq, len(due))
            connection = await asyncpg.connect(server.url)
            figure = await postgres.Raw(connection, schema, due, claim.BATCH).claimed_and_settled()
            await connection.close()
            return figure

        yield row("PostgreSQL", lambda: asyncio.run(rate(is_raw=False)), lambda: asyncio.run(rate(is_raw=True)), effort)


def _memory(effort: Effort) -> Row:
    given = letters(effort.of(5000), is_due=True)
    return compared(
        "a letter with a task of 1 KB in the memory store",
        lambda: _bytes_a_letter(given),
        lambda: SEED_BYTES,
        effort,
        against="its document: ~1 KB a task",
        unit="bytes",
        figure=alone,
    )


def _bytes_a_letter(given: Sequence[Letter]) -> float:
    store = MemoryLetters()
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        drive(store.put(given))
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return (after - before) / len(given)
