"""Beside one thread that computes without a pause: what is left of our own quiet rate.

sqlite3 lets go of the GIL at every step, and each time it has to wait a whole switch interval to get it back.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

from bench.claim import copied, fill, work
from bench.harness import Effort, Goal, Row, compared, folder
from bench.put import CALLERS, crowd
from bench.samples import letters

WORKERS = 4


def rows(effort: Effort) -> Iterator[Row]:
    given, due = letters(effort.of(4_000, step=CALLERS)), letters(effort.of(4_000, step=100), is_due=True)
    with folder(effort) as place:
        paths = (place / f"{number}.db" for number in count())
        yield _beside_busy_thread("put, 100 async callers, busy thread", lambda: asyncio.run(crowd(next(paths), given)), effort)
        filled = next(paths)
        asyncio.run(fill(filled, due))
        yield _beside_busy_thread(
            "claim + settle, 4 workers, busy thread",
            lambda: asyncio.run(work(copied(filled, next(paths)), len(due), workers=WORKERS)),
            effort,
        )


def _beside_busy_thread(name: str, quiet: Callable[[], float], effort: Effort) -> Row:
    def busy() -> float:
        with busy_thread():
            return quiet()

    return compared(name, busy, quiet, effort, against="ours, quiet", goal=Goal("at least", 10))


@contextmanager
def busy_thread() -> Iterator[None]:
    """A thread that never waits for anything."""
    is_over = False

    def compute() -> None:
        number = 0
        while not is_over:
            number += 1

    thread = threading.Thread(target=compute, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over = True
        thread.join()
