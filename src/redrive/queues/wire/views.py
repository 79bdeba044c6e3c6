"""Values as messages of the wire, and back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from msgspec.structs import replace

from redrive.engine.describe import told as described
from redrive.model.item import Fresh, Item, Leased, PartitionStats, Place
from redrive.model.letter import Failure, Headers
from redrive.model.queue import Queue
from redrive.model.story import Story, failure_heard, failure_told, heard, told
from redrive.queues.go_time import parsed, written
from redrive.queues.verbs import QueueStats
from redrive.queues.wire import messages as m
from redrive.queues.wire import stamps

_MICROSECOND = timedelta(microseconds=1)


def info(queue: Queue) -> m.QueueInfo:
    return m.QueueInfo(
        queue_name=queue.name,
        created_at=stamps.written(queue.created_us),
        updated_at=stamps.written(queue.updated_us),
        dead_queue=queue.dead_queue,
        reference=queue.reference,
        lease_timeout=written(queue.lease_timeout),
        expire_timeout=written(queue.expire_timeout),
        max_attempts=queue.max_attempts,
        requested_partitions=len(queue.partitions),
    )


def more_info(queue: Queue) -> m.MoreQueueInfo:
    plain = info(queue)
    more = m.MoreQueueInfo(
        **{name: getattr(plain, name) for name in plain.__struct_fields__},
        ordered=queue.ordered,
        dedupe_window=written(queue.dedupe) if queue.dedupe else "",
        storage=list(queue.partitions),
    )
    if queue.rate:
        # Set only then, for a zero that was worked out would be written.
        more.rate = queue.rate
    return more


def queue(told: m.MoreQueueInfo) -> Queue:
    return Queue(
        id="",
        name=told.queue_name,
        lease_timeout=parsed(told.lease_timeout),
        expire_timeout=parsed(told.expire_timeout),
        created_us=stamps.micros(told.created_at),
        updated_us=stamps.micros(told.updated_at),
        partitions=tuple(told.storage),
        dead_queue=told.dead_queue,
        reference=told.reference,
        max_attempts=told.max_attempts,
        ordered=told.ordered,
        dedupe=parsed(told.dedupe_window) if told.dedupe_window else timedelta(),
        rate=told.rate,
    )


def leased(name: str, given: Leased) -> m.Leased:
    until = stamps.written(given.until_us)
    items = [
        m.LeaseItem(item.encoding, item.kind, item.reference, item.id, item.attempts, until, item.payload) for item in given.items
    ]
    return m.Leased(name, given.partition, items)


def more_leased(name: str, given: Leased) -> m.MoreLeased:
    until = stamps.written(given.until_us)
    items = []
    for item in given.items:
        more = m.MoreLeaseItem(
            item.encoding, item.kind, item.reference, item.id, item.attempts, until, item.payload, item.key, item.priority,
            [], item.message_id, item.source_id, None, stamps.written(item.created_us),
        )  # fmt: skip
        if item.story:
            story = heard(item.story)
            more.headers, more.death = headers(story.headers), _death(story)
        items.append(more)
    return m.MoreLeased(name, given.partition, items)


def leased_back(told_: m.MoreLeased) -> Leased:
    """What a lease gave. Of an item only what its holder needs is told."""
    items = [
        Item(
            item.id, item.message_id, item.source_id, item.attempts, stamps.micros(item.created_at), 0, 0, 0, item.bytes_, item.reference, item.encoding, item.kind,
            item.key, item.priority, told(_story(item)) if item.headers or item.death else b"", Place.LEASED,
            stamps.micros(item.lease_deadline),
        )
        for item in told_.items
    ]  # fmt: skip
    return Leased(partition=told_.partition, until_us=items[0].lease_us if items else 0, items=items)


def stored(item: Item) -> m.StoredItem:
    return m.StoredItem(
        id=item.id,
        source_id=item.source_id,
        is_leased=item.place is Place.LEASED,
        lease_deadline=stamps.written(item.lease_us),
        expire_deadline=stamps.written(item.expire_us),
        created_at=stamps.written(item.created_us),
        updated_at=stamps.written(item.updated_us),
        enqueue_at=stamps.written(item.enqueue_us),
        attempts=item.attempts,
        reference=item.reference,
        encoding=item.encoding,
        kind=item.kind,
        payload=item.payload,
    )


def more_stored(item: Item) -> m.MoreStoredItem:
    plain = stored(item)
    story = heard(item.story)
    return m.MoreStoredItem(
        **{name: getattr(plain, name) for name in plain.__struct_fields__},
        key=item.key,
        priority=item.priority,
        headers=headers(story.headers),
        message_id=item.message_id,
        place=item.place,
        why=item.why,
        death=_death(story),
        failure=fault(failure_heard(item.failure)),
    )


def item(told_: m.MoreStoredItem) -> Item:
    return Item(
        id=told_.id,
        message_id=told_.message_id,
        source_id=told_.source_id,
        attempts=told_.attempts,
        created_us=stamps.micros(told_.created_at),
        updated_us=stamps.micros(told_.updated_at),
        enqueue_us=stamps.micros(told_.enqueue_at),
        expire_us=stamps.micros(told_.expire_deadline),
        payload=told_.payload,
        reference=told_.reference,
        encoding=told_.encoding,
        kind=told_.kind,
        key=told_.key,
        priority=told_.priority,
        story=told(_story(told_)),
        place=Place(told_.place),
        lease_us=stamps.micros(told_.lease_deadline),
        why=told_.why,
        failure=failure_told(failure(told_.failure)),
    )


def brought(told_: m.StoredItem) -> Fresh:
    """What is imported: as it was, at a new place, leased by nobody."""
    fresh = Fresh(
        payload=told_.payload,
        reference=told_.reference,
        encoding=told_.encoding,
        kind=told_.kind,
        enqueue_us=max(stamps.micros(told_.enqueue_at), 0),
        source_id=told_.source_id,
        attempts=told_.attempts,
        created_us=max(stamps.micros(told_.created_at), 0),
        expire_us=max(stamps.micros(told_.expire_deadline), 0),
    )
    if not isinstance(told_, m.MoreStoredItem):
        return fresh
    return replace(fresh, key=told_.key, priority=told_.priority, story=told(_story(told_)), message_id=told_.message_id)


def sent(fresh: Fresh) -> m.MoreStoredItem:
    """What is to be imported."""
    story = heard(fresh.story)
    return m.MoreStoredItem(
        source_id=fresh.source_id,
        expire_deadline=stamps.written(fresh.expire_us),
        created_at=stamps.written(fresh.created_us),
        enqueue_at=stamps.written(fresh.enqueue_us),
        attempts=fresh.attempts,
        reference=fresh.reference,
        encoding=fresh.encoding,
        kind=fresh.kind,
        payload=fresh.payload,
        key=fresh.key,
        priority=fresh.priority,
        headers=headers(story.headers),
        message_id=fresh.message_id,
        death=_death(story),
    )


def _death(story: Story) -> m.Death | None:
    if not (story.queue or story.source or story.failure):
        return None
    return m.Death(
        queue_name=story.queue,
        partition=story.partition,
        attempts=story.attempts,
        why=story.why,
        created_at=stamps.written(story.created_us),
        died_at=stamps.written(story.died_us),
        failure=fault(story.failure),
        source=story.source,
    )


def _story(told_: m.MoreStoredItem | m.MoreLeaseItem) -> Story:
    death = told_.death or m.Death()
    return Story(
        headers=pairs(told_.headers),
        failure=failure(death.failure),
        queue=death.queue_name,
        partition=death.partition,
        attempts=death.attempts,
        created_us=stamps.micros(death.created_at),
        died_us=stamps.micros(death.died_at),
        why=death.why,
        source=death.source,
    )


def fault(failure: Failure | None) -> m.Fault | None:
    return None if failure is None else m.Fault(type=failure.type, message=failure.message, traceback=failure.traceback)


def failure(fault: m.Fault | None) -> Failure | None:
    return None if fault is None else described(fault.type, fault.message, traceback=fault.traceback)


def headers(pairs: Headers) -> list[m.Header]:
    return [m.Header(name=name, value=value) for name, value in pairs]


def pairs(headers: Sequence[m.Header]) -> Headers:
    return tuple((header.name, header.value) for header in headers)


def stats(name: str, found: QueueStats) -> m.Stats:
    # `scheduled` is left out here: the released client does not know it.
    partitions = [m.Partition(*_counted(one, found)) for one in found.partitions]
    return m.Stats(queue_name=name, logical_queues=[m.LogicalQueue(**_waiting(found), partitions=partitions)])


def more_stats(name: str, found: QueueStats) -> m.MoreStats:
    partitions = [
        m.MorePartition(*_counted(one, found), one.scheduled, one.ready, one.behind, one.dying) for one in found.partitions
    ]
    return m.MoreStats(queue_name=name, logical_queues=[m.MoreLogicalQueue(**_waiting(found), partitions=partitions)])


def _waiting(found: QueueStats) -> dict[str, int]:
    in_flight = found.producing + found.leasing + found.settling
    return {
        "produce_waiting": found.producing, "lease_waiting": found.leasing, "complete_waiting": found.settling, "in_flight": in_flight,
    }  # fmt: skip


def _counted(one: PartitionStats, found: QueueStats) -> tuple[int, int, int, int, str, str]:
    ages = (written(one.average_age_us * _MICROSECOND), written(one.average_leased_age_us * _MICROSECOND))
    return (one.partition, one.total, one.leased, found.failures.get(one.partition, 0), *ages)


def stats_back(told_: m.MoreStats) -> QueueStats:
    (logical,) = told_.logical_queues
    return QueueStats(
        producing=logical.produce_waiting,
        leasing=logical.lease_waiting,
        settling=logical.complete_waiting,
        partitions=[_counts_back(one) for one in logical.partitions],
        failures={one.partition: one.failures for one in logical.partitions if one.failures},
    )


def _counts_back(one: m.MorePartition) -> PartitionStats:
    return PartitionStats(
        partition=one.partition,
        total=one.total,
        leased=one.total_leased,
        ready=one.ready,
        scheduled=one.scheduled,
        behind=one.behind,
        dying=one.dying,
        average_age_us=parsed(one.average_age) // _MICROSECOND,
        average_leased_age_us=parsed(one.average_leased_age) // _MICROSECOND,
    )
