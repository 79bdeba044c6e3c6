"""How full the queue is, without counting it for every task."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from redrive.model.errors import QueueFull

_RECOUNT_SECONDS = 1.0
"""How long a count is trusted, apart from what this process has added since: others may add and remove too."""


class Capacity:
    """Gives out places. One process is held to the limit exactly; several to what they add within a second."""

    def __init__(self, limit: int, count: Callable[[], Awaitable[int]]) -> None:
        self._limit = limit
        self._count = count
        self._taken = 0
        """As counted last, with what was kept here since. What has left is not taken off, since a count may have seen that
        already: too high a figure is put right before anybody is refused, too low a one never."""
        self._counted_at = float("-inf")
        self._kept_meanwhile = 0
        """Tasks that were kept while the count went on: it may have seen them or not."""
        self._on_the_way = 0
        """Places given out whose tasks have not arrived."""
        self._arrived = asyncio.Event()
        self._door = asyncio.Lock()

    async def reserve(self) -> bool:
        """Take a place, to be given an account of by `settle`; False: there is none.

        Counts only when the last count is old, or says that there is none.
        """
        async with self._door:
            if time.monotonic() - self._counted_at > _RECOUNT_SECONDS or self._is_full:
                await self._recount()
            while self._is_full and (self._on_the_way or self._kept_meanwhile):
                # They may have been counted twice, or not be kept in the end: only when they are there can one say.
                await self._all_arrived()
                await self._recount()
            if self._is_full:
                return False
            self._on_the_way += 1
            return True

    def settle(self, *, is_kept: bool | None) -> None:
        """A place was used or not; None: nobody knows."""
        self._on_the_way -= 1
        if is_kept:
            self._taken += 1
            self._kept_meanwhile += 1
        elif is_kept is None:
            self._counted_at = float("-inf")
        self._arrived.set()

    def full(self) -> QueueFull:
        return QueueFull(
            f"Dead letter queue is full (max_size={self._limit}). Please manually process or archive tasks before adding more."
        )

    @property
    def _is_full(self) -> bool:
        return self._taken + self._on_the_way >= self._limit

    async def _recount(self) -> None:
        self._kept_meanwhile = 0
        counted = await self._count()
        self._taken, self._counted_at = counted + self._kept_meanwhile, time.monotonic()

    async def _all_arrived(self) -> None:
        while self._on_the_way:
            self._arrived.clear()
            await self._arrived.wait()
