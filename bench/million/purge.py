"""Captures beside a purge and a search, and the space that a purge frees."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from datetime import timedelta
from time import perf_counter

from bench.harness import Watch
from bench.million.grounds import PAGE
from bench.million.growth import Space, Waits, percentile
from bench.million.questions import common, four_fields
from bench.million.source import Filled
from redrive import EVERYTHING
from redrive.engine.dead_letters import DeadLetters
from redrive.model.query import And, Field, Is, Op, Query, Text
from redrive.model.spelling import spelled

EVERY_SECONDS = 0.005
STALL_MS = 50.0
QUIET_SECONDS = 10.0
LONGEST_TIDY_SECONDS = 60.0


class Purge:
    """Measures what others notice of a purge."""

    def __init__(self, filled: Filled, *, seconds: float) -> None:
        self._filled = filled
        self._ground = filled.ground
        self._store = filled.store
        self._seconds = seconds

    async def beside(self) -> tuple[tuple[Waits, ...], Space]:
        """Captures and searches: first alone, then while letters are purged, here and by another process; and what space it frees."""
        shares = await self._shares()
        before = await self._ground.sizes()
        _, query = await four_fields(self._store)

        async def here(letters: Query) -> None:
            await self._ground.dlq.purge(letters)

        async def elsewhere(letters: Query) -> None:
            await _purged_by_another(self._ground.url, letters)

        waits = [await self._waits("nothing else", query, asyncio.sleep(QUIET_SECONDS))]
        for name, purge, share in (
            ("a purge in this process", here, shares[0]),
            ("a purge by another process", elsewhere, shares[1]),
        ):
            matched = await self._store.count(share)
            waits.append(await self._waits(name, query, purge(share), share, matched))
            await self._ground.rest()
        purged = await self._ground.sizes()
        with Watch() as watch:
            left = await self._tidied()
        tidied = await self._ground.sizes()
        space = Space(before=before["file"], purged=purged["file"], tidied=tidied["file"], left=left, seconds=watch.seconds)
        self._filled.say(space.text)
        return tuple(waits), space

    async def _shares(self) -> list[Query]:
        """Two questions: about nearly half of the letters, and about a good part of the rest; both lie all over the store. What is
        captured meanwhile is younger, and not meant."""
        before = Is(Field.DEAD_LETTERED_AT, self._filled.now + timedelta(seconds=1), Op.LT)
        return [And((Is(Field.STATUS, status), before)) for status in await common(self._store, Field.STATUS)]

    async def _waits(
        self, meanwhile: str, query: Query, work: Awaitable[None], purged: Query | None = None, matched: int = 0
    ) -> Waits:
        """How long captures take until the work is done, or has taken too long."""
        self._filled.say(f"captures beside {meanwhile}")
        is_over = asyncio.Event()
        captures = asyncio.create_task(_captures(self._ground.dlq, is_over))
        searches = asyncio.create_task(self._searches([query, EVERYTHING, And((query, Text("order")))], is_over))
        note = ""
        with Watch() as watch:
            try:
                async with asyncio.timeout(self._seconds):
                    await work
            except TimeoutError:
                note = "cut short"
        is_over.set()
        waited, pages = sorted(await captures), await searches
        gone = matched - await self._store.count(purged) if purged is not None else 0
        waits = Waits(
            meanwhile=meanwhile,
            captures=len(waited),
            median_ms=percentile(waited, 0.5),
            most_of_them_ms=percentile(waited, 0.99),
            longest_ms=waited[-1],
            stalled=sum(one > STALL_MS for one in waited),
            pages=pages,
            seconds=watch.seconds,
            purged=gone,
            note=note,
        )
        self._filled.say(
            f"captures beside {meanwhile}: median {waits.median_ms:.1f}, longest {waits.longest_ms:.1f} ms, {gone:,} purged"
        )
        return waits

    async def _searches(self, queries: Sequence[Query], is_over: asyncio.Event) -> int:
        pages = 0
        while not is_over.is_set():
            await self._store.find(queries[pages % len(queries)], limit=PAGE)
            pages += 1
        return pages

    async def _tidied(self) -> int:
        """Have space given back, for a while; how much is left."""
        until = perf_counter() + LONGEST_TIDY_SECONDS
        left = (await self._store.tidy(0)).space
        while left and perf_counter() < until:
            # Few texts: they are not what is measured here.
            left = (await self._store.tidy(1)).space
        return left


async def _captures(dlq: DeadLetters, is_over: asyncio.Event) -> list[float]:
    """One letter every few milliseconds, whether or not those before are held: milliseconds, each from when it was due."""
    waited: list[float] = []

    async def capture(due: float) -> None:
        try:
            raise TimeoutError("no answer from stock.internal within 3000 ms")
        except TimeoutError as error:
            await dlq.capture(b'{"order": 4711, "note": "captured meanwhile"}', error, source="live")
        waited.append(1000 * (perf_counter() - due))

    due = perf_counter()
    async with asyncio.TaskGroup() as group:
        while not is_over.is_set():
            due += EVERY_SECONDS
            if (rest := due - perf_counter()) > 0:
                await asyncio.sleep(rest)
            group.create_task(capture(due))
    return waited


async def _purged_by_another(url: str, query: Query) -> None:
    """The command line, as somebody else would use it."""
    program = [sys.executable, "-m", "redrive", "purge", spelled(query), "--store", url, "--yes"]
    process = await asyncio.create_subprocess_exec(*program, stdout=asyncio.subprocess.DEVNULL)
    try:
        await process.wait()
    finally:
        if process.returncode is None:
            process.terminate()
            with suppress(TimeoutError):
                async with asyncio.timeout(30):
                    await process.wait()
