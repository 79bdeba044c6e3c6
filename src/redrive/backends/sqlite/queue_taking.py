"""How items leave: leased, done, deleted."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from redrive.backends.sqlite import queue_leases, queue_rows
from redrive.backends.sqlite.queue_leases import Run
from redrive.backends.sqlite.queue_parts import Lane, Part, Parts
from redrive.backends.sqlite.queue_places import give_up, release
from redrive.backends.sqlite.queue_rows import BEHIND, DYING, SCHEDULED, Values, item_of
from redrive.model.bucket import Bucket
from redrive.model.errors import NoSuchItem
from redrive.model.item import PRIORITIES, Item, Leased, Move, Place, Why
from redrive.model.ksuid import LENGTH
from redrive.model.queue import Shard

_EXPIRED = 500
_HIGHEST = "~" * LENGTH
_ASIDE = {Place.SCHEDULED: SCHEDULED, Place.BEHIND: BEHIND, Place.DYING: DYING}


def lease(tx: Parts, shard: Shard, limit: int, now_us: int, until_us: int, ahead: int) -> Leased:
    """See the port. `ahead`: how many others want, in this transaction, of the same shard."""
    fullest = max(tx.of(shard), key=_ready)
    if not shard.rate:
        items, dying = _lease(tx, fullest, shard, limit, now_us, until_us, ahead)
        return Leased(partition=fullest.partition, until_us=until_us, items=items, dying=dying)
    bucket = _bucket(tx, shard.queue).filled(shard.rate, now_us)
    if not bucket.whole and fullest.ready:
        return Leased(partition=fullest.partition, wait_us=bucket.wait_us(shard.rate))
    items, dying = _lease(tx, fullest, shard, min(limit, bucket.whole), now_us, until_us, 0)
    bucket = bucket.less(len(items))
    sql = "INSERT OR REPLACE INTO queue_buckets (queue, tokens, at_us) VALUES (?, ?, ?)"
    tx.connection.execute(sql, [shard.queue, bucket.tokens, bucket.at_us])
    return Leased(partition=fullest.partition, until_us=until_us, items=items, dying=dying)


def _ready(part: Part) -> int:
    return part.ready


def _bucket(tx: Parts, queue: str) -> Bucket:
    row = tx.connection.execute("SELECT tokens, at_us FROM queue_buckets WHERE queue = ?", [queue]).fetchone()
    return Bucket(*row) if row else Bucket()


def _lease(tx: Parts, part: Part, shard: Shard, limit: int, now_us: int, until_us: int, ahead: int) -> tuple[list[Item], int]:
    given: list[Item] = []
    runs: list[tuple[int, Run]] = []
    dying = 0
    for number in range(PRIORITIES):
        lane = part.state.lanes.get(number)
        start = len(given)
        while lane is not None and lane.ready > 0 and len(given) < limit:
            over: list[tuple[Item, Why]] = []
            while lane.ready > 0 and len(given) < limit:
                # Where one has expired, many may have.
                ids, values = _next(tx, part, number, lane, limit - len(given), max(ahead, _EXPIRED) if over else ahead)
                for id, row in zip(ids, values, strict=True):
                    (message_id, source, attempts, created_us, _, enqueue_us, expire_us, payload,
                     reference, encoding, kind, key, priority, story, _, failure) = row  # fmt: skip
                    if 0 < expire_us <= now_us and shard.expire_us:
                        over.append((item_of(id, row, Place.READY), Why.EXPIRED))
                        lane.leased -= 1
                        continue
                    # By position: see `Item`.
                    given.append(Item(
                        id, message_id or id, source, attempts + 1, created_us, now_us, enqueue_us, expire_us, payload,
                        reference, encoding, kind, key, priority, story, Place.LEASED, until_us, "",
                        failure,
                    ))  # fmt: skip
                lane.cursor = ids[-1]
                lane.ready -= len(ids)
                lane.leased += len(ids)
            if over:
                dying += len(over)
                queue_rows.delete_listed(tx.connection, part.number, number, [item.id for item, _ in over])
                give_up(tx, part, over, now_us)
        if len(given) > start:
            runs.append((number, Run(given[start].id, given[-1].id, until_us, now_us, len(given) - start)))
    if runs:
        queue_leases.add(tx.connection, part.number, runs)
        part.was_leased(now_us, len(given))
        part.due(until_us)
        part.is_changed = True
    return given, dying


def _next(tx: Parts, part: Part, number: int, lane: Lane, limit: int, ahead: int) -> tuple[list[str], list[Values]]:
    """The next ready items of a lane; and so many more are read, for those who want them next."""
    tx.inserts.flush()
    key = (part.number, number)
    ids, values = tx.ahead.pop(key, ([], []))
    if len(ids) < limit and len(ids) < lane.ready:
        condition = "part = ? AND lane = ? AND id > ? ORDER BY id LIMIT ?"
        ids, values, _ = queue_rows.read_values(tx.connection, condition, [*key, lane.cursor, limit + ahead])
    tx.ahead[key] = ids[limit:], values[limit:]
    return ids[:limit], values[:limit]


def complete(tx: Parts, part: Part, ids: Sequence[str], now_us: int) -> None:
    found = queue_leases.held(tx, part, ids, now_us)
    keys = []
    if part.state.keys:
        items = {
            item.id: item
            for some in found
            for _, item in queue_rows.read_listed(tx.connection, part.number, [some.lane], some.ids)
        }
        keys = [items[id].key for id in dict.fromkeys(ids)]
    queue_leases.taken(tx, part, found)
    release(tx, part, keys, now_us)


def delete(tx: Parts, part: Part, ids: Sequence[str], now_us: int) -> None:
    """Delete items, wherever they are."""
    tx.inserts.flush()
    tx.ahead.clear()
    lanes = [*part.state.lanes, SCHEDULED, BEHIND, DYING]
    found = {item.id: (lane, item) for lane, item in queue_rows.read_listed(tx.connection, part.number, lanes, list(set(ids)))}
    for id in ids:
        if id not in found:
            raise NoSuchItem(id)
    by_lane: dict[int, list[str]] = {}
    for id in sorted(found):
        by_lane.setdefault(found[id][0], []).append(id)
    for number, some in by_lane.items():
        part.is_changed = True
        queue_rows.delete_listed(tx.connection, part.number, number, some)
        if number != SCHEDULED:
            for id in some:
                part.created(found[id][1].created_us, -1)
        if number >= PRIORITIES:
            _count_aside(part, number, len(some))
            continue
        lane = part.lane(number)
        leased = [id for id in some if id <= lane.cursor]
        lane.ready -= len(some) - len(leased)
        if leased:
            runs = queue_leases.overlapping(tx.connection, part.number, number, leased[0], leased[-1])
            counted = [(run, sum(run.first <= id <= run.last for id in leased)) for run in runs]
            queue_leases.let_go(tx, part, number, [(run, count) for run, count in counted if count])
    # Those behind went first, so that nobody moves up only to be deleted as well.
    release(tx, part, [found[id][1].key for id in dict.fromkeys(ids) if found[id][0] < BEHIND], now_us)


def dying_ones(tx: Parts, shard: Shard, moves: Sequence[Move]) -> dict[tuple[int, str], Move]:
    """Those of the moves whose items are dying, by partition and id."""
    tx.inserts.flush()
    asked = {(move.partition, move.id): move for move in moves}
    dying: set[tuple[int, str]] = set()
    for partition in dict.fromkeys(move.partition for move in moves):
        ids = [id for number, id in asked if number == partition]
        found = queue_rows.read_listed(tx.connection, tx.at(shard.queue, partition).number, [DYING], ids)
        dying.update((partition, item.id) for _, item in found)
    return {key: move for key, move in asked.items() if key in dying}


def _count_aside(part: Part, lane: int, gone: int) -> None:
    if lane == SCHEDULED:
        part.state.scheduled -= gone
    elif lane == BEHIND:
        part.state.behind -= gone
    else:
        part.state.dying -= gone


def clear(tx: Parts, part: Part, places: Collection[Place], now_us: int) -> int:
    """Delete all items in these places."""
    if not part.number:
        return 0
    tx.inserts.flush()
    tx.ahead.clear()
    keyed: list[tuple[str, str]] = []
    count = sum(_clear(tx, part, lane, "", _HIGHEST, keyed) for place, lane in _ASIDE.items() if place in places)
    for number, lane in part.state.lanes.items():
        if Place.LEASED in places and lane.leased:
            count += _clear(tx, part, number, "", lane.cursor, keyed)
            tx.connection.execute("DELETE FROM queue_leases WHERE part = ? AND lane = ?", [part.number, number])
            lane.leased = 0
        if Place.READY in places and lane.ready:
            count += _clear(tx, part, number, lane.cursor + "!", _HIGHEST, keyed)
            lane.ready = 0
    if Place.LEASED in places:
        part.state.leased_s = part.state.leased_us = 0
    release(tx, part, [key for _, key in sorted(keyed)], now_us)
    return count


def _clear(tx: Parts, part: Part, lane: int, first: str, last: str, keyed: list[tuple[str, str]]) -> int:
    """Delete a range of a lane; note the keys of those that others may stand behind."""
    count, seconds, micros = queue_rows.count_range(tx.connection, part.number, lane, first, last)
    if not count:
        return 0
    if part.state.keys and lane < BEHIND:
        items = queue_rows.read(tx.connection, "part = ? AND lane = ? AND id BETWEEN ? AND ?", [part.number, lane, first, last])
        keyed += [(item.id, item.key) for _, item in items if item.key]
    part.is_changed = True
    queue_rows.delete_range(tx.connection, part.number, lane, first, last)
    if lane != SCHEDULED:
        part.state.created_s -= seconds
        part.state.created_us -= micros
    if lane >= PRIORITIES:
        _count_aside(part, lane, count)
    return count
