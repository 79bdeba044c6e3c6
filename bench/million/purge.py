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
from typing import NamedTuple

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
TURN_SECONDS = 45.0
PAUSE_SECONDS = 15.0
"""The large purge goes on for one, and rests for the other: so what the disk does by itself is seen in the same minutes."""
LONGEST_TIDY_SECONDS = 60.0


class Watched(NamedTuple):
    """Captures for some time, each from when it was due until it was held, and what the machine did meanwhile."""

    spans: list[Span]
    machine: Machine
    pages: int
    seconds: float


class Purge:
    """Measures what others notice of a purge."""

    def __init__(self, filled: Filled, *, seconds: float, place: Path) -> None:
        self._filled = filled
        self._place = place
        self._ground = filled.ground
        self._store = filled.store
        self._seconds = seconds

    async def beside(self) -> tuple[tuple[Waits, ...], Space]:
        """Captures: while half of all letters are purged, to the end, and beside nothing in turns with it, which tells what the machine does by
        itself; beside searches alone; while letters are purged beside searches, here and by another process. And what space it frees."""
        half, rest = await self._shares()
        before = await self._ground.sizes()
        _, query = await four_fields(self._store)
        searches = [query, EVERYTHING, And((query, Text("order")))]

        async def here(letters: Query) -> None:
            await self._ground.dlq.purge(letters)

        async def elsewhere(letters: Query) -> None:
            await _purged_by_another(self._ground.url, letters)

        waits = [
            *await self._in_turns(here, half),
            self._told("searches", [await self._beside(asyncio.sleep(QUIET_SECONDS), searches)]),
            await self._cut_short("a purge, and searches", here, rest, searches),
            await self._cut_short("a purge by another process, and searches", elsewhere, rest, searches),
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

    async def _in_turns(self, purge: Callable[[Query], Awaitable[None]], share: Query) -> tuple[Waits, Waits]:
        """Captures beside nothing, and beside a purge to its end, unless that takes too long."""
        matched = left = await self._store.count(share)
        quiet: list[Watched] = []
        purging: list[Watched] = []
        while left and sum(one.seconds for one in purging) < self._seconds:
            quiet.append(await self._beside(asyncio.sleep(PAUSE_SECONDS)))
            purging.append(await self._beside(purge(share), seconds=TURN_SECONDS))
            left = await self._store.count(share)
            self._filled.say(f"{left:,} of {matched:,} left to be purged")
        await self._ground.rest()
        resting = self._told("nothing, in turns with it", quiet)
        return self._told("a purge of half of all", purging, purged=matched - left, note="cut short" if left else ""), resting

    async def _cut_short(
        self, meanwhile: str, purge: Callable[[Query], Awaitable[None]], share: Query, searches: Sequence[Query]
    ) -> Waits:
        matched = await self._store.count(share)
        watched = await self._beside(purge(share), searches, min(self._seconds, SHORT_SECONDS))
        await self._ground.rest()
        return self._told(meanwhile, [watched], purged=matched - await self._store.count(share))

    async def _beside(self, work: Awaitable[None], searches: Sequence[Query] = (), seconds: float = SHORT_SECONDS) -> Watched:
        """Captures until the work is done, or has taken long enough."""
        is_over = asyncio.Event()
        # What the bench itself holds is not to be gone through again and again meanwhile.
        gc.collect()
        gc.freeze()
        async with Machine(self._place) as machine:
            captures = asyncio.create_task(_captures(self._ground.dlq, is_over))
            searching = asyncio.create_task(self._searches(searches, is_over))
            with Watch() as watch, suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await work
            is_over.set()
            spans, pages = await captures, await searching
        gc.unfreeze()
        return Watched(spans, machine, pages, watch.seconds)

    def _told(self, meanwhile: str, watched: Sequence[Watched], *, purged: int = 0, note: str = "") -> Waits:
        spans = [(one.machine, *span) for one in watched for span in one.spans]
        waited = sorted(1000 * (ended - due) for _, due, ended in spans)
        awake = [1000 * (ended - due - machine.halts.within(due, ended)) for machine, due, ended in spans]
        own = [1000 * (ended - due - machine.disk.within(due, ended)) for machine, due, ended in spans]
        waits = Waits(
            meanwhile=meanwhile,
            captures=len(waited),
            median_ms=percentile(waited, 0.5),
            most_of_them_ms=percentile(waited, 0.99),
            longest_ms=waited[-1],
            stalled=sum(one > STALL_MS for one in waited),
            halt_ms=max(one.machine.halts.longest_ms for one in watched),
            longest_awake_ms=max(awake),
            stalled_awake=sum(one > STALL_MS for one in awake),
            disk_ms=max(one.machine.disk.longest_ms for one in watched),
            disk_stalls=sum(1000 * (until - since) > STALL_MS for one in watched for since, until in one.machine.disk.slow),
            longest_own_ms=max(own),
            stalled_own=sum(one > STALL_MS for one in own),
            pages=sum(one.pages for one in watched),
            seconds=sum(one.seconds for one in watched),
            purged=purged,
            note=note,
        )
        self._filled.say(
            f"captures beside {meanwhile}: median {waits.median_ms:.1f}, longest {waits.longest_ms:.1f} ms ({waits.stalled} over 50), "
            f"but for halts of the machine, {waits.halt_ms:.1f} at most, {waits.longest_awake_ms:.1f} ({waits.stalled_awake} over 50), "
            f"but for the disk, {waits.disk_ms:.1f} at most ({waits.disk_stalls} over 50), {waits.longest_own_ms:.1f} ({waits.stalled_own} over 50); "
            f"{waits.purged:,} purged in {waits.seconds:.0f} s"
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
