"""The same verbs for blocking code: `with redrive.queues.blocking.connect("http://queues:2319") as queues`. Safe from threads.

They run on an event loop in a thread of its own, where those of one's own process are also looked after.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from types import TracebackType
from typing import Self, Unpack

from redrive.engine.bridge import Bridge
from redrive.model.item import Again, Fresh, Item, Leased
from redrive.model.queue import Queue
from redrive.queues import opening
from redrive.queues.client import QueueClient
from redrive.queues.definition import QueueSettings
from redrive.queues.service import Queues
from redrive.queues.verbs import QueueStats

_PATIENCE = timedelta(minutes=1)


def open(url: str | None = None) -> BlockingQueues:
    """The queues of a store, served in this process; see `redrive.queues.open`."""
    return BlockingQueues(opening.open(url))


def connect(endpoint: str = "http://127.0.0.1:2319") -> BlockingQueues:
    """The queues that a server serves; see `redrive.queues.connect`."""
    return BlockingQueues(opening.connect(endpoint))


class BlockingQueues:
    """Queues, here or behind HTTP. Use it with `with`."""

    def __init__(self, queues: Queues | QueueClient) -> None:
        self._queues = queues
        self._bridge = Bridge(inline=False)

    def __enter__(self) -> Self:
        self._bridge.run_on_loop(self._queues.__aenter__())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._bridge.run_on_loop(self._queues.close())
        self._bridge.close()

    def create(self, name: str, **settings: Unpack[QueueSettings]) -> Queue:
        return self._bridge.run_on_loop(self._queues.create(name, **settings))

    def update(self, name: str, **settings: Unpack[QueueSettings]) -> Queue:
        return self._bridge.run_on_loop(self._queues.update(name, **settings))

    def info(self, name: str) -> Queue:
        return self._bridge.run_on_loop(self._queues.info(name))

    def queues(self, *, pivot: str = "", limit: int = 0) -> list[Queue]:
        return self._bridge.run_on_loop(self._queues.queues(pivot=pivot, limit=limit))

    def delete(self, name: str, *, force: bool = False) -> None:
        self._bridge.run_on_loop(self._queues.delete(name, force=force))

    def produce(self, name: str, items: Sequence[Fresh], *, timeout: timedelta | None = _PATIENCE) -> None:
        self._bridge.run_on_loop(self._queues.produce(name, items, timeout=timeout))

    def lease(
        self,
        name: str,
        limit: int = 10,
        *,
        client: str,
        timeout: timedelta | None = _PATIENCE,
        lease: timedelta | None = None,
    ) -> Leased:
        return self._bridge.run_on_loop(self._queues.lease(name, limit, client=client, timeout=timeout, lease=lease))

    def complete(self, name: str, partition: int, ids: Sequence[str], *, timeout: timedelta | None = _PATIENCE) -> None:
        self._bridge.run_on_loop(self._queues.complete(name, partition, ids, timeout=timeout))

    def retry(self, name: str, partition: int, items: Sequence[Again]) -> None:
        self._bridge.run_on_loop(self._queues.retry(name, partition, items))

    def extend(self, name: str, partition: int, ids: Sequence[str], lease: timedelta) -> int:
        return self._bridge.run_on_loop(self._queues.extend(name, partition, ids, lease))

    def stats(self, name: str) -> QueueStats:
        return self._bridge.run_on_loop(self._queues.stats(name))

    def clear(self, name: str, *, queue: bool = False, scheduled: bool = False, destructive: bool = False) -> int:
        return self._bridge.run_on_loop(self._queues.clear(name, queue=queue, scheduled=scheduled, destructive=destructive))

    def reload(self, name: str) -> None:
        self._bridge.run_on_loop(self._queues.reload(name))

    def items(self, name: str, partition: int, *, pivot: str = "", limit: int = 0) -> list[Item]:
        return self._bridge.run_on_loop(self._queues.items(name, partition, pivot=pivot, limit=limit))

    def scheduled(self, name: str, partition: int, *, pivot: str = "", limit: int = 0) -> list[Item]:
        return self._bridge.run_on_loop(self._queues.scheduled(name, partition, pivot=pivot, limit=limit))

    def bring(self, name: str, partition: int, items: Sequence[Fresh]) -> list[str]:
        return self._bridge.run_on_loop(self._queues.bring(name, partition, items))

    def discard(self, name: str, partition: int, ids: Sequence[str]) -> None:
        self._bridge.run_on_loop(self._queues.discard(name, partition, ids))
