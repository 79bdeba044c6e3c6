"""The guard on the success path: what it adds to a call of the bare function."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from itertools import repeat
from time import thread_time_ns

from msgspec.structs import replace

import redrive
from bench.harness import Effort, Goal, Row, compared, excess


def handle(order: int) -> int:
    return order


async def handle_async(order: int) -> int:
    return order


def rows(effort: Effort) -> Iterator[Row]:
    dlq = redrive.open("memory:")
    calls = effort.of(50_000)
    effort = replace(effort, rounds=8 * effort.rounds)
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
    """Nanoseconds of this thread's time a call, the loop's own left out."""
    empty = thread_time_ns()
    for _ in repeat(None, calls):
        pass
    started = thread_time_ns()
    for _ in repeat(None, calls):
        function(1)
    return (thread_time_ns() - started - (started - empty)) / calls


async def _await(function: Callable[[int], Awaitable[object]], calls: int) -> float:
    empty = thread_time_ns()
    for _ in repeat(None, calls):
        pass
    started = thread_time_ns()
    for _ in repeat(None, calls):
        await function(1)
    return (thread_time_ns() - started - (started - empty)) / calls
