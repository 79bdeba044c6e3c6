"""Queues and items to test with, made by hand: each item by a name, and all else as a test says."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from redrive.model.instant import micros
from redrive.model.item import Fresh, Item, Place
from redrive.model.queue import Shard
from redrive.testing.kit.samples import START

SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US
HOUR_US = 60 * MINUTE_US
START_US = micros(START)

ORDERS = Shard(queue="orders", partitions=(0,), lease_us=MINUTE_US, expire_us=HOUR_US, max_attempts=2)
"""A queue of one partition, in which items may be leased twice and wait for an hour."""
PAIR = Shard(queue="pair", partitions=(0, 1), lease_us=MINUTE_US, expire_us=HOUR_US, max_attempts=2)
"""The same with two partitions."""
LINES = Shard(queue="lines", partitions=(0,), lease_us=MINUTE_US, expire_us=HOUR_US, max_attempts=2, is_ordered=True)
"""The same, in which items of a key are leased one at a time."""
DEAD = Shard(queue="dead", partitions=(0,), lease_us=MINUTE_US)
"""A dead queue: what is in it waits for ever."""

EVERYWHERE = frozenset(Place)


def fresh(name: str, **changes: Any) -> Fresh:
    """An item to put. Its name is its reference."""
    return Fresh(**{"reference": name, "payload": f"payload of {name}".encode(), **changes})


def named(*names: str, **changes: Any) -> list[Fresh]:
    return [fresh(name, **changes) for name in names]


def names(items: Iterable[Item]) -> list[str]:
    return [item.reference for item in items]
