"""Captures beside a purge and a search, and the space that a purge frees."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from time import perf_counter

from msgspec.structs import replace

from bench.harness import Watch
from bench.million.grounds import PAGE
from bench.million.growth import Space, Waits, percentile
from bench.million.machine import Machine, Span
from bench.million.questions import four_fields
from bench.million.source import Filled
from redrive import EVERYTHING
from redrive.engine.dead_letters import DeadLetters
from redrive.model.query import And, Field, Is, Op, Or, Query, Text
from redrive.model.spelling import spelled

EVERY_SECONDS = 0.005
STALL_MS = 50.0
QUIET_SECONDS = 20.0
SHORT_SECONDS = 60.0
"""What another process purges, or beside searches, is cut short after this."""
LONGEST_TIDY_SECONDS = 60.0


class Purge:
    """Measures what others notice of a purge."""

    def __init__(self, filled: Filled, *, seconds: float, place: Path) -> None:
        self._filled = filled
        self._place = place
        self._ground = filled.ground
        self._store = filled.store
        self._seconds = seconds

    async def beside(self) -> tuple[tuple[Waits, ...], Space]:
        """Captures: beside nothing, which tells what the machine does by itself; beside searches alone; while half of all letters are purged, to
        the end; while letters are purged beside searches, here and by another process. And what space it frees."""
        half, rest = await self._shares()
        before = await self._ground.sizes()
        _, query = await four_fields(self._store)
        searches = [query, EVERYTHING, And((query, Text("order")))]

        async def here(letters: Query) -> None:
            await self._ground.dlq.purge(letters)

        async def elsewhere(letters: Query) -> None:
            await _purged_by_another(self._ground.url, letters)

        short = min(self._seconds, SHORT_SECONDS)
        waits = [
            await self._waits("nothing", asyncio.sleep(QUIET_SECONDS), ()),
            await self._waits("searches", asyncio.sleep(QUIET_SECONDS), searches),
            await self._purging("a purge of half of all", here, half, (), self._seconds),
            await self._purging("a purge, and searches", here, rest, searches, short),
            await self._purging("a purge by another process, and searches", elsewhere, rest, searches, short),
        ]
        purged = await self._ground.sizes()
        with Watch() as watch:
            left = await self._tidied()
        tidied = await self._ground.sizes()
        space = Space(before=before["file"], purged=purged["file"], tidied=tidied["file"], left=left, seconds=watch.seconds)
        self._filled.say(space.text)
        return tuple(waits), space

    async def _shares(self) -> tuple[Query, Query]:
        """Two questions: about half of the letters or some more, and about a good part of the rest; both lie all over the store. What is
        captured meanwhile is younger, and not meant."""
        before = Is(Field.DEAD_LETTERED_AT, self._filled.now + timedelta(seconds=1), Op.LT)
        numbers = Counter(await self._store.tally(Field.STATUS))
        (most, found), (rest, _), *few = numbers.most_common()
        half: list[Query] = [Is(Field.STATUS, most)]
        while few and found * 2 < self._filled.held:
            status, number = few.pop()
            half.append(Is(Field.STATUS, status))
            found += number
        return And((Or(tuple(half)), before)), And((Is(Field.STATUS, rest), before))

    async def _purging(
        self, meanwhile: str, purge: Callable[[Query], Awaitable[None]], share: Query, searches: Sequence[Query], seconds: float
    ) -> Waits:
        matched = await self._store.count(share)
        waits = await self._waits(meanwhile, purge(share), searches, seconds)
        await self._ground.rest()
        waits = replace(waits, purged=matched - await self._store.count(share))
        self._filled.say(f"{waits.purged:,} of {matched:,} purged, {waits.purged_a_second:,.0f} a second")
        return waits

    async def _waits(
        self, meanwhile: str, work: Awaitable[None], searches: Sequence[Query], seconds: float = SHORT_SECONDS
    ) -> Waits:
        """How long captures take until the work is done, or has taken too long."""
        self._filled.say(f"captures beside {meanwhile}")
        is_over = asyncio.Event()
        # What the bench itself holds is not to be gone through again and again meanwhile.
        gc.collect()
        gc.freeze()
        note = ""
        async with Machine(self._place) as machine:
            captures = asyncio.create_task(_captures(self._ground.dlq, is_over))
            searching = asyncio.create_task(self._searches(searches, is_over))
            with Watch() as watch:
                try:
                    async with asyncio.timeout(seconds):
                        await work
                except TimeoutError:
                    note = "cut short"
            is_over.set()
            spans, pages = await captures, await searching
        gc.unfreeze()
        waited = sorted(1000 * (ended - due) for due, ended in spans)
        own = [1000 * (ended - due - machine.held_up(due, ended)) for due, ended in spans]
        waits = Waits(
            meanwhile=meanwhile,
            captures=len(waited),
            median_ms=percentile(waited, 0.5),
            most_of_them_ms=percentile(waited, 0.99),
            longest_ms=waited[-1],
            stalled=sum(one > STALL_MS for one in waited),
            machine_ms=machine.longest_ms,
            longest_own_ms=max(own),
            stalled_own=sum(one > STALL_MS for one in own),
            pages=pages,
            seconds=watch.seconds,
            note=note,
        )
        self._filled.say(
            f"captures beside {meanwhile}: median {waits.median_ms:.1f}, longest {waits.longest_ms:.1f} ms ({waits.stalled} over 50), "
            f"the machine's longest {waits.machine_ms:.1f}, longest but for it {waits.longest_own_ms:.1f} ({waits.stalled_own} over 50)"
        )
        return waits

    async def _searches(self, queries: Sequence[Query], is_over: asyncio.Event) -> int:
        pages = 0
        while queries and not is_over.is_set():
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


async def _captures(dlq: DeadLetters, is_over: asyncio.Event) -> list[Span]:
    """One letter every few milliseconds, whether or not those before are held: when each was due, and when it was held."""
    waited: list[Span] = []

    async def capture(due: float) -> None:
        try:
            raise TimeoutError("no answer from stock.internal within 3000 ms")
        except TimeoutError as error:
            await dlq.capture(b'{"order": 4711, "note": "captured meanwhile"}', error, source="live")
        waited.append((due, perf_counter()))

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
