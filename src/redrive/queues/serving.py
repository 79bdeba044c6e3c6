"""What all verbs of queues stand on: the stores, the lines, the lifecycle, and the end."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from redrive.model.errors import AnswerLost, QueueClosing
from redrive.ports.queues import QueueStore
from redrive.queues import checks
from redrive.queues.bury import bury
from redrive.queues.clock import Clock
from redrive.queues.directory import Directory
from redrive.queues.lifecycle import Lifecycle
from redrive.queues.line import CLOSING, Line, Part
from redrive.queues.verbs import Limits

T = TypeVar("T")


class Serving:
    """Queues' stores, served."""

    def __init__(
        self,
        stores: Mapping[str, QueueStore],
        *,
        clock: Clock | None = None,
        limits: Limits = Limits(),
        owns_stores: bool = False,
    ) -> None:
        """The first store keeps the catalogue; partitions of new queues go round among all."""
        self._stores = dict(stores)
        self._clock = clock or Clock()
        self._limits = limits
        self._owns_stores = owns_stores
        self._directory = Directory(next(iter(self._stores.values())), self._stores)
        self._lifecycle = Lifecycle(self._directory, list(self._stores.values()), self._clock)
        self._is_closing = False

    async def __aenter__(self) -> Self:
        await self._directory.refresh()
        self._lifecycle.start()
        return self

    def serve_here(self) -> None:
        """This event loop does little else but serve these queues: stores of this machine may work on it."""
        for store in self._stores.values():
            store.serve_on(asyncio.get_running_loop())

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        """Send those away who wait, and stop. What is stored stays."""
        self.dismiss()
        for store in self._stores.values():
            store.serve_on(None)
        await self._lifecycle.stop()
        if self._owns_stores:
            for store in self._stores.values():
                await store.close()

    def dismiss(self) -> None:
        """From now on nothing new is begun: who waits for an item, and whoever comes, hears that this is shutting down."""
        self._is_closing = True
        for line in self._directory.lines:
            line.room.close()

    async def check(self) -> None:
        """Raise unless every store can be used."""
        for store in self._stores.values():
            await store.check()

    async def _bury(self, line: Line) -> None:
        if not await bury(line, self._directory, self._clock):
            self._lifecycle.look()

    async def _open(self) -> None:
        if self._is_closing:
            raise QueueClosing(CLOSING)

    async def _line(self, name: str) -> Line:
        await self._open()
        found = self._directory.known(name)
        if found is not None:
            return found
        checks.name(name)
        return await self._directory.line(name)

    async def _part(self, name: str, partition: int) -> Part:
        line = await self._line(name)
        checks.partition(partition, len(line.queue.partitions))
        return line.at(partition)

    async def _again(self, name: str) -> Line:
        """The queue that has this name now; the one we knew was deleted."""
        await self._directory.refresh()
        return await self._directory.line(name)

    async def _in_time(self, part: Part, seconds: float, work: Coroutine[Any, Any, T]) -> T:
        """What a store across a network does, within the time that the caller has."""
        if part.store.capabilities.embedded:
            return await work
        try:
            async with asyncio.timeout(seconds):
                return await work
        except TimeoutError:
            raise AnswerLost("request timeout; the store did not answer, and it may have been done") from None
