"""A queue: what it is called, how it treats its items, and which queues may be each other's dead queue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta

from msgspec import Struct

from redrive.model.errors import QueueRefused


class Queue(Struct, frozen=True, kw_only=True):
    """A queue as it was defined."""

    id: str
    """Minted when it was created: a queue made again under the same name is another one."""
    name: str
    lease_timeout: timedelta
    expire_timeout: timedelta
    created_us: int
    updated_us: int
    partitions: tuple[str, ...]
    """The name of the store in which each partition lies."""
    dead_queue: str = ""
    reference: str = ""
    max_attempts: int = 0
    """An item is given up on when its attempts exceed this; 0: never for its attempts."""
    ordered: bool = False
    """Items of a key are leased one at a time, in order."""
    dedupe: timedelta = timedelta()
    """An item whose reference came within this time is taken for the same and not put again."""
    rate: float = 0.0
    """Items that may be leased a second; 0: as many as are there."""


class Shard(Struct, frozen=True, kw_only=True):
    """The partitions of a queue that lie in one store, and how their items are to be treated."""

    queue: str
    """The queue's id."""
    partitions: tuple[int, ...]
    lease_us: int
    expire_us: int = 0
    """How long an item may wait; 0: for ever, as in a dead queue."""
    max_attempts: int = 0
    is_ordered: bool = False
    dedupe_us: int = 0
    rate: float = 0.0
    """This store's share of the queue's rate."""


class Catalogue(Struct, frozen=True, kw_only=True):
    """All queues, as of a version that every change raises."""

    version: int = 0
    queues: tuple[Queue, ...] = ()


def ensure_dead_queue_fits(queue: Queue, others: Mapping[str, Queue]) -> None:
    """Raise unless the queue's dead queue is there and is the end of the way, for it and for those that lead to it."""
    if not queue.dead_queue:
        return
    if queue.dead_queue == queue.name:
        raise QueueRefused("dead_queue cannot reference itself")
    dead = others.get(queue.dead_queue)
    if dead is None:
        raise QueueRefused(f"dead_queue '{queue.dead_queue}' does not exist; create it first")
    if dead.dead_queue:
        raise QueueRefused(f"dead_queue '{queue.dead_queue}' cannot have its own dead_queue")
    if leading_to(queue.name, others.values()):
        raise QueueRefused(f"dead_queue '{queue.name}' cannot have its own dead_queue")


def leading_to(name: str, queues: Iterable[Queue]) -> list[str]:
    """The queues whose dead queue this one is."""
    return [queue.name for queue in queues if queue.dead_queue == name and queue.name != name]
