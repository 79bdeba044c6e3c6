"""The lifecycle: wakes when something is due, does it, and sleeps until the next.

It looks at no queue in which nothing is due, and polls none. What falls due earlier than all it knows of is told to it; what
another process leased, scheduled or gave up, which may be dead since, it learns by asking a shared store what is due next.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta

from redrive.model.errors import QueueRefused, RedriveError
from redrive.model.item import Due
from redrive.ports.queues import QueueStore
from redrive.queues.bury import bury
from redrive.queues.clock import Clock
from redrive.queues.directory import Directory

log = logging.getLogger("redrive.queues")

_NEVER = 1 << 62
_FIRST_REST_SECONDS = 0.05
_LONGEST_REST_SECONDS = 5.0
_AT_A_TIME = 100
_REFRESH = timedelta(seconds=1)
"""How soon what another process defined, or brought, is seen."""


class Lifecycle:
    """One for each that serves queues; several processes may run one on the same stores."""

    def __init__(self, directory: Directory, stores: Sequence[QueueStore], clock: Clock) -> None:
        self._directory = directory
        self._clock = clock
        self._stores = stores
        self._wake_us = _NEVER
        self._bell = asyncio.Event()
        self._rest_seconds = _FIRST_REST_SECONDS
        self._tasks: list[asyncio.Task[None]] = []
        self._stuck: dict[QueueStore, set[Due]] = {}
        """What stays due in a store and is tried again after a rest."""

    def start(self) -> None:
        self._clock.tell(self._bell.set)
        self._directory.on_change = self._bell.set
        self._tasks = [asyncio.create_task(self._run())]
        self._tasks += [asyncio.create_task(self._watch(store)) for store in self._stores if store.capabilities.shared]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with suppress(asyncio.CancelledError):
                await task
        self._tasks = []

    def due(self, at_us: int) -> None:
        """Something is due at this instant."""
        if at_us < self._wake_us:
            self._wake_us = at_us
            self._bell.set()

    def look(self) -> None:
        """Something is due that could not be told in advance: a queue was changed, or its dying items could not be moved."""
        self._bell.set()

    async def _run(self) -> None:
        while True:
            self._bell.clear()
            self._wake_us = _NEVER
            is_troubled = await self._step()
            self._rest_seconds = min(self._rest_seconds * 2, _LONGEST_REST_SECONDS) if is_troubled else _FIRST_REST_SECONDS
            left_seconds = max((self._wake_us - self._clock.now_us()) / 1e6, 0.0)
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left_seconds, self._rest_seconds) if is_troubled else left_seconds):
                    await self._bell.wait()

    async def _step(self) -> bool:
        """Do what is due, and find out when the next is; True: something could not be done, come back soon."""
        is_troubled = False
        changed = self._directory.changed()
        for store in self._stores:
            try:
                for id in changed:
                    await self._sweep_queue(id, store)
                is_troubled |= await self._sweep(store)
            except RedriveError as error:
                log.error("queues cannot be swept: %s", error)
                self._directory.not_treated(changed)
                is_troubled = True
        return is_troubled

    async def _sweep(self, store: QueueStore) -> bool:
        """Sweep until nothing is due in a store; True: something stays due. Its clock is behind ours, or items cannot be moved."""
        swept: set[Due] = set()
        self._stuck[store] = set()
        while True:
            # Beside those that stay due there is room for as many others.
            dues = await store.next_due(limit=_AT_A_TIME + len(swept))
            now_us = self._clock.now_us()
            self._wake_us = min([self._wake_us, *(due.at_us for due in dues if due.at_us > now_us)])
            if not dues or dues[0].at_us > now_us:
                return False
            fresh = [due for due in dues if due.at_us <= now_us and due not in swept]
            if not fresh:
                self._stuck[store] = swept.intersection(dues)
                return True
            for due in fresh:
                swept.add(due)
                await self._sweep_queue(due.queue, store)

    async def _sweep_queue(self, id: str, store: QueueStore) -> None:
        line = await self._directory.by_id(id)
        ready = 0
        for part in line.parts if line else ():
            is_done = part.store is not store
            while not is_done:
                try:
                    swept = await store.sweep(part.shard, now=self._clock.now())
                except QueueRefused:
                    # It was deleted meanwhile, and has nothing due any more.
                    return
                ready, is_done = ready + swept.ready, swept.is_done
        if line and ready:
            line.room.wake()
        if line:
            await bury(line, self._directory, self._clock)

    async def _watch(self, store: QueueStore) -> None:
        """What another process made ready, those who wait here shall know; and what it left to be done shall be done."""
        patience = _REFRESH.total_seconds()
        looked = time.monotonic()
        while True:
            try:
                await store.changed(_REFRESH)
                await self._directory.refresh()
                if time.monotonic() - looked >= patience:
                    looked = time.monotonic()
                    await self._look_at(store)
            except RedriveError as error:
                log.error("queues cannot be watched: %s", error)
                await asyncio.sleep(patience)
            for line in self._directory.lines:
                if len(line.room) and any(part.store is store for part in line.parts):
                    line.room.wake()

    async def _look_at(self, store: QueueStore) -> None:
        stuck = self._stuck.get(store, set())
        for due in await store.next_due(limit=_AT_A_TIME + len(stuck)):
            if due not in stuck:
                self.due(due.at_us)
                return
