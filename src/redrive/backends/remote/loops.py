"""Drivers are bound to the event loop they were opened on; a store may be used from several: the caller's, and the bridge's."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Generic, TypeVar

from redrive.model.errors import StoreUnavailable

T = TypeVar("T")

_CLOSING_SECONDS = 5.0


class PerLoop(Generic[T]):
    """One resource for each event loop that asks: opened by the first who needs it there, closed with the loop or by `close`.

    A forked child opens its own and leaves those of its parent alone.
    """

    def __init__(self, name: str, *, open: Callable[[], Awaitable[T]], close: Callable[[T], Awaitable[None]]) -> None:
        self._name = name
        self._open = open
        self._close = close
        self._lock = threading.Lock()
        self._by_loop: dict[asyncio.AbstractEventLoop, _Opening[T]] = {}
        self._parents: list[object] = []
        self._pid = os.getpid()
        self._is_closed = False

    async def get(self) -> T:
        """This loop's own. A failure to open it is raised to all who wait for it, and the next one tries again."""
        opening = self._by_loop.get(asyncio.get_running_loop())
        if opening is None or not opening.is_open or self._pid != os.getpid():
            opening = self._begun(asyncio.get_running_loop())
        return await asyncio.shield(opening.task)

    async def renew(self) -> None:
        """Close this loop's own; the next who asks opens another."""
        with self._lock:
            opening = self._by_loop.pop(asyncio.get_running_loop(), None)
        if opening is not None:
            await opening.end()

    async def close(self) -> None:
        """Close what every loop has open."""
        with self._lock:
            self._leave_parents()
            self._is_closed = True
            left, self._by_loop = self._by_loop, {}
        for loop, opening in left.items():
            if loop is asyncio.get_running_loop():
                await opening.end()
            elif loop.is_running():
                ending = asyncio.run_coroutine_threadsafe(opening.end(), loop)
                # That loop may itself be about to close, and then takes this with it.
                await asyncio.wait([asyncio.wrap_future(ending)], timeout=_CLOSING_SECONDS)

    def _begun(self, loop: asyncio.AbstractEventLoop) -> _Opening[T]:
        with self._lock:
            self._leave_parents()
            if self._is_closed:
                raise StoreUnavailable(f"{self._name} was closed; open it again")
            for gone in [known for known in self._by_loop if known.is_closed()]:
                del self._by_loop[gone]
            opening = self._by_loop.get(loop)
            if opening is None or opening.has_failed:
                opening = self._by_loop[loop] = _Opening(loop, self._life())
            return opening

    def _leave_parents(self) -> None:
        """In a forked child: begin anew. Called by whoever holds the lock."""
        if self._pid != os.getpid():
            # Kept, so that nobody's destructor says goodbye on a connection that is still the parent's.
            self._parents.append(self._by_loop)
            self._by_loop, self._pid = {}, os.getpid()

    async def _life(self) -> AsyncGenerator[T, None]:
        # A loop that is closed in the ordinary way first ends the generators that were begun on it, and so this too.
        resource = await self._open()
        try:
            yield resource
        finally:
            await self._close(resource)


class _Opening(Generic[T]):
    """A resource from its opening to its end, on one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, life: AsyncGenerator[T, None]) -> None:
        self._life = life
        self.task: asyncio.Task[T] = loop.create_task(_first(life))

    @property
    def is_open(self) -> bool:
        return self.task.done() and not self.has_failed

    @property
    def has_failed(self) -> bool:
        return self.task.done() and (self.task.cancelled() or self.task.exception() is not None)

    async def end(self) -> None:
        await asyncio.wait([self.task])
        await self._life.aclose()


async def _first(life: AsyncGenerator[T, None]) -> T:
    return await anext(life)
