"""What it takes to keep letters: the rate of putting and of indexing them, and their space."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Sequence

from bench.harness import Goal, Watch
from bench.million.growth import Cost, Stop
from bench.million.rounds import middle
from bench.million.source import Filled
from redrive import EVERYTHING
from redrive.model.letter import Letter

PUT, PUT_BATCH, PUT_ROUNDS = 2_000, 100, 5
INDEXED_FOR_THE_RATE = 20_000
TIDY = 200


class Storage:
    """Measures what is written."""

    def __init__(self, filled: Filled) -> None:
        self._filled = filled
        self._ground = filled.ground
        self._store = filled.store

    async def indexing(self, *, is_whole: bool) -> AsyncIterator[Cost]:
        """How fast bodies become searchable; the whole rest of them too, if that is wanted."""
        before = (await self._store.tidy(0)).texts
        wanted = max(0, before - INDEXED_FOR_THE_RATE)
        left = before
        with Watch() as watch:
            while left > wanted:
                left = (await self._store.tidy(TIDY)).texts
        yield Cost(
            key="index", name="bodies and tracebacks indexed by tidy", unit="letters/s", ours=watch.rate(max(1, before - left))
        )
        while is_whole and left:
            left = (await self._store.tidy(5 * TIDY)).texts
            if left % 50_000 < 5 * TIDY:
                self._filled.say(f"{left:,} letters left to be indexed")
        yield Cost(key="lag", name="letters not indexed yet, when bodies are searched", unit="letters", ours=float(left))

    async def space(self) -> AsyncIterator[Cost]:
        """Bytes a letter, and what they are for."""
        sizes = await self._ground.sizes()
        indexed = max(1, self._filled.held - (await self._store.tidy(0)).texts)
        ((data,),) = await self._ground.fetch(self._ground.stored_bytes)
        texts = sizes["texts"] / indexed
        whole = (sizes["letters"] + sizes["indexes"] + sizes["rest"]) / self._filled.held + texts
        note = f"file {sizes['file'] / 1e6:,.1f} MB"
        yield Cost(
            key="bytes", name="bytes a letter; raw: the letter alone", unit="bytes", ours=whole, raw=float(data), note=note
        )
        yield Cost(
            key="bytes-indexes",
            name="of these: indexes by fields and of messages",
            unit="bytes",
            ours=sizes["indexes"] / self._filled.held,
        )
        yield Cost(key="bytes-texts", name="of these: index of bodies and tracebacks", unit="bytes", ours=texts)

    async def put(self, before: Sequence[Stop]) -> AsyncIterator[Cost]:
        """New letters, which are taken out again after each round: so the size stays what it is said to be."""
        coming = self._filled.source.ahead((PUT_ROUNDS + 1) * PUT)
        ours: list[float] = []
        bare: list[float] = []
        for turn in range(PUT_ROUNDS + 1):
            given = coming[turn * PUT : (turn + 1) * PUT]
            batches = [given[start : start + PUT_BATCH] for start in range(0, PUT, PUT_BATCH)]
            pair = [(ours, self._put_ours), (bare, self._put_bare)]
            for rates, measure in pair if turn % 2 else reversed(pair):
                gc.collect()
                rates.append(await measure(batches))
        first = next((cost.ours for stop in before if (cost := stop.cost("put")) and cost.ours), None)
        rate = middle(ours[1:])
        yield Cost(
            key="put",
            name="put in batches of 100, one caller",
            unit="letters/s",
            ours=rate,
            raw=middle(bare[1:]),
            spread=(min(ours[1:]), max(ours[1:])),
            figure=100 * rate / (first or rate),
            figure_unit="% of the first",
            goal=Goal("at least", 70),
        )

    async def _put_ours(self, batches: Sequence[Sequence[Letter]]) -> float:
        with Watch() as watch:
            for batch in batches:
                await self._store.put(batch)
        for batch in batches:
            gone = await self._store.purge(EVERYTHING, limit=len(batch), among=[letter.id for letter in batch])
            assert len(gone) == len(batch)
        await self._ground.rest()
        return watch.rate(PUT)

    async def _put_bare(self, batches: Sequence[Sequence[Letter]]) -> float:
        rows = self._ground.encoded(batches)
        with Watch() as watch:
            await self._ground.insert(rows)
        await self._ground.remove([letter for batch in batches for letter in batch])
        await self._ground.rest()
        return watch.rate(PUT)
