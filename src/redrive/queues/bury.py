"""Bury: items that were given up on go to the dead queue, and leave their own only when they are there."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from msgspec.structs import replace

from redrive.model.errors import NoSuchItem, RedriveError
from redrive.model.item import Fresh, Item, Move, Why
from redrive.model.story import failure_heard, heard, told
from redrive.queues.clock import Clock
from redrive.queues.directory import Directory
from redrive.queues.line import Line, Part, partition_of

log = logging.getLogger("redrive.queues")

_BATCH = 500
_NO_DEAD_QUEUE = {
    Why.ATTEMPTS: "item '%s' exceeded max_attempts, deleting (no dead_queue configured)",
    Why.EXPIRED: "item '%s' exceeded expire_deadline, deleting (no dead_queue configured)",
    Why.TOLD: "item '%s' was given up on, deleting (no dead_queue configured)",
}


async def bury(line: Line, directory: Directory, clock: Clock) -> bool:
    """Move all dying items of a queue; False: some are still there, try again later. One failing store does not stop the others."""

    async def each_part() -> bool:
        return all([await _bury_part(line, part, directory, clock) for part in line.parts])

    return await line.burials.share(each_part)


async def _bury_part(line: Line, part: Part, directory: Directory, clock: Clock) -> bool:
    while True:
        try:
            dying = await part.store.dying(part.shard, limit=_BATCH)
        except RedriveError as error:
            log.error("failed to read dying items of '%s': %s", line.queue.name, error)
            return False
        if not dying:
            return True
        if not line.queue.dead_queue:
            is_done = await _deleted(line, part, dying, clock)
        else:
            is_done = await _moved(line, part, dying, directory, clock)
        if not is_done:
            return False


async def _deleted(line: Line, part: Part, dying: Sequence[tuple[int, Item]], clock: Clock) -> bool:
    for _, item in dying:
        log.warning(_NO_DEAD_QUEUE[Why(item.why)], item.id, extra={"queue": line.queue.name})
    return await _removed(line, part, dying, clock)


async def _removed(line: Line, part: Part, items: Sequence[tuple[int, Item]], clock: Clock) -> bool:
    """Delete items from their own queue. What is no longer there, somebody else deleted."""
    by_partition: dict[int, list[str]] = {}
    for partition, item in items:
        by_partition.setdefault(partition, []).append(item.id)
    is_done = True
    for partition, ids in by_partition.items():
        try:
            await part.store.delete(part.shard, partition, ids, now=clock.now())
        except NoSuchItem:
            continue  # another process was faster; what is left is seen when we look again
        except RedriveError as error:
            log.error("failed to delete from '%s' what its dead_queue has: %s", line.queue.name, error)
            is_done = False
    return is_done


async def _moved(line: Line, part: Part, dying: Sequence[tuple[int, Item]], directory: Directory, clock: Clock) -> bool:
    name = line.queue.dead_queue
    try:
        dead = await directory.line(name)
        by_part: dict[int, list[tuple[int, Item, Fresh]]] = {}
        for partition, item in dying:
            fresh = _corpse(line, partition, item, len(dead.queue.partitions))
            assert fresh.partition is not None
            by_part.setdefault(dead.parts.index(dead.at(fresh.partition)), []).append((partition, item, fresh))
        for number, bodies in by_part.items():
            if not await _sent(line, part, dead.parts[number], bodies, clock):
                return False
        dead.room.wake()
    except RedriveError as error:
        log.error("failed to produce to dead_queue '%s': %s", name, error, extra={"queue": line.queue.name})
        return False
    return True


async def _sent(line: Line, part: Part, dead: Part, bodies: Sequence[tuple[int, Item, Fresh]], clock: Clock) -> bool:
    if dead.store is part.store:
        moves = [Move(partition=partition, id=item.id, fresh=fresh) for partition, item, fresh in bodies]
        await part.store.move(part.shard, moves, dead.shard, now=clock.now())
        return True
    await dead.store.put(dead.shard, [fresh for _, _, fresh in bodies], now=clock.now())
    return await _removed(line, part, [(partition, item) for partition, item, _ in bodies], clock)


def _corpse(line: Line, partition: int, item: Item, partitions: int) -> Fresh:
    """What the dead queue gets: the content under the same message id, unleased and never tried, and the story of its end."""
    story = replace(
        heard(item.story),
        failure=failure_heard(item.failure),
        queue=line.queue.name,
        partition=partition,
        attempts=item.attempts,
        created_us=item.created_us,
        died_us=item.updated_us,
        why=item.why,
    )
    return Fresh(
        payload=item.payload,
        reference=item.reference,
        encoding=item.encoding,
        kind=item.kind,
        key=item.key,
        priority=item.priority,
        story=told(story),
        message_id=item.message_id,
        source_id=item.id,
        partition=partition_of(item.id, partitions),
    )
