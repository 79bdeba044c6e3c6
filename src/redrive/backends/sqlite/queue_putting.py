"""How items come into a partition."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import json

from redrive.backends.sqlite.queue_parts import Part, Parts
from redrive.backends.sqlite.queue_places import is_last_to_expire, lane_of, line_up, set_aside, stand_behind
from redrive.backends.sqlite.queue_rows import encoded
from redrive.backends.sqlite.rows import filled, marks, pieces, write_rows
from redrive.model.item import SOON_US, Fresh, Item
from redrive.model.queue import Shard

_FORGET = 4
"""So many references that are remembered no longer go for each that comes, at most."""


def put(tx: Parts, shard: Shard, items: Sequence[Fresh], now_us: int) -> list[str]:
    """See the port."""
    roomiest = min(tx.of(shard), key=_ready)
    if all(fresh.partition is None for fresh in items):
        return _put(tx, roomiest, shard, items, now_us)
    by_partition: dict[int, list[int]] = {}
    for number, fresh in enumerate(items):
        chosen = roomiest.partition if fresh.partition is None else fresh.partition
        by_partition.setdefault(chosen, []).append(number)
    parts = [tx.at(shard.queue, chosen) for chosen in by_partition]
    ids = [""] * len(items)
    for part, numbers in zip(parts, by_partition.values(), strict=True):
        put = _put(tx, part, shard, [items[number] for number in numbers], now_us)
        for number, id in zip(numbers, put, strict=True):
            ids[number] = id
    return ids


def _ready(part: Part) -> int:
    return part.ready


def _put(tx: Parts, part: Part, shard: Shard, items: Sequence[Fresh], now_us: int) -> list[str]:
    if not items:
        return []
    number = tx.number(part)
    part.is_changed = True
    ids = part.positions(len(items), now_us)
    if shard.dedupe_us or shard.is_ordered or any(fresh.source_id for fresh in items):
        for one in _known(tx, number, shard, items, now_us):
            ids[one] = ""
        if shard.is_ordered:
            _put_ordered(tx, part, shard, items, ids, now_us)
            return ids
    _line_up(tx, part, shard, items, ids, now_us)
    return ids


def _line_up(tx: Parts, part: Part, shard: Shard, items: Sequence[Fresh], ids: Sequence[str], now_us: int) -> None:
    """Those that have an id are ready, or scheduled. The many about which nothing is asked cost as little as they can."""
    expire_us = now_us + shard.expire_us if shard.expire_us else 0
    soon_us = now_us + SOON_US
    is_plain = is_last_to_expire(part, expire_us)
    plain, count, ordinary = tx.inserts.plain(part.number, lane_of(0), now_us), 0, lane_of(0)
    for id, fresh in zip(ids, items, strict=True):
        if not is_plain or fresh.source_id or fresh.expire_us or fresh.enqueue_us >= soon_us or not id:
            if id:
                _place(tx, part, _item(shard, fresh, id, now_us))
                is_plain = is_last_to_expire(part, expire_us)
            continue
        created_us = fresh.created_us or now_us
        data = encoded((
            fresh.message_id, "", fresh.attempts, created_us, now_us, 0, expire_us, fresh.payload,
            fresh.reference, fresh.encoding, fresh.kind, fresh.key, fresh.priority, fresh.story, "", b"",
        ))  # fmt: skip
        if fresh.priority == 0 and created_us == now_us:
            plain += (id, data)
            count += 1
        else:
            lane = lane_of(fresh.priority)
            tx.inserts.plain(part.number, lane, created_us).extend((id, data))
            part.lane(lane).ready += 1
            part.created(created_us)
    if count:
        part.lane(ordinary).ready += count
        part.created(now_us, count)
    part.due(expire_us)


def _item(shard: Shard, fresh: Fresh, id: str, now_us: int) -> Item:
    at_us = fresh.enqueue_us if fresh.enqueue_us >= now_us + SOON_US else 0
    expire_us = fresh.expire_us or ((at_us or now_us) + shard.expire_us if shard.expire_us else 0)
    return Item(
        id, fresh.message_id or id, fresh.source_id, fresh.attempts, fresh.created_us or now_us, now_us, at_us, expire_us,
        fresh.payload, fresh.reference, fresh.encoding, fresh.kind, fresh.key, fresh.priority, fresh.story,
    )  # fmt: skip


def _place(tx: Parts, part: Part, item: Item) -> None:
    if item.enqueue_us:
        set_aside(tx, part, item)
    else:
        part.created(item.created_us)
        line_up(tx, part, item)


def _put_ordered(tx: Parts, part: Part, shard: Shard, items: Sequence[Fresh], ids: Sequence[str], now_us: int) -> None:
    """One whose key has an item here goes behind it."""
    keys = _there(tx, "queue_keys", "key", part.number, {fresh.key for fresh in items if fresh.key})
    first: list[str] = []
    for id, fresh in zip(ids, items, strict=True):
        if not id:
            continue
        item = _item(shard, fresh, id, now_us)
        if fresh.key in keys:
            part.created(item.created_us)
            stand_behind(tx, part, item)
            continue
        if fresh.key:
            keys.add(fresh.key)
            first.append(fresh.key)
        _place(tx, part, item)
    write_rows(tx.connection, "queue_keys", ("part", "key"), [(part.number, key) for key in first], "")
    part.state.keys += len(first)


def _known(tx: Parts, part: int, shard: Shard, items: Sequence[Fresh], now_us: int) -> list[int]:
    """Which of the items are there already; the references of the others are remembered."""
    sources = {fresh.source_id for fresh in items if fresh.source_id}
    seen: set[str] = set()
    if sources:
        tx.inserts.flush()
        sources = _there(tx, "queue_items", "source", part, sources)
    if shard.dedupe_us:
        references = {fresh.reference for fresh in items if fresh.reference}
        seen = _there(tx, "queue_seen", "reference", part, references, f"AND +until_us > {now_us:d}")
    known, new = [], []
    for number, fresh in enumerate(items):
        if fresh.source_id and fresh.source_id in sources:
            known.append(number)
            continue
        if shard.dedupe_us and fresh.reference:
            if fresh.reference in seen:
                known.append(number)
                continue
            seen.add(fresh.reference)
            new.append((part, fresh.reference, now_us + shard.dedupe_us))
        if fresh.source_id:
            sources.add(fresh.source_id)
    if new:
        conflict = "ON CONFLICT (part, reference) DO UPDATE SET until_us = excluded.until_us"
        write_rows(tx.connection, "queue_seen", ("part", "reference", "until_us"), new, conflict)
        forget(tx, part, now_us, _FORGET * len(new))
    return known


def forget(tx: Parts, part: int, now_us: int, limit: int) -> None:
    """References that are remembered no longer go, so many at most."""
    tx.connection.execute(
        "DELETE FROM queue_seen WHERE part = ?1 AND reference IN"
        " (SELECT reference FROM queue_seen WHERE part = ?1 AND until_us <= ?2 ORDER BY until_us LIMIT ?3)",
        [part, now_us, limit],
    )


def _there(tx: Parts, table: str, column: str, part: int, values: Iterable[str], more: str = "") -> set[str]:
    """Which of these values the partition has."""
    found: set[str] = set()
    for some in pieces(sorted(values)):
        sql = f"SELECT json_group_array({column}) FROM {table} WHERE part = ? AND {column} IN ({marks(len(some))}) {more}"
        (text,) = tx.connection.execute(sql, [part, *filled(some)]).fetchone()
        found.update(json.decode(text, type=list[str]))
    return found
