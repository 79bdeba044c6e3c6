"""Collect: letters move from a dead queue into the store. Held and confirmed there first, then completed here."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime, timedelta

from redrive.engine.dead_letters import DeadLetters
from redrive.model.errors import NotLeased, QueueEmpty
from redrive.model.item import Item
from redrive.model.letter import Letter
from redrive.queues.letters import letter_of, message_of
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
        await dlq.hold(await _letters(dlq, leased.items, name, leased.partition))
        try:
            await queues.complete(name, leased.partition, [item.id for item in leased.items])
        except NotLeased:
            # It took longer than the lease: whoever leases them next finds letters that are there already.
            continue
        moved += len(leased.items)
        if progress:
            progress(moved)
    return moved


async def _letters(dlq: DeadLetters, items: Sequence[Item], queue: str, partition: int) -> list[Letter]:
    """What these items are as letters. One that redrive had sent there is the letter that it was, wherever that came from."""
    now = datetime.now(UTC)
    marks = [message_of(item, queue, partition).redrive_id if item.story else None for item in items]
    sent = [mark for mark in marks if mark is not None]
    homes = {letter.id: letter.source for letter in await dlq.letters.get(sent) if letter} if sent else {}
    return [
        letter_of(item, queue, partition, dlq.namespace, now, homes.get(mark) if mark else None)
        for item, mark in zip(items, marks, strict=True)
    ]


async def peeked(dlq: DeadLetters, queues: Queues, name: str) -> AsyncIterator[Letter]:
    """The letters in a dead queue, where they are: all partitions, the oldest of each first."""
    queue = await queues.info(name)
    for partition in range(len(queue.partitions)):
        pivot = ""
        while True:
            items = await queues.items(name, partition, pivot=pivot, limit=_BATCH + 1)
            for letter in await _letters(dlq, items[:_BATCH], name, partition):
                yield letter
            if len(items) <= _BATCH:
                break
            pivot = items[_BATCH].id
