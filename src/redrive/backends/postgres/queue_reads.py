"""What is asked of queues without changing them: each a statement, which sees all partitions as of one instant."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import json

from redrive.backends.postgres.database import Database
from redrive.backends.postgres.queue_rows import ITEM, WIDTH, item
from redrive.backends.postgres.rows import plain, restored_text
from redrive.model.errors import QueueGone
from redrive.model.item import OVERDUE_US, PRIORITIES, Due, Item, PartitionStats, Place
from redrive.model.queue import Catalogue, Queue, Shard

SCHEDULED, BEHIND, DYING = range(PRIORITIES, PRIORITIES + 3)
"""Their spots. Those before are the lanes, from the highest priority on."""
SPOTS = {Place.SCHEDULED: SCHEDULED, Place.BEHIND: BEHIND, Place.DYING: DYING}


class QueueReads:
    def __init__(self, database: Database) -> None:
        self._database = database
        schema = database.schema
        self._catalogue = (
            f"SELECT c.version, q.data FROM {schema}.queue_catalogue c LEFT JOIN {schema}.queues q ON true ORDER BY q.id"
        )
        shard = f"""
            unnest($2::int[]) WITH ORDINALITY w (number, place)
            LEFT JOIN {schema}.queue_parts p ON p.queue = $1 AND p.number = w.number
        """
        self._stats = f"""
            SELECT p.is_gone, w.number, c.total, p.leased, p.ready, p.scheduled, p.behind, p.dying,
                CASE WHEN c.total > 0 THEN greatest(n.us - div(p.created_us, c.total), 0)::bigint ELSE 0 END,
                CASE WHEN p.leased > 0 THEN greatest(n.us - div(p.leased_us, p.leased), 0)::bigint ELSE 0 END
            FROM {schema}.queue_now($3) n (us), {shard}
            LEFT JOIN LATERAL (SELECT p.ready + p.leased + p.behind + p.dying AS total) c ON true
            ORDER BY w.place
        """
        own = ", ".join(f"i.{name}" for name in ITEM)
        self._dying = f"""
            SELECT {own}, i.why, w.number, p.is_gone FROM {shard}
            LEFT JOIN LATERAL (
                SELECT i.* FROM {schema}.queue_items i
                WHERE i.part = p.part AND i.spot = {DYING} AND i.spot IN ({SCHEDULED}, {DYING})
                ORDER BY i.part, i.spot, i.turn, i.id LIMIT $3
            ) i ON true
            ORDER BY w.place, i.turn LIMIT $3::bigint + cardinality($2)
        """
        given = {"attempts": "i.attempts + (s.is_leased)::int", "updated_us": "coalesce(l.leased_us, i.updated_us)"}
        # A space is lower than all that an id begins with, and a tilde higher.
        self._items = f"""
            SELECT {", ".join(given.get(name, f"i.{name}") for name in ITEM)}, i.why, i.spot, s.is_leased, l.until_us, p.is_gone
            FROM {schema}.queue_parts p
            CROSS JOIN LATERAL (
                SELECT s.spot, false AS is_leased, '' AS low, '~' AS high FROM unnest($3::smallint[]) s (spot)
                UNION ALL
                SELECT h.place - 1, false, h.head || ' ', '~' FROM unnest(p.heads) WITH ORDINALITY h (head, place) WHERE $4
                UNION ALL
                SELECT l.spot, true, min(l.first), max(l.last) FROM {schema}.queue_leases l WHERE l.part = p.part AND $5
                GROUP BY l.spot
            ) s
            LEFT JOIN LATERAL (
                SELECT i.* FROM {schema}.queue_items i
                WHERE i.spot = s.spot::smallint AND i.part = p.part AND i.id >= greatest(s.low, $6 COLLATE "C") AND i.id <= s.high
                ORDER BY i.spot, i.part, i.id LIMIT $7
            ) i ON true
            LEFT JOIN LATERAL (
                SELECT l.* FROM {schema}.queue_leases l
                WHERE s.is_leased AND l.part = i.part AND (l.spot, l.first) <= (i.spot, i.id) AND l.spot >= i.spot
                ORDER BY l.part DESC, l.spot DESC, l.first DESC LIMIT 1
            ) l ON true
            WHERE p.queue = $1 AND p.number = $2 AND (p.is_gone OR i.id IS NOT NULL)
            ORDER BY i.id LIMIT $7
        """
        self._next_due = f"""
            SELECT p.queue, min(CASE WHEN p.dying > 0 THEN {OVERDUE_US} ELSE p.due_us END) AS at_us
            FROM {schema}.queue_parts p WHERE p.due_us > 0 OR p.dying > 0
            GROUP BY p.queue ORDER BY at_us, p.queue LIMIT $1
        """

    async def catalogue(self) -> Catalogue:
        rows = await self._database.read(self._catalogue)
        queues = [json.decode(data, type=Queue) for _, data in rows if data is not None]
        return Catalogue(version=rows[0][0], queues=tuple(sorted(queues, key=lambda queue: queue.name)))

    async def stats(self, shard: Shard, now_us: int | None) -> list[PartitionStats]:
        rows = await self._database.read(self._stats, plain(shard.queue), shard.partitions, now_us)
        _ensure_there(shard, (row[0] for row in rows))
        return [
            PartitionStats(
                partition=number,
                total=total or 0,
                leased=leased or 0,
                ready=ready or 0,
                scheduled=scheduled or 0,
                behind=behind or 0,
                dying=dying or 0,
                average_age_us=age_us,
                average_leased_age_us=leased_age_us,
            )
            for _, number, total, leased, ready, scheduled, behind, dying, age_us, leased_age_us in rows
        ]

    async def dying(self, shard: Shard, limit: int) -> list[tuple[int, Item]]:
        rows = await self._database.read(self._dying, plain(shard.queue), shard.partitions, limit)
        _ensure_there(shard, (row[-1] for row in rows))
        found = [(row[WIDTH + 1], item(row, Place.DYING, 0, row[WIDTH])) for row in rows if row[0] is not None]
        return found[:limit]

    async def items(self, shard: Shard, partition: int, places: frozenset[Place], pivot: str, limit: int) -> list[Item]:
        spots = [spot for place, spot in SPOTS.items() if place in places]
        asked = (spots, Place.READY in places, Place.LEASED in places, plain(pivot), limit)
        rows = await self._database.read(self._items, plain(shard.queue), partition, *asked)
        _ensure_there(shard, (row[-1] for row in rows))
        return [
            item(row, Place.LEASED if is_leased else _PLACES[spot], until_us or 0, why)
            for row in rows
            for why, spot, is_leased, until_us in (row[WIDTH : WIDTH + 4],)
        ]

    async def next_due(self, limit: int) -> list[Due]:
        rows = await self._database.read(self._next_due, limit)
        return [Due(queue=restored_text(queue), at_us=at_us) for queue, at_us in rows]


_PLACES = [Place.READY] * PRIORITIES + list(SPOTS)


def _ensure_there(shard: Shard, are_gone: Iterable[bool | None]) -> None:
    if any(are_gone):
        raise QueueGone(f"queue '{shard.queue}' was deleted")
