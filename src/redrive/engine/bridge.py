"""From blocking code to async verbs: by hand where the store allows it, else through a loop in a thread of its own."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future, wait
from typing import Any, TypeVar, cast

from redrive.ports.inline import drive

T = TypeVar("T")


class Bridge:
    """Runs verbs for callers without an event loop. Safe from threads; a forked child starts anew."""

    def __init__(self, *, inline: bool) -> None:
        self._inline = inline
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self._background: set[Future[None]] = set()

    def run(self, verb: Coroutine[Any, Any, T]) -> T:
        """Run a verb that only waits for its store."""
        return drive(verb) if self._inline else self.run_on_loop(verb)

    def run_on_loop(self, verb: Coroutine[Any, Any, T]) -> T:
        """Run a verb that waits for other things too: time, transports, heartbeats."""
        running = asyncio.run_coroutine_threadsafe(_outcome(verb), self._running_loop())
        try:
            result, error = running.result()
        except KeyboardInterrupt:
            # Let it give back what it holds, then go.
            running.cancel()
            wait([running])
            raise
        if error is not None:
            raise error
        return cast("T", result)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin work that goes on in the background, until it is done or this is closed."""
        running = asyncio.run_coroutine_threadsafe(work, self._running_loop())
        self._background.add(running)
        running.add_done_callback(self._background.discard)

    def stop_background(self) -> None:
        """Cancel what was begun with `start` and is not done."""
        for running in list(self._background):
            running.cancel()

    def close(self) -> None:
        """End the thread, if one was needed."""
        if self._loop is None or self._pid != os.getpid():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        self._loop = None

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None or self._pid != os.getpid():
                self._pid = os.getpid()
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._serve, args=[self._loop], name="redrive-bridge", daemon=True)
                self._thread.start()
            return self._loop

    @staticmethod
    def _serve(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        loop.run_forever()
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


async def _outcome(verb: Coroutine[Any, Any, T]) -> tuple[T | None, BaseException | None]:
    """What a verb gives or raises, as values: a `SystemExit` raised on the loop would end it, and leave its caller waiting."""
    try:
        return await verb, None
    except BaseException as error:
        return None, error
