"""The guard on the success path: what it adds to a call of the bare function."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from itertools import repeat
from time import perf_counter_ns

import redrive
from bench.harness import Effort, Goal, Row, compared, excess


def handle(order: int) -> int:
    return order


async def handle_async(order: int) -> int:
    return order


def rows(effort: Effort) -> Iterator[Row]:
    dlq = redrive.open("memory:")
    calls = effort.of(400_000)
    guard = dlq.guard(source="orders")
    guarded, guarded_async = guard(handle), guard(handle_async)
    yield compared(
        "guard, success path, sync",
        lambda: _call(guarded, calls),
        lambda: _call(handle, calls),
        effort,
        against="bare call",
        goal=Goal("at most", 150),
        unit="ns",
        figure=excess,
    )
    yield compared(
        "guard, success path, async",
        lambda: asyncio.run(_await(guarded_async, calls)),
        lambda: asyncio.run(_await(handle_async, calls)),
        effort,
        against="bare call",
        goal=Goal("at most", 300),
        unit="ns",
        figure=excess,
    )


def _call(function: Callable[[int], object], calls: int) -> float:
    """Nanoseconds a call, the loop's own time left out."""
    empty = perf_counter_ns()
    for _ in repeat(None, calls):
        pass
    started = perf_counter_ns()
    for _ in repeat(None, calls):
        function(1)
    return (perf_counter_ns() - started - (started - empty)) / calls


async def _await(function: Callable[[int], Awaitable[object]], calls: int) -> float:
    empty = perf_counter_ns()
    for _ in repeat(None, calls):
        pass
    started = perf_counter_ns()
    for _ in repeat(None, calls):
        await function(1)
    return (perf_counter_ns() - started - (started - empty)) / calls
