"""What `redrive queue` knows of queues and items, and its shape as JSON."""

from __future__ import annotations

import base64
from datetime import datetime
from typing import Any

from msgspec import Struct, to_builtins

from redrive.model.instant import instant
from redrive.model.item import Item, Place
from redrive.model.letter import Failure
from redrive.model.queue import Queue
from redrive.model.story import failure_heard, heard
from redrive.queues.verbs import QueueStats

PLACES = (Place.READY, Place.LEASED, Place.SCHEDULED, Place.BEHIND, Place.DYING)


class Known(Struct, frozen=True):
    """What is known of a queue: how it is defined, how it stands, and whose dead queue it is."""

    queue: Queue
    stats: QueueStats
    dead_queue_of: tuple[str, ...] = ()

    def count(self, *places: Place) -> int:
        """Its items in these places; without any, all."""
        return sum(getattr(one, place.value) for one in self.stats.partitions for place in places or PLACES)


class Kept(Struct, frozen=True):
    """An item and the partition it is in."""

    partition: int
    item: Item

    @property
    def handle(self) -> str:
        """By which it is completed, retried and extended."""
        return f"{self.partition}:{self.item.id}"

    @property
    def failure(self) -> Failure | None:
        """The last that a consumer told of."""
        return failure_heard(self.item.failure) or heard(self.item.story).failure


def queue_shape(known: Known) -> dict[str, Any]:
    queue = known.queue
    return {
        "name": queue.name,
        "lease_timeout_seconds": queue.lease_timeout.total_seconds(),
        "expire_timeout_seconds": queue.expire_timeout.total_seconds(),
        "max_attempts": queue.max_attempts or None,
        "dead_queue": queue.dead_queue or None,
        "dead_queue_of": known.dead_queue_of,
        "partitions": len(queue.partitions),
        "stores": queue.partitions,
        "ordered": queue.ordered,
        "dedupe_seconds": queue.dedupe.total_seconds() or None,
        "rate": queue.rate or None,
        "reference": queue.reference,
        "created_at": _at(queue.created_us),
        "updated_at": _at(queue.updated_us),
        "items": {place.value: known.count(place) for place in PLACES},
    }


def stats_shape(name: str, stats: QueueStats) -> dict[str, Any]:
    return {
        "queue": name,
        "producing": stats.producing,
        "leasing": stats.leasing,
        "settling": stats.settling,
        "partitions": [
            {
                "partition": one.partition,
                **{place.value: getattr(one, place.value) for place in PLACES},
                "average_age_seconds": one.average_age_us / 1e6,
                "average_leased_age_seconds": one.average_leased_age_us / 1e6,
                "failures": stats.failures.get(one.partition, 0),
            }
            for one in stats.partitions
        ],
    }


def item_shape(kept: Kept) -> dict[str, Any]:
    """Every field. Bytes are text where they are UTF-8, else base64 under `…_base64`, as in letters."""
    item, story = kept.item, heard(kept.item.story)
    death = None
    if story.queue:
        death = {
            "queue": story.queue,
            "partition": story.partition,
            "why": story.why,
            "attempts": story.attempts,
            "created_at": _at(story.created_us),
            "died_at": _at(story.died_us),
        }
    return {
        "handle": kept.handle,
        "partition": kept.partition,
        "id": item.id,
        "message_id": item.message_id,
        "source_id": item.source_id or None,
        "place": item.place.value,
        "attempts": item.attempts,
        "created_at": _at(item.created_us),
        "updated_at": _at(item.updated_us),
        "enqueue_at": _at(item.enqueue_us),
        "expires_at": _at(item.expire_us),
        "leased_until": _at(item.lease_us),
        "reference": item.reference,
        "kind": item.kind,
        "encoding": item.encoding,
        "key": item.key,
        "priority": item.priority,
        "headers": [{"name": name} | _bytes("value", value) for name, value in story.headers],
        **_bytes("payload", item.payload),
        "why": item.why or None,
        "failure": _failure_shape(kept.failure),
        "death": death,
    }


def _failure_shape(failure: Failure | None) -> dict[str, Any] | None:
    return None if failure is None else {name: to_builtins(getattr(failure, name)) for name in Failure.__struct_fields__}


def _bytes(name: str, value: bytes) -> dict[str, str]:
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}


def _at(micros: int) -> datetime | None:
    return instant(micros) if micros else None
