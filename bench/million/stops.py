"""Filling a store step by step, and what is measured at each stop."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator, Callable, Sequence

from bench.million.grounds import GROUNDS
from bench.million.groups import Groups
from bench.million.growth import Cost, Growth, Stop
from bench.million.pages import Pages
from bench.million.purge import Purge
from bench.million.source import Filled, Source
from bench.million.storage import PUT, PUT_ROUNDS, Storage

INDEX_ALL_UP_TO = 200_000
"""Beyond this, bodies are indexed to the end only when it is asked for: it takes longer than all the rest."""


async def grown(engine: str, sizes: Sequence[int], options: argparse.Namespace, keep: Callable[[Growth], None]) -> Growth:
    """Fill a store, and measure at each stop. `keep` hears of every stop, so that nothing is lost should a later one fail."""
    async with GROUNDS[engine](options.place) as ground:
        filled = Filled(ground, Source(sizes[-1] + (PUT_ROUNDS + 1) * PUT, options.groups))
        growth = Growth(engine=ground.name, stops=())
        for size in sizes:
            await filled.fill(size)
            if options.only_captures:
                continue
            is_whole = options.index_all or size <= INDEX_ALL_UP_TO
            stop = Stop(size=size, costs=tuple([cost async for cost in _costs(filled, growth.stops, is_whole=is_whole)]))
            growth = Growth(engine=ground.name, stops=(*growth.stops, stop))
            keep(growth)
        waits, space = await Purge(filled, seconds=options.purge_seconds, place=options.place).beside()
        growth = Growth(engine=ground.name, stops=growth.stops, waits=waits, space=space)
        keep(growth)
        return growth


async def _costs(filled: Filled, before: Sequence[Stop], *, is_whole: bool) -> AsyncIterator[Cost]:
    """Everything that is measured at a stop."""
    storage, pages, groups = Storage(filled), Pages(filled), Groups(filled)
    parts = (
        storage.indexing(is_whole=is_whole),
        storage.space(),
        pages.letters(),
        pages.bodies(),
        groups.groups(),
        groups.chosen(),
        groups.statistics(),
        storage.put(before),
    )
    for part in parts:
        async for cost in part:
            against = "" if cost.raw is None else f", raw {cost.raw:,.2f}"
            ours = "failed" if cost.ours is None else f"{cost.ours:,.2f}"
            filled.say(f"{filled.held:,}: {cost.name}: {ours}{against} {cost.unit} {cost.note}")
            yield cost
