"""Ours beside a bare statement, in rounds that alternate; the medians count."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from bench.harness import Goal, Watch
from bench.million.grounds import PAGE, Ground
from bench.million.growth import Cost
from redrive.model.errors import RedriveError
from redrive.model.query import Order, Query

Side = Callable[[], Awaitable[object]]


class Rounds:
    """Measures questions to one store."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._store = ground.dlq.letters

    def find(self, query: Query, order: Order = Order.NEWEST) -> Side:
        """Our side: a page."""

        async def found() -> object:
            return (await self._store.find(query, order=order, limit=PAGE)).letters

        return found

    def fetch(self, sql: str, *arguments: Any) -> Side:
        """The bare side: a statement."""

        async def fetched() -> object:
            return await self._ground.fetch(sql, *arguments)

        return fetched

    async def fastest(self, statements: Sequence[str], values: Sequence[str]) -> str:
        """By whichever index is best here, as somebody would choose who knows the letters."""
        times = await _alternated(*(self.fetch(statement, *values) for statement in statements))
        return min(zip(times, statements, strict=True), key=lambda one: middle(one[0]))[1]

    async def beside_raw(
        self, key: str, name: str, ours: Side, raw: Side, *, goal: float | None = None, is_absolute: bool = False, note: str = ""
    ) -> Cost:
        """In milliseconds. The goal is about ours in relation to the bare statement, or about ours alone."""
        try:
            found = await ours()
            times, bare = await _alternated(ours, raw)
        except RedriveError as error:
            return Cost(key=key, name=name, unit="ms", ours=None, note=f"{type(error).__name__}: {error}")
        number = f"{len(found)} found" if isinstance(found, tuple) else ""
        ratio = middle([one / two for one, two in zip(times, bare, strict=True)])
        return Cost(
            key=key,
            name=name,
            unit="ms",
            ours=middle(times),
            raw=middle(bare),
            spread=(min(times), max(times)),
            figure=middle(times) if is_absolute else ratio,
            figure_unit="ms" if is_absolute else "× raw",
            goal=None if goal is None else Goal("at most", goal),
            note=", ".join(filter(None, (number, note))),
        )


async def _alternated(*sides: Side) -> list[list[float]]:
    """Each side's milliseconds, a list of rounds; once to warm up. What is slow has fewer rounds, what is quick is repeated."""
    first = [await _milliseconds(side, 1) for side in sides]
    repeats = [max(1, min(50, round(100 / max(one, 0.1)))) for one in first]
    rounds = 7 if sum(first) < 1000 else 3 if sum(first) < 6000 else 1
    times: list[list[float]] = [[] for _ in sides]
    for turn in range(rounds):
        for number in range(len(sides)) if turn % 2 == 0 else reversed(range(len(sides))):
            gc.collect()
            times[number].append(await _milliseconds(sides[number], repeats[number]))
    return times


async def _milliseconds(side: Side, repeats: int) -> float:
    with Watch() as watch:
        for _ in range(repeats):
            await side()
    return 1000 * watch.seconds / repeats


def middle(values: Sequence[float]) -> float:
    """The median, which one slow round does not move."""
    return statistics.median(values)
