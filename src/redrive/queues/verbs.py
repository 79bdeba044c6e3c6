"""What is asked of queues and answered, wherever they are: in this process, or behind HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct

from redrive.engine.capture import aware
from redrive.engine.describe import describe
from redrive.model.instant import micros
from redrive.model.item import Again, Fresh, Item, PartitionStats
from redrive.model.letter import headers as headers_of
from redrive.model.story import Story, failure_told, told


class Limits(Struct, frozen=True, kw_only=True):
    """How much a queue takes on at a time; what is more is told to come again."""

    producing: int = 5_000
    """Requests to produce that wait for the store."""
    leasing: int = 20_000
    """Requests to lease that wait for an item."""


class QueueStats(Struct, frozen=True, kw_only=True):
    """How a queue stands."""

    producing: int = 0
    """Requests to produce that are being written."""
    leasing: int = 0
    """Requests to lease that wait for an item."""
    settling: int = 0
    """Requests to complete or retry that are being written."""
    partitions: list[PartitionStats] = []
    failures: dict[int, int] = {}
    """How often in a row the store of a partition has failed, where it has."""


def item(
    payload: bytes | str,
    *,
    reference: str = "",
    encoding: str = "",
    kind: str = "",
    at: datetime | None = None,
    key: str = "",
    priority: int = 0,
    headers: Mapping[str, Any] | None = None,
) -> Fresh:
    """Something to produce. `at`: not before this instant. `key`: in an ordered queue, items of a key keep their order."""
    return Fresh(
        payload=payload.encode() if isinstance(payload, str) else payload,
        reference=reference,
        encoding=encoding,
        kind=kind,
        enqueue_us=micros(aware(at)) if at else 0,
        key=key,
        priority=priority,
        story=told(Story(headers=headers_of(headers))) if headers else b"",
    )


def again(item: Item | str, error: BaseException | None = None, *, at: datetime | None = None, dead: bool = False) -> Again:
    """A leased item, or its id, that was not worked off: why, when it may be tried again, or that it is to be given up."""
    return Again(
        id=item if isinstance(item, str) else item.id,
        at_us=micros(aware(at)) if at else 0,
        dead=dead,
        failure=failure_told(describe(error)) if error is not None else b"",
    )
