"""Callers on a bad line: they give up, or go on in two loops while it is cut."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from redrive.model.errors import StoreUnavailable
from redrive.testing.kit.clerk import Run
from redrive.testing.kit.lines import BLINK_SECONDS, PATIENCE, until
from redrive.testing.kit.samples import is_chaos
from redrive.testing.proxy import Proxy

GIVEN_UP = 500 if is_chaos() else 50
"""So many callers give up, or one so many times."""
BOUND_SECONDS = 300.0 if is_chaos() else PATIENCE.total_seconds()
_CUTS = 100 if is_chaos() else 6

Call = Callable[[], Awaitable[Any]]


async def all_give_up(line: Proxy, call: Call, look: Call) -> None:
    """Many call on a silent line, and all give up; then as many look, at once, and each finds a connection."""
    async with asyncio.timeout(BOUND_SECONDS):
        line.stall()
        callers = [asyncio.ensure_future(call()) for _ in range(GIVEN_UP)]
        await until(lambda: line.counts.waiting_bytes > 0)
        for caller in callers:
            caller.cancel()
        answers = await asyncio.gather(*callers, return_exceptions=True)
        assert {type(answer) for answer in answers} == {asyncio.CancelledError}
        line.flow()
        await asyncio.gather(*(look() for _ in range(GIVEN_UP)))


async def one_gives_up_again_and_again(line: Proxy, call: Callable[[int], Awaitable[Any]], between: Call) -> None:
    """One calls on a silent line and gives up, and then calls on one that flows; no connection is left behind."""
    async with asyncio.timeout(BOUND_SECONDS):
        for number in range(GIVEN_UP):
            line.stall()
            caller = asyncio.ensure_future(call(number))
            await until(lambda: line.counts.waiting_bytes > 0)
            caller.cancel()
            line.flow()
            with pytest.raises(asyncio.CancelledError):
                await caller
            await between()
        await until(lambda: line.counts.open < 10)


class TwoLoops:
    """Two threads with a loop each put batches into one store, by their names, while a third cuts the line."""

    THREADS = 3

    def __init__(self, line: Proxy, put: Callable[[Run, str], None]) -> None:
        self._line = line
        self._put = put
        self._is_over = threading.Event()
        self.confirmed: list[str] = []
        self.unknown: dict[str, StoreUnavailable] = {}
        """What was told of the others."""

    def work(self, number: int, run: Run) -> None:
        """What each thread does."""
        if number == 2:
            try:
                self._cut_as_they_go()
            finally:
                self._is_over.set()
            return
        item = 0
        while not self._is_over.is_set():
            item += 1
            name = f"{number}/{item}"
            try:
                self._put(run, name)
            except StoreUnavailable as error:
                self.unknown[name] = error
            else:
                self.confirmed.append(name)

    def _cut_as_they_go(self) -> None:
        """Cut so many times, each when both loops have come some way since."""
        deadline = time.monotonic() + BOUND_SECONDS
        for number in range(_CUTS):
            before = self._come()
            while any(self._come()[loop] < before[loop] + 3 for loop in "01"):
                assert time.monotonic() < deadline, "the store did not recover"
                time.sleep(BLINK_SECONDS)
            if number % 2:
                self._line.cut()
            else:
                self._line.cut_after(request_bytes=100_000, answer_bytes=200)

    def _come(self) -> Counter[str]:
        return Counter(name.partition("/")[0] for name in self.confirmed)
