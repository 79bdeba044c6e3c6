"""The catalogue of queues as this process knows it, and the lines it serves."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from uuid import uuid4

from redrive.model.errors import NoSuchQueue, QueueBusy, QueueRefused
from redrive.model.queue import Catalogue, Queue, ensure_dead_queue_fits, leading_to
from redrive.ports.queues import QueueStore
from redrive.queues.line import Line

_TRIES = 20


class Directory:
    """Finds a queue's line by name or id. What another process defines is seen when a name is unknown, and by `refresh`."""

    def __init__(self, home: QueueStore, stores: dict[str, QueueStore]) -> None:
        self._home = home
        self._stores = stores
        self._version = -1
        self._by_name: dict[str, Line] = {}
        self._by_id: dict[str, Line] = {}
        self._reading = asyncio.Lock()
        self.on_change: Callable[[], None] = lambda: None
        """Called when queues were defined, changed or deleted."""
        self._changed: set[str] = set()

    @property
    def lines(self) -> Sequence[Line]:
        return list(self._by_name.values())

    def known(self, name: str) -> Line | None:
        """What this process knows under a name."""
        return self._by_name.get(name)

    async def line(self, name: str) -> Line:
        found = self._by_name.get(name)
        if found is None:
            await self.refresh()
            found = self._by_name.get(name)
        if found is None:
            raise no_such(name)
        return found

    async def by_id(self, id: str) -> Line | None:
        if id not in self._by_id:
            await self.refresh()
        return self._by_id.get(id)

    async def refresh(self) -> Catalogue:
        """Read the catalogue again."""
        async with self._reading:
            catalogue = await self._home.catalogue()
            if catalogue.version != self._version:
                self._learn(catalogue)
            return catalogue

    def _learn(self, catalogue: Catalogue) -> None:
        before, lines = self._by_id, []
        for queue in catalogue.queues:
            is_dead_queue = bool(leading_to(queue.name, catalogue.queues))
            lines.append(Line(queue, self._stores, is_dead_queue=is_dead_queue, line=before.get(queue.id)))
        # Only now: a queue that cannot be served here leaves all others as they were known.
        self._version = catalogue.version
        self._by_id = {line.queue.id: line for line in lines}
        self._by_name = {line.queue.name: line for line in lines}
        for id, line in before.items():
            now = self._by_id.get(id)
            if now is None:
                line.room.wake_all()
            elif now.parts != line.parts:
                self._changed.add(id)
        if self._changed:
            self.on_change()

    def changed(self) -> set[str]:
        """The ids of queues whose items are to be treated otherwise, since this was last asked."""
        changed, self._changed = self._changed, set()
        return changed

    def not_treated(self, ids: set[str]) -> None:
        """These changes are to be told again: what they ask for could not be done."""
        self._changed |= ids

    async def change(self, name: str, make: Callable[[Queue | None, dict[str, Queue]], Queue | None]) -> None:
        """Let `make` turn the queue of this name into what it is to be (None: nothing), whatever others change meanwhile."""
        for _ in range(_TRIES):
            catalogue = await self.refresh()
            queues = {queue.name: queue for queue in catalogue.queues}
            was = queues.get(name)
            becomes = make(was, queues)
            if becomes is not None and (was is None or was.dead_queue != becomes.dead_queue):
                ensure_dead_queue_fits(becomes, queues)
            drop = [was.id] if was and becomes is None else []
            if not drop and becomes is None:
                return
            if await self._home.define(catalogue.version, [becomes] if becomes else [], drop):
                await self.refresh()
                return
        raise QueueBusy("queue is overloaded; try again later")

    def placed(self, count: int, already: tuple[str, ...] = ()) -> tuple[str, ...]:
        """The stores for a queue's partitions, one after another; those it has already stay where they are."""
        names = list(self._stores)
        return already + tuple(names[number % len(names)] for number in range(len(already), count))


def no_such(name: str) -> NoSuchQueue:
    return NoSuchQueue(f"queue does not exist; no such queue named '{name}'")


def new_id() -> str:
    return uuid4().hex


def now_us() -> int:
    return time.time_ns() // 1000


def ensure_may_grow(name: str, queues: dict[str, Queue]) -> None:
    """Raise if other queues' dead items come here: what is moved twice must come to the same partition."""
    if users := leading_to(name, queues.values()):
        raise QueueRefused(
            f"partitions is invalid; '{name}' is the dead_queue of '{users[0]}' and keeps items to their partitions"
        )


def ensure_not_in_use(name: str, queues: dict[str, Queue]) -> None:
    """Raise if other queues' dead items come here."""
    if users := leading_to(name, queues.values()):
        listed = ", ".join(f"'{user}'" for user in users)
        raise QueueRefused(f"queue is in use; '{name}' is the dead_queue of {listed}; change them first, or use force")
