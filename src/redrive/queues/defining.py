"""Queues are created, changed, looked at and deleted."""

from __future__ import annotations

from typing import Unpack

from msgspec.structs import replace

from redrive.model.errors import QueueRefused
from redrive.model.queue import Queue
from redrive.queues import checks
from redrive.queues.definition import QueueSettings, created, updated
from redrive.queues.directory import ensure_may_grow, ensure_not_in_use, no_such
from redrive.queues.line import Line
from redrive.queues.serving import Serving


class Defining(Serving):
    async def create(self, name: str, **settings: Unpack[QueueSettings]) -> Queue:
        """Define a queue."""
        await self._open()
        queue = created(name, settings)
        queue = replace(queue, partitions=self._directory.placed(settings.get("partitions", 1)))

        def make(was: Queue | None, others: dict[str, Queue]) -> Queue:
            if was is not None:
                raise QueueRefused(f"invalid queue; '{name}' already exists")
            return queue

        await self._directory.change(name, make)
        return queue

    async def update(self, name: str, **settings: Unpack[QueueSettings]) -> Queue:
        """Change what is given, and leave the rest. What is refused changes nothing."""
        await self._open()
        checks.name(name)
        became: list[Queue] = []

        def make(was: Queue | None, others: dict[str, Queue]) -> Queue:
            if was is None:
                raise no_such(name)
            placed = self._directory.placed(settings.get("partitions", 0), was.partitions)
            if len(placed) > len(was.partitions):
                ensure_may_grow(name, others)
            became.append(replace(updated(was, settings), partitions=placed))
            return became[-1]

        await self._directory.change(name, make)
        return became[-1]

    async def info(self, name: str) -> Queue:
        await self._open()
        checks.name(name)
        for queue in (await self._directory.refresh()).queues:
            if queue.name == name:
                return queue
        raise no_such(name)

    async def queues(self, *, pivot: str = "", limit: int = 0) -> list[Queue]:
        """Queues by name, from the pivot on."""
        await self._open()
        limit = checks.page(pivot, limit)
        return [queue for queue in (await self._directory.refresh()).queues if queue.name >= pivot][:limit]

    async def delete(self, name: str, *, force: bool = False) -> None:
        """Delete a queue with all its items. A dead queue that others lead to is deleted by force only."""
        await self._open()
        checks.name(name)

        def make(was: Queue | None, others: dict[str, Queue]) -> None:
            if was is not None and not force:
                ensure_not_in_use(name, others)

        try:
            line: Line | None = await self._directory.line(name)
        except QueueRefused:
            line = None
        await self._directory.change(name, make)
        if line is not None:
            # Items go last: what fails in between leaves items that nobody finds, never a queue that has lost some.
            for part in line.parts:
                await part.store.remove(part.shard)

    async def reload(self, name: str) -> None:
        """Forget what is known of queues, and read it again."""
        await self._line(name)
        await self._directory.refresh()
