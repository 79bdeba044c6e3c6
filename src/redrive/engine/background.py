"""What works behind, from a start to a stop: one task on the event loop that started it."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Background(ABC):
    """`async with` starts and stops it. Whoever makes one says in `_run` what it does."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._task: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()

    @abstractmethod
    async def _run(self, stopping: asyncio.Event) -> None:
        """Work until `stopping` is set, and then come to an end."""

    @property
    def is_running(self) -> bool:
        return self._task is not None and not self._task.done()

    async def start(self) -> None:
        """Begin at once. Starting it twice is fine."""
        if self.is_running and self._stopping.is_set():
            await self.stop()
        if not self.is_running:
            self._stopping = asyncio.Event()
            self._task = asyncio.create_task(self._run(self._stopping), name=self._name)

    async def stop(self) -> None:
        """Come to an end. Stopping it twice is fine, also from another event loop.

        Whoever is cancelled while they wait here has stopped it all the same.
        """
        task = self._task
        if task is not None and not task.done():
            if task.get_loop() is not asyncio.get_running_loop():
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self.stop(), task.get_loop()))
                return
            self._stopping.set()
            await asyncio.wait([task])
        if self._task is task:
            self._task = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.stop()
