"""Which queues there are, and which are gone."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from msgspec import msgpack

from redrive.backends.sqlite.queue_parts import Parts, State
from redrive.backends.sqlite.rows import filled, marks, pieces, read_all, write_rows
from redrive.model.queue import Catalogue, Queue, Shard

_queue = msgpack.Decoder(Queue).decode
_encoded = msgpack.Encoder().encode


def read(connection: sqlite3.Connection) -> Catalogue:
    (version,) = connection.execute("SELECT version FROM queue_catalogue").fetchone()
    queues = [_queue(data) for _, data in read_all(connection, "SELECT '' AS note, data FROM queues", [])]
    return Catalogue(version=version, queues=tuple(sorted(queues, key=lambda queue: queue.name)))


def define(connection: sqlite3.Connection, requests: list[tuple[int, Sequence[Queue], Sequence[str]]]) -> list[bool]:
    return [_define(connection, *request) for request in requests]


def _define(connection: sqlite3.Connection, version: int, queues: Sequence[Queue], drop: Sequence[str]) -> bool:
    sql = "UPDATE queue_catalogue SET version = version + 1 WHERE version = ?"
    if not connection.execute(sql, [version]).rowcount:
        return False
    conflict = "ON CONFLICT (id) DO UPDATE SET data = excluded.data"
    write_rows(connection, "queues", ("id", "data"), [(queue.id, _encoded(queue)) for queue in queues], conflict)
    for some in pieces(drop):
        connection.execute(f"DELETE FROM queues WHERE id IN ({marks(len(some))})", filled(some))
    return True


def remove(tx: Parts, shard: Shard) -> None:
    """Nothing is left of these partitions but that they are gone."""
    tx.inserts.flush()
    tx.ahead.clear()
    for partition in shard.partitions:
        part = tx.known(shard.queue, partition)
        number = tx.number(part)
        for table in ("queue_items", "queue_leases", "queue_keys", "queue_seen"):
            tx.connection.execute(f"DELETE FROM {table} WHERE part = ?", [number])
        tx.connection.execute("UPDATE queue_parts SET is_gone = 1 WHERE part = ?", [number])
        part.state = State(last=part.state.last)
        part.is_gone = part.is_changed = True
    tx.connection.execute("DELETE FROM queue_buckets WHERE queue = ?", [shard.queue])
