"""Work in the background of the event loop that asks for it, for stores that can be used on that loop alone."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class Errands:
    """Begins work and ends it; `Bridge` does the same on a loop of its own."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin work that goes on until it is done, or until its loop ends."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def stop(self) -> None:
        """Cancel what goes on."""
        for task in list(self._running):
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)
