"""What is asked of queues without changing them."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection

from msgspec import json

from redrive.backends.sqlite import queue_leases, queue_rows
from redrive.backends.sqlite.queue_parts import Part
from redrive.backends.sqlite.queue_rows import BEHIND, DYING, SCHEDULED
from redrive.model.item import Due, Item, Place

_ASIDE = {Place.SCHEDULED: SCHEDULED, Place.BEHIND: BEHIND, Place.DYING: DYING}

_NEXT_DUE = """
    SELECT json_group_array(json_array(queue, at_us)) FROM (
        SELECT queue, min(next_due_us) AS at_us FROM queue_parts INDEXED BY queue_parts_due
        WHERE next_due_us IS NOT NULL GROUP BY queue ORDER BY 2, queue LIMIT ?
    )
"""


def items(connection: sqlite3.Connection, part: Part, places: Collection[Place], pivot: str, limit: int) -> list[Item]:
    """Items in these places by position id, from the pivot on."""
    found: list[Item] = []
    for place, number in _ASIDE.items():
        if place in places:
            found += _listed(connection, part, number, "id >= ?", [pivot], limit)
    for number, lane in part.state.lanes.items():
        if Place.LEASED in places and lane.leased:
            some = _listed(connection, part, number, "id >= ? AND id <= ?", [pivot, lane.cursor], limit)
            found += _as_leased(connection, part, number, some)
        if Place.READY in places and lane.ready:
            found += _listed(connection, part, number, "id >= ? AND id > ?", [pivot, lane.cursor], limit)
    return sorted(found, key=lambda item: item.id)[:limit]


def _listed(
    connection: sqlite3.Connection, part: Part, lane: int, condition: str, parameters: list[str], limit: int
) -> list[Item]:
    condition = f"part = ? AND lane = ? AND {condition} ORDER BY id LIMIT ?"
    return [item for _, item in queue_rows.read(connection, condition, [part.number, lane, *parameters, limit])]


def _as_leased(connection: sqlite3.Connection, part: Part, lane: int, found: list[Item]) -> list[Item]:
    """The items, which are in order, as their leases made them."""
    if not found:
        return []
    runs = iter(queue_leases.overlapping(connection, part.number, lane, found[0].id, found[-1].id))
    run = next(runs)
    for item in found:
        while run.last < item.id:
            run = next(runs)
        item.place, item.attempts = Place.LEASED, item.attempts + 1
        item.updated_us, item.lease_us = run.leased_us, run.until_us
    return found


def next_due(connection: sqlite3.Connection, limit: int) -> list[Due]:
    (found,) = connection.execute(_NEXT_DUE, [limit]).fetchone()
    return [Due(queue=queue, at_us=at_us) for queue, at_us in json.decode(found, type=list[tuple[str, int]])]
