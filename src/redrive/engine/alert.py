"""Alarm: people are told when letters need them, and are not flooded.

What happens between a letter and a person: letters are piled up by key for a short window, redacted as for display, and
handed to one `Line` a notifier (`redrive.engine.alert_line`), which keeps the quiet time and tries again. Only the first
step is done in the caller's thread, and it only counts.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future, wait
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from msgspec.structs import replace

from redrive.engine import metrics
from redrive.engine.alert_line import RETRIES, Line
from redrive.engine.bridge import Bridge
from redrive.engine.hook import Hook, HookFunction
from redrive.engine.redact import for_display
from redrive.engine.telemetry import SILENT, Telemetry
from redrive.model.alert import Pile, key_of, piles_of
from redrive.model.letter import Letter
from redrive.model.policy import Policy
from redrive.model.redaction import Redaction
from redrive.ports.aside import aside
from redrive.ports.inline import is_inline
from redrive.ports.notifier import Notifier

__all__ = ["Alarm", "Hook", "HookFunction"]

log = logging.getLogger("redrive.alert")

QUIET = timedelta(minutes=5)
WINDOW = timedelta(seconds=1)
KEYS_LIMIT = 1000
"""Groups that wait at once; those beyond are counted as dropped. Letters of a group are never too many: they are only counted."""
_FLUSH_SECONDS = 5.0
_CANCEL_SECONDS = 1.0

_UNREDACTED = "redrive.NotRedacted"
"""Told instead of an error whose text could not be redacted: then nobody may see it."""

Begin = Callable[[Coroutine[Any, Any, None]], None]
"""Starts work in the background, as `Bridge.start` does."""


class Alarm:
    """Tells every notifier of exhausted letters: at most one alert a key in the quiet time, the next with how many there were.

    Safe from threads. The work is done on the event loop that runs at the first `exhausted`, or wherever `start` said; without
    either on a loop in a thread of its own. A forked child, and a later event loop, begin anew.
    """

    def __init__(
        self,
        notifiers: Sequence[Notifier | HookFunction],
        *,
        redaction: Redaction | None = None,
        telemetry: Telemetry = SILENT,
        quiet: timedelta = QUIET,
        window: timedelta = WINDOW,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        retries: Policy = RETRIES,
    ) -> None:
        """A notifier may be any function that takes an `Alert`. `retries`: how often, and how far apart, one that is out of reach is tried."""
        self._lines = [Line(_notifier(one), quiet=quiet, clock=clock, retries=retries, telemetry=telemetry) for one in notifiers]
        self._redactor = for_display(redaction)
        self._telemetry = telemetry
        self._window = window
        self._lock = threading.Lock()
        self._inbox: dict[str, Pile] = {}
        self._dropped = 0
        self._begin: Begin | None = None
        self._bridge: Bridge | None = None
        self._work: _Work | None = None
        self._is_closing = False
        self._pid = os.getpid()

    def exhausted(self, letters: Sequence[Letter]) -> None:
        """Tell of these letters, soon. Never waits and never raises."""
        if not self._lines or not letters:
            return
        try:
            piles = piles_of(letters)
            self._notice_fork()
            with self._lock:
                if self._is_closing:
                    self._drop(len(piles))
                    return
                for key, pile in piles.items():
                    self._put(key, pile)
            self.start()
        except Exception:
            # Whoever found that the letters are exhausted has other work to do.
            log.exception("alert not made")

    def start(self, begin: Begin | None = None) -> None:
        """See to it that the work in the background goes on. `begin`, e.g. `bridge.start`, says where, from now on."""
        with self._lock:
            self._begin = begin or self._begin
            if self._work is not None and self._work.is_alive:
                work = self._work
            elif self._inbox or any(line.left for line in self._lines):
                work = self._work = _Work()
                self._set_off(work)
            else:
                return
        work.wake()

    async def close(self) -> None:
        """Send what waits, the quiet time notwithstanding, within a few seconds; what could not be sent is logged.

        Call it before whatever `start` was given is closed.
        """
        self._notice_fork()
        with self._lock:
            self._is_closing = True
        self.start()
        work, self._work = self._work, None
        if work is not None and work.is_alive:
            work.finish()
            if not await work.ends_within(_FLUSH_SECONDS):
                work.cancel()
                await work.ends_within(_CANCEL_SECONDS)
        left = sum(line.left for line in self._lines) + len(self._inbox)
        if left:
            log.error("%d alerts were not sent before the end", left)
            self._telemetry.add(metrics.ALERTS, left, outcome="failed")
        if self._bridge is not None:
            self._bridge.close()

    def _notice_fork(self) -> None:
        """A forked child leaves to its parent what is its parent's."""
        if self._pid == os.getpid():
            return
        self._pid, self._lock = os.getpid(), threading.Lock()
        self._inbox, self._work, self._bridge = {}, None, None
        for line in self._lines:
            line.forget()

    def _put(self, key: str, pile: Pile) -> None:
        if (known := self._inbox.get(key)) is not None:
            self._inbox[key] = known.joined(pile)
        elif len(self._inbox) < KEYS_LIMIT:
            self._inbox[key] = pile
        else:
            self._drop(1)

    def _drop(self, alerts: int) -> None:
        if not self._dropped:
            log.error("alerts were dropped: more than %d groups wait, or the alarm is closed", KEYS_LIMIT)
        self._dropped += alerts
        self._telemetry.add(metrics.ALERTS, alerts, outcome="dropped")

    def _set_off(self, work: _Work) -> None:
        """Begin the work: where we were told, else on the running loop, else on a loop of our own."""
        coroutine = work.run(self._sort)
        if self._begin is not None:
            try:
                self._begin(coroutine)
            except BaseException:
                coroutine.close()
                self._work = None
                raise
            return
        try:
            # Blocking code that is called from a coroutine must not wait for that coroutine's loop.
            loop = None if is_inline() else asyncio.get_running_loop()
        except RuntimeError:
            loop = None
        if loop is not None:
            work.task = loop.create_task(coroutine, name="redrive-alerts")
            return
        self._bridge = self._bridge or Bridge(inline=False)
        self._bridge.start(coroutine)

    async def _sort(self, work: _Work) -> None:
        """Hand what comes in to the lines, a window at a time, until the end."""
        async with asyncio.TaskGroup() as lines:
            for line in self._lines:
                lines.create_task(line.run())
            while True:
                await work.woken()
                await work.finished_within(self._window)
                with self._lock:
                    piles, self._inbox = self._inbox, {}
                shown = await self._redacted(piles)
                for line in self._lines:
                    line.add(shown)
                if work.is_finishing and not self._inbox:
                    break
            for line in self._lines:
                line.finish()

    async def _redacted(self, piles: dict[str, Pile]) -> dict[str, Pile]:
        try:
            return await aside(self._shown, piles)
        except asyncio.CancelledError:
            with self._lock:
                later, self._inbox = self._inbox, piles
                for key, pile in later.items():
                    self._put(key, pile)
            raise

    def _shown(self, piles: dict[str, Pile]) -> dict[str, Pile]:
        """The piles as people may see them: redaction can make two keys one."""
        shown: dict[str, Pile] = {}
        for pile in piles.values():
            try:
                letter = self._redactor.shown(pile.letter)
            except Exception:
                letter = replace(pile.letter, failure=replace(pile.letter.failure, type=_UNREDACTED, message=""))
            key, pile = key_of(letter), replace(pile, letter=letter)
            shown[key] = shown[key].joined(pile) if key in shown else pile
        return shown


def _notifier(given: Notifier | HookFunction) -> Notifier:
    return cast("Notifier", given) if hasattr(given, "notify") else Hook(given)


class _Work:
    """The work in the background, from one start to its end, and how others reach it from their threads."""

    def __init__(self) -> None:
        self.ended: Future[None] = Future()
        self.task: asyncio.Task[None] | None = None
        self.is_finishing = False
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake: asyncio.Event
        self._finish: asyncio.Event

    @property
    def is_alive(self) -> bool:
        """Does it go on, as far as one can see from here?"""
        if self._pid != os.getpid() or self.ended.done():
            return False
        if self.task is not None and self.task.done():
            return False
        return self._loop is None or not self._loop.is_closed()

    async def run(self, do: Callable[[_Work], Coroutine[Any, Any, None]]) -> None:
        try:
            with self._lock:
                self._loop, self.task = asyncio.get_running_loop(), asyncio.current_task()
                self._wake, self._finish = asyncio.Event(), asyncio.Event()
                # There is something to do, or it would not have been begun.
                self._wake.set()
                if self.is_finishing:
                    self._finish.set()
            await do(self)
        except Exception:
            log.exception("alerts stopped")
        finally:
            self.ended.set_result(None)

    async def woken(self) -> None:
        await self._wake.wait()
        self._wake.clear()

    async def finished_within(self, window: timedelta) -> None:
        """Let the window pass, unless the end is near."""
        try:
            async with asyncio.timeout(window.total_seconds()):
                await self._finish.wait()
        except TimeoutError:
            pass

    def wake(self) -> None:
        self._tell(lambda: self._wake.set())

    def finish(self) -> None:
        """Do what is left to do, and end."""
        with self._lock:
            self.is_finishing = True
        self._tell(lambda: self._finish.set())
        self.wake()

    def cancel(self) -> None:
        self._tell(lambda: self.task and self.task.cancel())

    async def ends_within(self, seconds: float) -> bool:
        """Wait for the end, in this thread when a verb is driven by hand."""
        if is_inline():
            wait([self.ended], timeout=seconds)
        else:
            # Shielded by `asyncio.wait`, which gives up without cancelling.
            await asyncio.wait([asyncio.wrap_future(self.ended)], timeout=seconds)
        return self.ended.done()

    def _tell(self, what: Callable[[], object]) -> None:
        with self._lock:
            loop = self._loop
        if loop is None:
            return  # it looks for itself when it begins
        try:
            loop.call_soon_threadsafe(what)
        except RuntimeError:
            log.debug("the loop of the alerts is closed")
