"""How an item comes to its place in a partition, and what its going means for those of its key.

An item whose place changes leaves its row and gets another one; only one that is leased stays where it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from redrive.backends.sqlite import queue_rows
from redrive.backends.sqlite.queue_parts import NEVER_US, Part, Parts
from redrive.backends.sqlite.queue_rows import BEHIND, DYING, SCHEDULED
from redrive.model.item import PRIORITIES, SOON_US, Item, Place, Why


def lane_of(priority: int) -> int:
    return PRIORITIES - 1 - priority


def line_up(tx: Parts, part: Part, item: Item) -> None:
    """It is ready."""
    item.place = Place.READY
    part.lane(number := lane_of(item.priority)).ready += 1
    part.is_changed = True
    is_early = not is_last_to_expire(part, item.expire_us)
    tx.inserts.add(part.number, number, item, item.expire_us if is_early else 0)
    part.due(item.expire_us)


def is_last_to_expire(part: Part, expire_us: int) -> bool:
    """Does nothing that stands ahead expire later? Else its row must tell when it does."""
    if (expire_us or NEVER_US) >= part.state.latest_us:
        part.state.latest_us = expire_us or NEVER_US
        return True
    part.state.has_early = True
    return False


def set_aside(tx: Parts, part: Part, item: Item) -> None:
    """It is scheduled."""
    item.place = Place.SCHEDULED
    part.state.scheduled += 1
    part.is_changed = True
    due_us = min(item.enqueue_us, item.expire_us or NEVER_US)
    tx.inserts.add(part.number, SCHEDULED, item, due_us)
    part.due(due_us)


def stand_behind(tx: Parts, part: Part, item: Item) -> None:
    item.place = Place.BEHIND
    part.state.behind += 1
    part.is_changed = True
    tx.inserts.add(part.number, BEHIND, item)


def give_up(tx: Parts, part: Part, items: Iterable[tuple[Item, Why]], now_us: int) -> None:
    """They are dying, under the ids they have. Their former rows are deleted already, and counted nowhere but as created."""
    for item, why in items:
        item.place, item.why, item.lease_us, item.updated_us = Place.DYING, why, 0, now_us
        part.state.dying += 1
        part.is_changed = True
        tx.inserts.add(part.number, DYING, item)
        release(tx, part, [item.key], now_us)


def renewed(part: Part, item: Item, now_us: int) -> Item:
    """The item under a new id, the highest."""
    item.id, item.updated_us, item.lease_us = part.position(now_us), now_us, 0
    return item


def release(tx: Parts, part: Part, keys: Sequence[str], now_us: int) -> None:
    """An item of each of these keys is done with, in this order: the next may go."""
    for key in keys if part.state.keys else ():
        if not key:
            continue
        tx.inserts.flush()
        found = queue_rows.read(tx.connection, "part = ? AND key = ? ORDER BY id LIMIT 1", [part.number, key])
        part.is_changed = True
        if not found:
            sql = "DELETE FROM queue_keys WHERE part = ? AND key = ?"
            part.state.keys -= tx.connection.execute(sql, [part.number, key]).rowcount
            continue
        ((_, following),) = found
        queue_rows.delete_listed(tx.connection, part.number, BEHIND, [following.id])
        part.state.behind -= 1
        is_later = following.enqueue_us >= now_us + SOON_US
        following = renewed(part, following, now_us)
        if is_later:
            part.created(following.created_us, -1)
            set_aside(tx, part, following)
        else:
            line_up(tx, part, following)
