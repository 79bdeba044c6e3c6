"""What generated command sequences on queues draw from, and how two stores' answers are compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Literal

from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from redrive.model.errors import NoSuchItem, NotLeased, QueueGone
from redrive.model.item import Fresh, Item, PartitionStats, Place
from redrive.model.queue import Shard
from redrive.testing.kit.queue_clerk import QueueClerk
from redrive.testing.kit.queue_samples import DEAD, LINES, MINUTE_US, PAIR, SECOND_US

KEYED = replace(LINES, partitions=(0, 1), dedupe_us=10 * MINUTE_US)
SHARDS = (PAIR, KEYED, DEAD)
WHICH = st.sampled_from([0, 0, 0, 1, 1, 1, 2])
PICKS = st.lists(st.integers(0, 3) | st.integers(0, 50), min_size=1, max_size=3, unique=True)
DELAYS_US = st.sampled_from([0, 0, 0, 0, 99_999, 100_000, 30 * SECOND_US, 90 * MINUTE_US])
WAITS = st.sampled_from(
    [
        timedelta(microseconds=1),
        *[timedelta(seconds=20)] * 3,
        *[timedelta(minutes=1)] * 3,
        timedelta(minutes=29),
        timedelta(hours=1),
    ]
)
How = Literal["extend", "complete", "retry", "give up"]
HOWS: st.SearchStrategy[How] = st.sampled_from(["extend", "complete", "complete", "retry", "retry", "give up"])
PLACES = st.frozensets(st.sampled_from(Place), max_size=3)


class Held(Struct, frozen=True):
    """A lease as the store and as the oracle gave it: ids are a store's own affair."""

    shard: Shard
    partition: int
    ours: str
    theirs: str


class Spec(Struct, frozen=True):
    """What is put, before it has a name."""

    key: int = 0
    delay_us: int = 0
    expires: bool = False
    partition: int | None = None
    source: int = 0
    repeats: bool = False
    attempts: int = 0

    def named(self, number: int, shard: Shard, now_us: int) -> Fresh:
        """The item of this number. Items of a key have the same priority."""
        return Fresh(
            payload=b"%06d" % number,
            reference=f"r{number - 1}" if self.repeats else f"r{number}",
            key="abc"[self.key - 1] if self.key else "",
            priority=self.key,
            partition=None if self.partition is None else min(self.partition, shard.partitions[-1]),
            enqueue_us=now_us + self.delay_us if self.delay_us else 0,
            expire_us=now_us + 30 * MINUTE_US if self.expires else 0,
            source_id=f"source {self.source}" if self.source else "",
            attempts=self.attempts,
        )


SPECS = st.builds(
    Spec,
    key=st.integers(0, 3),
    delay_us=DELAYS_US,
    expires=st.sampled_from([False] * 4 + [True]),
    partition=st.sampled_from([None, None, 0, 1]),
    source=st.sampled_from([0] * 5 + [1, 2]),
    repeats=st.booleans(),
    attempts=st.sampled_from([0, 0, 0, 2]),
)


def answer(act: Callable[[], object]) -> object:
    """What a verb answers, or what it refuses with."""
    try:
        return act()
    except (NoSuchItem, NotLeased, QueueGone) as error:
        return type(error)


def by_payload(items: list[Item]) -> list[Item]:
    return sorted(items, key=lambda item: item.payload)


def counts(stats: PartitionStats) -> PartitionStats:
    return replace(stats, average_age_us=0, average_leased_age_us=0)


def bare(items: Iterable[Item]) -> list[Item]:
    return [replace(item, id="") for item in items]


def dues(shard: Shard, clerk: QueueClerk) -> Iterator[int]:
    """When something is due for each item, by the rules."""
    for item in clerk.everything(shard):
        expire_us = item.expire_us if shard.expire_us else 0
        match item.place:
            case Place.LEASED:
                yield item.lease_us
            case Place.SCHEDULED:
                yield min(item.enqueue_us, expire_us or item.enqueue_us)
            case Place.READY if expire_us:
                yield expire_us
