"""Collect: letters move from a dead queue into the store. Held and confirmed there first, then completed here."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta

from redrive.engine.dead_letters import DeadLetters
from redrive.model.errors import NotLeased, QueueEmpty
from redrive.model.letter import Letter
from redrive.queues.letters import letter_of
from redrive.queues.opening import client_name
from redrive.queues.service import Queues

_BATCH = 500
_LEASE = timedelta(minutes=2)
_AT_ONCE = timedelta(milliseconds=50)


async def collect(
    dlq: DeadLetters, queues: Queues, name: str, *, limit: int | None = None, progress: Callable[[int], None] | None = None
) -> int:
    """Move all that can be leased in a queue into the letters' store; answers with how many.

    Cut short at any instant it is simply started again: what was held and not yet completed is the same letter, and is counted
    once.
    """
    moved = 0
    while limit is None or moved < limit:
        count = _BATCH if limit is None else min(_BATCH, limit - moved)
        try:
            leased = await queues.lease(name, count, client=client_name(), timeout=_AT_ONCE, lease=_LEASE)
        except QueueEmpty:
            break
        now = datetime.now(UTC)
        await dlq.hold([letter_of(item, name, leased.partition, dlq.namespace, now) for item in leased.items])
        try:
            await queues.complete(name, leased.partition, [item.id for item in leased.items])
        except NotLeased:
            # It took longer than the lease: whoever leases them next finds letters that are there already.
            continue
        moved += len(leased.items)
        if progress:
            progress(moved)
    return moved


async def peeked(queues: Queues, name: str, namespace: str) -> AsyncIterator[Letter]:
    """The letters in a dead queue, where they are: all partitions, the oldest of each first."""
    queue = await queues.info(name)
    now = datetime.now(UTC)
    for partition in range(len(queue.partitions)):
        pivot = ""
        while True:
            items = await queues.items(name, partition, pivot=pivot, limit=_BATCH + 1)
            for item in items[:_BATCH]:
                yield letter_of(item, name, partition, namespace, now)
            if len(items) <= _BATCH:
                break
            pivot = items[_BATCH].id
