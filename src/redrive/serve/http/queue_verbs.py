"""What each path under /v1/ does: a message of the wire becomes a verb's words, and its answer a message again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from redrive.model.errors import QueueRefused
from redrive.model.item import Again, Fresh
from redrive.model.story import Story, failure_told, told
from redrive.queues import Queues
from redrive.queues.definition import QueueSettings
from redrive.queues.go_time import NotADuration, parsed
from redrive.queues.wire import messages as m
from redrive.queues.wire import proto, stamps, views

_DURATION_LENGTH = 15
_INSTANTS = ("lease_deadline", "expire_deadline", "dead_deadline", "created_at", "updated_at", "enqueue_at")
_TINY, SMALL, _MEDIUM, _LARGE, _HUGE = 512, 256_000, 512_000, 5_000_000, 64_000_000
_LIMIT_TEXTS = {_TINY: "512B", SMALL: "250.0KiB", _MEDIUM: "500.0KiB", _LARGE: "5.0MB", _HUGE: "61.0MiB"}


_NOTHING: dict[str, QueueSettings] = {
    "dead_queue": {"dead_queue": ""},
    "reference": {"reference": ""},
    "max_attempts": {"max_attempts": 0},
    "dedupe_window": {"dedupe": timedelta()},
    "rate": {"rate": 0.0},
}


class Endpoint(Struct, frozen=True):
    """A path's request, what is done with it, and how many bytes it may have."""

    request: type[m.Message]
    verb: Callable[[Queues, Any], Awaitable[m.Message | None]]
    limit: int = SMALL
    raw: Callable[[Queues, Any], Awaitable[m.Message | None]] | None = None
    """The same, from protobuf's own message: where a thousand items would have to be taken over twice."""

    @property
    def limit_text(self) -> str:
        return _LIMIT_TEXTS[self.limit]


async def _produce(queues: Queues, message: m.Produce) -> None:
    items = [
        Fresh(
            item.bytes_ or item.utf8.encode(),
            item.reference,
            item.encoding,
            item.kind,
            stamps.micros(item.enqueue_at) if item.enqueue_at else 0,
        )
        for item in message.items
    ]
    await queues.produce(message.queue_name, items, timeout=_timeout(message.request_timeout))


async def _produce_raw(queues: Queues, found: Any) -> None:
    items = [
        Fresh(
            item.bytes or item.utf8.encode(),
            item.reference,
            item.encoding,
            item.kind,
            proto.instant_us(item.enqueue_at) if item.HasField("enqueue_at") else 0,
        )
        for item in found.items
    ]
    await queues.produce(found.queue_name, items, timeout=_timeout(found.request_timeout))


async def _produce_more(queues: Queues, message: m.MoreProduce) -> None:
    items = [
        Fresh(
            item.bytes_ or item.utf8.encode(), item.reference, item.encoding, item.kind, stamps.micros(item.enqueue_at), item.key,
            item.priority, told(Story(headers=views.pairs(item.headers))) if item.headers else b"",
        )
        for item in message.items
    ]  # fmt: skip
    await queues.produce(message.queue_name, items, timeout=_timeout(message.request_timeout))


async def _lease(queues: Queues, message: m.Lease) -> m.Leased:
    timeout = _timeout(message.request_timeout)
    leased = await queues.lease(message.queue_name, message.batch_size, client=message.client_id, timeout=timeout)
    return views.leased(message.queue_name, leased)


async def _lease_more(queues: Queues, message: m.MoreLease) -> m.MoreLeased:
    lease = _duration("lease timeout", message.lease_timeout, "8m, 15m or 1h")
    timeout = _timeout(message.request_timeout)
    leased = await queues.lease(message.queue_name, message.batch_size, client=message.client_id, timeout=timeout, lease=lease)
    return views.more_leased(message.queue_name, leased)


async def _complete(queues: Queues, message: m.Complete) -> None:
    timeout = _timeout(message.request_timeout)
    await queues.complete(message.queue_name, message.partition, message.ids, timeout=timeout)


async def _retry(queues: Queues, message: m.Retry) -> None:
    items = [Again(id=item.id, at_us=stamps.micros(item.retry_at), dead=item.dead) for item in message.items]
    await queues.retry(message.queue_name, message.partition, items)


async def _retry_more(queues: Queues, message: m.MoreRetry) -> None:
    items = [
        Again(id=item.id, at_us=stamps.micros(item.retry_at), dead=item.dead, failure=failure_told(views.failure(item.failure)))
        for item in message.items
    ]
    await queues.retry(message.queue_name, message.partition, items)


async def _extend(queues: Queues, message: m.Extend) -> m.Extended:
    lease = _duration("lease timeout", message.lease_timeout, "8m, 15m or 1h")
    if lease is None:
        raise QueueRefused("lease timeout is invalid; cannot be empty")
    until_us = await queues.extend(message.queue_name, message.partition, message.ids, lease)
    return m.Extended(lease_deadline=stamps.written(until_us))


async def _stats(queues: Queues, message: m.Named) -> m.Stats:
    return views.stats(message.queue_name, await queues.stats(message.queue_name))


async def _stats_more(queues: Queues, message: m.Named) -> m.MoreStats:
    return views.more_stats(message.queue_name, await queues.stats(message.queue_name))


async def _clear(queues: Queues, message: m.Clear) -> None:
    await queues.clear(message.queue_name, queue=message.queue, scheduled=message.scheduled, destructive=message.destructive)


async def _clear_more(queues: Queues, message: m.Clear) -> m.Cleared:
    count = await queues.clear(
        message.queue_name, queue=message.queue, scheduled=message.scheduled, destructive=message.destructive
    )
    return m.Cleared(count=count)


async def _reload(queues: Queues, message: m.Named) -> None:
    await queues.reload(message.queue_name)


async def _create(queues: Queues, message: m.QueueInfo) -> None:
    settings = _settings(message)
    # Those that have no meaning of their own when they are left out: 0 partitions are too few.
    settings["partitions"] = message.requested_partitions
    await queues.create(message.queue_name, **settings)


async def _update(queues: Queues, message: m.QueueInfo) -> None:
    await queues.update(message.queue_name, **_settings(message))


async def _info(queues: Queues, message: m.Named) -> m.QueueInfo:
    return views.info(await queues.info(message.queue_name))


async def _info_more(queues: Queues, message: m.Named) -> m.MoreQueueInfo:
    return views.more_info(await queues.info(message.queue_name))


async def _list(queues: Queues, message: m.ListQueues) -> m.QueueList:
    return m.QueueList(items=list(map(views.info, await queues.queues(pivot=message.pivot, limit=message.limit))))


async def _list_more(queues: Queues, message: m.ListQueues) -> m.MoreQueueList:
    return m.MoreQueueList(items=list(map(views.more_info, await queues.queues(pivot=message.pivot, limit=message.limit))))


async def _delete(queues: Queues, message: m.Delete) -> None:
    await queues.delete(message.queue_name, force=message.force)


async def _items(queues: Queues, message: m.ListItems) -> m.ItemList:
    found = await queues.items(message.queue_name, message.partition, pivot=message.pivot, limit=message.limit)
    return m.ItemList(items=list(map(views.stored, found)))


async def _items_more(queues: Queues, message: m.ListItems) -> m.MoreItemList:
    found = await queues.items(message.queue_name, message.partition, pivot=message.pivot, limit=message.limit)
    return m.MoreItemList(items=list(map(views.more_stored, found)))


async def _scheduled(queues: Queues, message: m.ListItems) -> m.ItemList:
    found = await queues.scheduled(message.queue_name, message.partition, pivot=message.pivot, limit=message.limit)
    return m.ItemList(items=list(map(views.stored, found)))


async def _scheduled_more(queues: Queues, message: m.ListItems) -> m.MoreItemList:
    found = await queues.scheduled(message.queue_name, message.partition, pivot=message.pivot, limit=message.limit)
    return m.MoreItemList(items=list(map(views.more_stored, found)))


async def _import(queues: Queues, message: m.Import | m.MoreImport) -> m.Imported:
    sent: Sequence[m.StoredItem] = message.items
    echoes = list(map(_echo, sent))  # first, because it refuses what is no instant
    ids = await queues.bring(message.queue_name, message.partition, list(map(views.brought, sent)))
    return m.Imported(items=[replace(echo, id=id) for echo, id in zip(echoes, ids, strict=True)])


def _echo(item: m.StoredItem) -> m.StoredItem:
    plain = m.StoredItem(**{name: getattr(item, name) for name in m.StoredItem.__struct_fields__})
    told = {name: stamps.written(stamps.micros(getattr(item, name))) for name in _INSTANTS}
    return replace(plain, is_leased=False, **{**told, "lease_deadline": ""})


async def _discard(queues: Queues, message: m.DeleteItems) -> None:
    await queues.discard(message.queue_name, message.partition, message.ids)


def _settings(message: m.QueueInfo) -> QueueSettings:
    """What a message says of a queue. Zero is as good as nothing, as protobuf has it."""
    settings: QueueSettings = {}
    if (lease := _duration("lease timeout", message.lease_timeout, "8m, 15m or 1h")) is not None:
        settings["lease_timeout"] = lease
    if (expire := _duration("expire timeout", message.expire_timeout, "60m, 2h or 24h")) is not None:
        settings["expire_timeout"] = expire
    if message.max_attempts:
        settings["max_attempts"] = message.max_attempts
    if message.dead_queue:
        settings["dead_queue"] = message.dead_queue
    if message.reference:
        settings["reference"] = message.reference
    if message.requested_partitions:
        settings["partitions"] = message.requested_partitions
    if isinstance(message, m.MoreQueueInfo):
        _add_more(settings, message)
    return settings


def _add_more(settings: QueueSettings, message: m.MoreQueueInfo) -> None:
    for name in message.reset:
        if name not in _NOTHING:
            raise QueueRefused(f"reset is invalid; '{name}' is none of {', '.join(_NOTHING)}")
        settings |= _NOTHING[name]
    if message.ordered:
        settings["ordered"] = True
    if (dedupe := _duration("dedupe window", message.dedupe_window, "10m, 1h or 24h")) is not None:
        settings["dedupe"] = dedupe
    if message.rate:
        settings["rate"] = message.rate


def _timeout(text: str) -> timedelta | None:
    # It may be as long as Go writes it, to the nanosecond.
    return _duration("request timeout", text, "900ms, 5m or 15m", is_kept=False)


def _duration(what: str, text: str, examples: str, *, is_kept: bool = True) -> timedelta | None:
    if not text:
        return None
    if is_kept and len(text) > _DURATION_LENGTH:
        raise QueueRefused(f"{what} is invalid; cannot be greater than '{_DURATION_LENGTH}' characters")
    try:
        return parsed(text)
    except NotADuration as error:
        raise QueueRefused(f"{what} is invalid; {error} - expected format: {examples}") from None


MORE = "/v1/more/"
VERBS: dict[str, Endpoint] = {
    "/v1/queue.produce": Endpoint(m.Produce, _produce, _LARGE, _produce_raw),
    "/v1/queue.lease": Endpoint(m.Lease, _lease, _TINY),
    "/v1/queue.complete": Endpoint(m.Complete, _complete),
    "/v1/queue.retry": Endpoint(m.Retry, _retry),
    "/v1/queue.stats": Endpoint(m.Named, _stats, _TINY),
    "/v1/queue.clear": Endpoint(m.Clear, _clear, _TINY),
    "/v1/queue.reload": Endpoint(m.Named, _reload, _TINY),
    "/v1/queues.create": Endpoint(m.QueueInfo, _create),
    "/v1/queues.update": Endpoint(m.QueueInfo, _update, _MEDIUM),
    "/v1/queues.list": Endpoint(m.ListQueues, _list),
    "/v1/queues.info": Endpoint(m.Named, _info),
    "/v1/queues.delete": Endpoint(m.Delete, _delete),
    "/v1/storage/items.list": Endpoint(m.ListItems, _items),
    "/v1/storage/items.import": Endpoint(m.Import, _import, _HUGE),
    "/v1/storage/items.delete": Endpoint(m.DeleteItems, _discard),
    "/v1/storage/scheduled.list": Endpoint(m.ListItems, _scheduled),
    "/v1/more/queue.produce": Endpoint(m.MoreProduce, _produce_more, _LARGE),
    "/v1/more/queue.lease": Endpoint(m.MoreLease, _lease_more, SMALL),
    "/v1/more/queue.retry": Endpoint(m.MoreRetry, _retry_more, _LARGE),
    "/v1/more/queue.clear": Endpoint(m.Clear, _clear_more),
    "/v1/more/queue.extend": Endpoint(m.Extend, _extend),
    "/v1/more/queue.stats": Endpoint(m.Named, _stats_more, _TINY),
    "/v1/more/queues.create": Endpoint(m.MoreQueueInfo, _create),
    "/v1/more/queues.update": Endpoint(m.MoreQueueInfo, _update, _MEDIUM),
    "/v1/more/queues.list": Endpoint(m.ListQueues, _list_more),
    "/v1/more/queues.info": Endpoint(m.Named, _info_more),
    "/v1/more/storage/items.list": Endpoint(m.ListItems, _items_more),
    "/v1/more/storage/items.import": Endpoint(m.MoreImport, _import, _HUGE),
    "/v1/more/storage/scheduled.list": Endpoint(m.ListItems, _scheduled_more),
}
# Verbs that have nothing more to say are at both places.
VERBS |= {
    more: endpoint
    for path, endpoint in VERBS.items()
    if (more := path.replace("/v1/", MORE, 1)) not in VERBS and MORE not in path
}
