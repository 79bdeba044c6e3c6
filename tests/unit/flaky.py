"""Handlers that fail as often as they are told, under a guard."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from redrive import Letter, Message, Policy, blocking

NO_RETRY = Policy(max_attempts=1)


def letters(dlq: blocking.DeadLetters) -> list[Letter]:
    return list(dlq.find())


class Flaky:
    """Fails as often as it is told, then answers; knows how often it was called."""

    def __init__(self, failures: int, error: BaseException | None = None) -> None:
        self.failures = failures
        self.calls: list[Any] = []
        self.error = error

    def __call__(self, order: Any) -> str:
        self.calls.append(order)
        if len(self.calls) <= self.failures:
            raise self.error or ValueError(f"failure {len(self.calls)}")
        return f"done {order}"


def guarded(guard: Any, flaky: Flaky, *, is_async: bool) -> Callable[[Any], Any]:
    """The flaky handler as a plain or a coroutine function under the guard, callable from here."""
    if not is_async:

        @guard
        def plain(order: Any) -> str:
            return flaky(order)

        return plain  # type: ignore[no-any-return]

    @guard
    async def awaited(order: Any) -> str:
        await asyncio.sleep(0)
        return flaky(order)

    return lambda order: asyncio.run(awaited(order))


both = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])


def counted(order: Any) -> Message:
    return Message(body=b"x", id="1", delivery_count=order)


async def fail_async(order: Any) -> None:
    raise ValueError("bad")
