"""How items come back: given back by who leased them, or because something is due."""

from __future__ import annotations

from collections.abc import Sequence

from redrive.backends.sqlite import queue_leases, queue_rows
from redrive.backends.sqlite.queue_leases import Run
from redrive.backends.sqlite.queue_parts import Part, Parts
from redrive.backends.sqlite.queue_places import give_up, line_up, renewed, set_aside
from redrive.backends.sqlite.queue_putting import forget
from redrive.backends.sqlite.queue_rows import SCHEDULED
from redrive.model.item import SOON_US, Again, Item, Swept, Why
from redrive.model.queue import Shard

_HEADS = 100
_DUE = "part = ? AND lane = ? AND due_us <= ?"

_ENDED = """
    SELECT group_concat(lane || ' ' || first || ' ' || last || ' ' || until_us || ' ' || leased_us || ' ' || count || ' ' || id) FROM (
        SELECT l.*, i.id FROM queue_leases l INDEXED BY queue_leases_end
        CROSS JOIN queue_items i ON i.part = l.part AND i.lane = l.lane AND i.id BETWEEN l.first AND l.last
        WHERE l.part = ?1 AND l.until_us <= ?2 ORDER BY {order} LIMIT ?3
    )
"""

_EARLY = """
    SELECT (
        SELECT due_us FROM queue_items WHERE part = ?1 AND lane = ?2 AND due_us IS NOT NULL AND id > ?3 ORDER BY due_us LIMIT 1
    ), EXISTS (SELECT 1 FROM queue_items WHERE part = ?1 AND lane = ?2 AND due_us IS NOT NULL)
"""


def retry(tx: Parts, part: Part, shard: Shard, again: Sequence[Again], now_us: int) -> Swept:
    told = {one.id: one for one in again}
    found = queue_leases.held(tx, part, list(told), now_us)
    items: dict[str, Item] = {}
    for some in found:
        items |= {item.id: item for _, item in queue_rows.read_listed(tx.connection, part.number, [some.lane], some.ids)}
    queue_leases.taken(tx, part, found)
    tx.ahead.clear()
    ready = dying = 0
    for id, one in told.items():
        item = items[id]
        item.attempts += 1
        item.failure = one.failure or item.failure
        if one.dead or _is_spent(shard, item):
            part.created(item.created_us)
            give_up(tx, part, [(item, Why.TOLD if one.dead else Why.ATTEMPTS)], now_us)
            dying += 1
        elif one.at_us >= now_us + SOON_US:
            item.enqueue_us = one.at_us
            set_aside(tx, part, renewed(part, item, now_us))
        else:
            part.created(item.created_us)
            line_up(tx, part, renewed(part, item, now_us))
            ready += 1
    return Swept(ready=ready, dying=dying)


def sweep(tx: Parts, part: Part, shard: Shard, now_us: int, limit: int) -> Swept:
    if not part.number:
        return Swept(is_done=limit > 0)
    tx.inserts.flush()
    tx.ahead.clear()
    ready = dying = 0
    over = _ended(tx, part, now_us, limit)
    for item in over:
        if _is_spent(shard, item) or _is_expired(shard, item, now_us):
            give_up(tx, part, [(item, Why.ATTEMPTS if _is_spent(shard, item) else Why.EXPIRED)], now_us)
            dying += 1
        else:
            line_up(tx, part, renewed(part, item, now_us))
            ready += 1
    left = limit - len(over)
    tx.inserts.flush()
    for item in _due(tx, part, shard, now_us, left):
        left -= 1
        if _is_expired(shard, item, now_us):
            give_up(tx, part, [(item, Why.EXPIRED)], now_us)
            dying += 1
        elif item.enqueue_us <= now_us:
            line_up(tx, part, renewed(part, item, now_us))
            ready += 1
    # Who stood behind an expired one may have expired meanwhile, too.
    while shard.expire_us and left > 0 and (expired := _expired(tx, part, now_us, left)):
        give_up(tx, part, [(item, Why.EXPIRED) for item in expired], now_us)
        left -= len(expired)
        dying += len(expired)
    forget(tx, part.number, now_us, limit)
    _look_ahead(tx, part, shard)
    return Swept(ready=ready, dying=dying, is_done=left > 0)


def _ended(tx: Parts, part: Part, now_us: int, limit: int) -> list[Item]:
    """Items whose leases have ended, the first first, as they are after that; they are nowhere now."""
    # With several lanes, items of different leases that end together have to be sorted by id.
    order = "l.until_us" if len(part.state.lanes) < 2 else "l.until_us, i.id"
    (found,) = tx.connection.execute(_ENDED.format(order=order), [part.number, now_us, limit]).fetchone()
    rows = [text.split(" ") for text in found.split(",")] if found else []
    counts: dict[tuple[int, str], int] = {}
    runs: dict[tuple[int, str], Run] = {}
    by_lane: dict[int, list[str]] = {}
    for lane, first, last, until_us, leased_us, count, id in rows:
        key = (int(lane), first)
        if key not in runs:
            runs[key] = Run(first, last, int(until_us), int(leased_us), int(count))
        counts[key] = counts.get(key, 0) + 1
        by_lane.setdefault(int(lane), []).append(id)
    items: dict[str, Item] = {}
    for lane, ids in by_lane.items():
        items |= {item.id: item for _, item in queue_rows.read_listed(tx.connection, part.number, [lane], ids)}
        queue_rows.delete_listed(tx.connection, part.number, lane, ids)
        queue_leases.let_go(tx, part, lane, [(run, counts[key]) for key, run in runs.items() if key[0] == lane])
    ended = [items[row[-1]] for row in rows]
    for item in ended:
        item.attempts += 1
    return ended


def _due(tx: Parts, part: Part, shard: Shard, now_us: int, limit: int) -> list[Item]:
    """Scheduled items that are to be looked at; those whose time has come, or passed, are nowhere now."""
    if limit <= 0 or not part.state.scheduled:
        return []
    condition = f"{_DUE} ORDER BY due_us, id LIMIT ?"
    due = [item for _, item in queue_rows.read(tx.connection, condition, [part.number, SCHEDULED, now_us, limit])]
    gone = []
    for item in due:
        if _is_expired(shard, item, now_us) or item.enqueue_us <= now_us:
            gone.append(item.id)
            part.created(item.created_us)
        else:
            # Its time to expire has passed, but nothing expires here.
            sql = "UPDATE queue_items SET due_us = ? WHERE part = ? AND lane = ? AND id = ?"
            tx.connection.execute(sql, [item.enqueue_us, part.number, SCHEDULED, item.id])
    queue_rows.delete_listed(tx.connection, part.number, SCHEDULED, gone)
    part.state.scheduled -= len(gone)
    return due


def _expired(tx: Parts, part: Part, now_us: int, limit: int) -> list[Item]:
    """Ready items past their time; they are nowhere now."""
    tx.inserts.flush()
    early: list[tuple[int, Item]] = []
    lanes = sorted((number, lane) for number, lane in part.state.lanes.items() if lane.ready)
    for number, lane in lanes if part.state.has_early else ():
        condition = f"{_DUE} AND id > ? ORDER BY due_us, id LIMIT ?"
        early += queue_rows.read(tx.connection, condition, [part.number, number, now_us, lane.cursor, limit])
    expired = sorted(early, key=lambda found: (found[1].expire_us, found[1].id))[:limit]
    known = {item.id for _, item in expired}
    for number, lane in lanes:
        after, is_over = lane.cursor, True
        while is_over and len(expired) < limit:
            condition = "part = ? AND lane = ? AND id > ? ORDER BY id LIMIT ?"
            heads = queue_rows.read(tx.connection, condition, [part.number, number, after, _HEADS])
            is_over = bool(heads)
            for found in heads:
                _, item = found
                after = item.id
                if item.id in known:
                    continue
                is_over = 0 < item.expire_us <= now_us and len(expired) < limit
                if not is_over:
                    break
                expired.append(found)
    by_lane: dict[int, list[str]] = {}
    for number, item in expired:
        by_lane.setdefault(number, []).append(item.id)
    for number, ids in by_lane.items():
        queue_rows.delete_listed(tx.connection, part.number, number, ids)
        part.lane(number).ready -= len(ids)
    return [item for _, item in expired]


def _look_ahead(tx: Parts, part: Part, shard: Shard) -> None:
    """When something is due next."""
    tx.inserts.flush()
    state = part.state
    (scheduled_us, leased_us) = tx.connection.execute(
        "SELECT (SELECT min(due_us) FROM queue_items WHERE part = ?1 AND lane = ?2 AND due_us IS NOT NULL),"
        " (SELECT min(until_us) FROM queue_leases WHERE part = ?1)",
        [part.number, SCHEDULED],
    ).fetchone()
    due = [scheduled_us, leased_us]
    has_early = False
    for number, lane in state.lanes.items():
        if state.has_early:
            early_us, is_early = tx.connection.execute(_EARLY, [part.number, number, lane.cursor]).fetchone()
            has_early = has_early or bool(is_early)
            due.append(early_us if shard.expire_us else 0)
        if lane.ready and shard.expire_us:
            condition = "part = ? AND lane = ? AND id > ? ORDER BY id LIMIT 1"
            due += [item.expire_us for _, item in queue_rows.read(tx.connection, condition, [part.number, number, lane.cursor])]
    state.has_early = has_early
    next_due_us = min((at_us for at_us in due if at_us), default=0)
    part.is_changed = part.is_changed or next_due_us != state.next_due_us
    state.next_due_us = next_due_us


def _is_spent(shard: Shard, item: Item) -> bool:
    return 0 < shard.max_attempts < item.attempts


def _is_expired(shard: Shard, item: Item, now_us: int) -> bool:
    return bool(shard.expire_us) and 0 < item.expire_us <= now_us
