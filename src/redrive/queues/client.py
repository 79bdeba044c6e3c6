"""Queues that a server serves, by the same verbs as those in one's own process."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from types import TracebackType
from typing import Self, TypeVar, Unpack

import msgspec

from redrive.model.errors import (
    AnswerLost,
    NoSuchItem,
    NoSuchQueue,
    NotLeased,
    QueueBusy,
    QueueClosing,
    QueueEmpty,
    QueueRefused,
    RedriveError,
    StoreUnavailable,
)
from redrive.model.item import Again, Fresh, Item, Leased
from redrive.model.queue import Queue
from redrive.model.story import failure_heard, heard
from redrive.queues.definition import QueueSettings
from redrive.queues.go_time import written
from redrive.queues.talk import Talk
from redrive.queues.verbs import QueueStats
from redrive.queues.wire import messages as m
from redrive.queues.wire import stamps, views

M = TypeVar("M", bound=m.Message)

_PATIENCE = timedelta(minutes=1)
_GRACE = timedelta(seconds=30)
"""Beyond the time that a request gives the server, before we hang up."""
_RESET = {
    "dead_queue": "dead_queue", "reference": "reference", "max_attempts": "max_attempts", "dedupe": "dedupe_window", "rate": "rate",
}  # fmt: skip
_REFUSALS: dict[str, type[RedriveError]] = {
    kind.code: kind for kind in (AnswerLost, NoSuchQueue, QueueRefused, QueueBusy, QueueEmpty, QueueClosing, StoreUnavailable)
}


class QueueClient:
    """Talks to `redrive up`. Use it with `async with`, from one event loop."""

    def __init__(self, endpoint: str) -> None:
        self._talk = Talk(endpoint)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        await self._talk.close()

    async def create(self, name: str, **settings: Unpack[QueueSettings]) -> Queue:
        """Define a queue."""
        settings.setdefault("partitions", 1)
        await self._tell("queues.create", msgspec.structs.replace(_info(name, settings), reset=[]))
        return await self.info(name)

    async def update(self, name: str, **settings: Unpack[QueueSettings]) -> Queue:
        """Change what is given, and leave the rest. What is refused changes nothing."""
        await self._tell("queues.update", _info(name, settings))
        return await self.info(name)

    async def info(self, name: str) -> Queue:
        return views.queue(await self._ask("queues.info", m.Named(name), m.MoreQueueInfo))

    async def queues(self, *, pivot: str = "", limit: int = 0) -> list[Queue]:
        """Queues by name, from the pivot on."""
        found = await self._ask("queues.list", m.ListQueues(pivot, limit), m.MoreQueueList)
        return list(map(views.queue, found.items))

    async def delete(self, name: str, *, force: bool = False) -> None:
        """Delete a queue with all its items. A dead queue that others lead to is deleted by force only."""
        await self._tell("queues.delete", m.Delete(name, force))

    async def produce(self, name: str, items: Sequence[Fresh], *, timeout: timedelta | None = _PATIENCE) -> None:
        """Put items into a queue. When it returns, they are as durable as their store is."""
        sent = [
            m.MoreProduceItem(
                item.encoding, item.kind, item.reference, item.payload, "", stamps.written(item.enqueue_us), item.key,
                item.priority, views.headers(heard(item.story).headers) if item.story else [],
            )
            for item in items
        ]  # fmt: skip
        await self._tell("queue.produce", m.MoreProduce(name, _text(timeout), sent), timeout=timeout)

    async def lease(
        self,
        name: str,
        limit: int = 10,
        *,
        client: str,
        timeout: timedelta | None = _PATIENCE,
        lease: timedelta | None = None,
    ) -> Leased:
        """Lease items of one partition, waiting for some to come; `QueueEmpty` when none came in time."""
        message = m.MoreLease(name, limit, client, _text(timeout), _text(lease))
        return views.leased_back(await self._ask("queue.lease", message, m.MoreLeased, timeout=timeout))

    async def complete(self, name: str, partition: int, ids: Sequence[str], *, timeout: timedelta | None = _PATIENCE) -> None:
        """Leased items are worked off, all of them or none."""
        await self._tell("queue.complete", m.Complete(name, partition, _text(timeout), list(ids)), timeout=timeout)

    async def retry(self, name: str, partition: int, items: Sequence[Again]) -> None:
        """Leased items were not worked off: back to the queue, now or later, or given up on. All of them or none."""
        sent = [
            m.MoreRetryItem(item.id, item.dead, stamps.written(item.at_us), views.fault(failure_heard(item.failure)))
            for item in items
        ]
        await self._tell("queue.retry", m.MoreRetry(name, partition, sent))

    async def extend(self, name: str, partition: int, ids: Sequence[str], lease: timedelta) -> int:
        """Hold leased items for so long from now; answers with the instant their leases end (in microseconds)."""
        told = await self._ask("queue.extend", m.Extend(name, partition, list(ids), _text(lease)), m.Extended)
        return stamps.micros(told.lease_deadline)

    async def stats(self, name: str) -> QueueStats:
        return views.stats_back(await self._ask("queue.stats", m.Named(name), m.MoreStats))

    async def clear(self, name: str, *, queue: bool = False, scheduled: bool = False, destructive: bool = False) -> int:
        """Delete what waits (`queue`), what is scheduled, or with `destructive` everything; answers with how many."""
        message = m.Clear(queue_name=name, scheduled=scheduled, queue=queue, destructive=destructive)
        return (await self._ask("queue.clear", message, m.Cleared)).count

    async def reload(self, name: str) -> None:
        """Let the server forget what it knows of queues, and read it again."""
        await self._tell("queue.reload", m.Named(name))

    async def items(self, name: str, partition: int, *, pivot: str = "", limit: int = 0) -> list[Item]:
        """Stored items by position, from the pivot on; those that are scheduled are not among them."""
        found = await self._ask("storage/items.list", m.ListItems(name, partition, pivot, limit), m.MoreItemList)
        return list(map(views.item, found.items))

    async def scheduled(self, name: str, partition: int, *, pivot: str = "", limit: int = 0) -> list[Item]:
        found = await self._ask("storage/scheduled.list", m.ListItems(name, partition, pivot, limit), m.MoreItemList)
        return list(map(views.item, found.items))

    async def bring(self, name: str, partition: int, items: Sequence[Fresh]) -> list[str]:
        """Import items as they are; answers with the id of each, empty for one whose `source_id` is there already."""
        sent = list(map(views.sent, items))
        found = await self._ask("storage/items.import", m.MoreImport(name, partition, sent), m.Imported)
        return [item.id for item in found.items]

    async def discard(self, name: str, partition: int, ids: Sequence[str]) -> None:
        """Delete stored items, leased or not. All of them or none."""
        await self._tell("storage/items.delete", m.DeleteItems(name, partition, list(ids)))

    async def _tell(self, verb: str, message: m.Message, *, timeout: timedelta | None = None) -> None:
        """Ask for something that has no answer but that it is done."""
        await self._ask(verb, message, m.Reply, timeout=timeout)

    async def _ask(self, verb: str, message: m.Message, answer: type[M], *, timeout: timedelta | None = None) -> M:
        seconds = ((timeout or _PATIENCE) + _GRACE).total_seconds()
        heard = await self._talk.post(f"/v1/more/{verb}", msgspec.json.encode(message), seconds=seconds)
        try:
            if heard.status == 200:
                return msgspec.json.decode(heard.body, type=answer)
            told = msgspec.json.decode(heard.body, type=m.Reply)
        except msgspec.MsgspecError:
            raise StoreUnavailable(f"the server answered with {heard.status}, which is no answer of a server of queues") from None
        raise _refusal(told)


def _refusal(told: m.Reply) -> RedriveError:
    code, id = told.details.get("code", ""), told.details.get("id", "")
    if code == NoSuchItem.code:
        return NoSuchItem(id, told.message)
    if code == NotLeased.code:
        return NotLeased(id, told.message)
    if code in _REFUSALS:
        return _REFUSALS[code](told.message)
    return StoreUnavailable(told.message) if told.code in (454, 500) else QueueRefused(told.message)


def _text(duration: timedelta | None) -> str:
    return "" if duration is None else written(duration)


def _info(name: str, settings: QueueSettings) -> m.MoreQueueInfo:
    return m.MoreQueueInfo(
        queue_name=name,
        dead_queue=settings.get("dead_queue", ""),
        reference=settings.get("reference", ""),
        lease_timeout=_text(settings.get("lease_timeout")),
        expire_timeout=_text(settings.get("expire_timeout")),
        max_attempts=settings.get("max_attempts", 0),
        requested_partitions=settings.get("partitions", 0),
        ordered=settings.get("ordered", False),
        dedupe_window=_text(settings.get("dedupe")),
        rate=settings.get("rate", 0.0),
        reset=[wire for name, wire in _RESET.items() if name in settings and not settings[name]],  # type: ignore[literal-required]
    )
