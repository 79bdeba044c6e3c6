"""Queues are defined: what is said of one, checked, becomes what is kept of it."""

from __future__ import annotations

from datetime import timedelta
from typing import TypedDict

from msgspec.structs import replace

from redrive.model.errors import QueueRefused
from redrive.model.queue import Queue
from redrive.queues import checks
from redrive.queues.directory import new_id, now_us


class QueueSettings(TypedDict, total=False):
    """What can be said of a queue. An update changes what is given and leaves the rest."""

    lease_timeout: timedelta
    """How long an item is its consumer's."""
    expire_timeout: timedelta
    """How long an item may wait before it is given up on."""
    max_attempts: int
    dead_queue: str
    """Where items go that were given up on; without one they are deleted."""
    reference: str
    partitions: int
    ordered: bool
    dedupe: timedelta
    rate: float


def created(name: str, settings: QueueSettings) -> Queue:
    """The queue that is to be; its partitions have no stores yet."""
    checks.name(name)
    lease, expire = checks.timeouts(settings.get("lease_timeout"), settings.get("expire_timeout"))
    now = now_us()
    queue = Queue(
        id=new_id(),
        name=name,
        lease_timeout=lease,
        expire_timeout=expire,
        created_us=now,
        updated_us=now,
        partitions=(),
        dead_queue=settings.get("dead_queue", ""),
        reference=settings.get("reference", ""),
        max_attempts=settings.get("max_attempts", 0),
        ordered=settings.get("ordered", False),
        dedupe=settings.get("dedupe", timedelta()),
        rate=settings.get("rate", 0.0),
    )
    checks.partitions(settings.get("partitions", 1))
    _check(queue)
    return queue


def updated(queue: Queue, settings: QueueSettings) -> Queue:
    """The queue with these changes; its partitions as they were."""
    if settings.get("ordered", queue.ordered) != queue.ordered:
        raise QueueRefused(f"ordered is invalid; '{queue.name}' was created otherwise, and its items stand as they stand")
    if partitions := settings.get("partitions"):
        _check_partitions(queue, partitions)
    changes = {key: value for key, value in settings.items() if key != "partitions"}
    changed = replace(queue, updated_us=max(now_us(), queue.updated_us + 1), **changes)
    checks.timeouts(changed.lease_timeout, changed.expire_timeout)
    _check(changed)
    return changed


def _check(queue: Queue) -> None:
    checks.max_attempts(queue.max_attempts)
    checks.reference(queue.reference)
    checks.dedupe(queue.dedupe)
    checks.rate(queue.rate)


def _check_partitions(queue: Queue, count: int) -> None:
    checks.partitions(count)
    present = len(queue.partitions)
    if count < present:
        raise QueueRefused(f"partitions is invalid; '{queue.name}' has {present}, and none can be taken away")
    if count > present and (queue.ordered or queue.dedupe):
        raise QueueRefused(f"partitions is invalid; '{queue.name}' keeps keys and references to their partitions")
