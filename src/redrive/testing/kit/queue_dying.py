"""The kit for items that were given up on: `dying` and `move`."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from redrive.model.errors import QueueGone
from redrive.model.item import Again, Item, Move, Place, Swept, Why
from redrive.model.queue import Shard
from redrive.testing.kit.queue_clerk import QueueClerk, QueueKit
from redrive.testing.kit.queue_samples import DEAD, HOUR_US, ORDERS, PAIR, START_US, fresh, named, names


def died(store: QueueClerk, shard: Shard, *items: str, partition: int = 0) -> list[Item]:
    """Items of these names that were given up on."""
    store.put(shard, *named(*items, partition=partition))
    leased = store.lease(shard, len(items))
    assert (names(leased.items), leased.partition) == (list(items), partition)
    store.retry(shard, *(Again(id=item.id, dead=True) for item in leased.items), partition=partition)
    return [item for item in store.items(shard, partition=partition, places={Place.DYING}) if item.reference in items]


def moved(item: Item, partition: int = 0) -> Move:
    """What stands for this item in a dead queue."""
    return Move(
        partition=partition,
        id=item.id,
        fresh=fresh(item.reference, payload=item.payload, message_id=item.message_id, source_id=item.id, story=b"died"),
    )


class Dying(QueueKit):
    """What was given up on stays where it is until the dead queue has it: never lost, never twice."""

    def test_dying_items_are_told_with_their_partitions(self, store: QueueClerk) -> None:
        assert store.dying(PAIR) == []
        first = died(store, PAIR, "a", "b", partition=0)
        second = died(store, PAIR, "c", partition=1)
        store.put(PAIR, fresh("alive"))
        assert store.dying(PAIR) == [*((0, item) for item in first), *((1, item) for item in second)]

    def test_the_oldest_of_a_partition_come_first_and_no_more_than_asked_for(self, store: QueueClerk) -> None:
        items = [*died(store, ORDERS, "a", "b"), *died(store, ORDERS, "c")]
        assert store.dying(ORDERS, limit=2) == [(0, item) for item in items[:2]]
        store.delete(ORDERS, items[0].id)
        assert store.dying(ORDERS, limit=2) == [(0, item) for item in items[1:]]

    def test_a_dying_item_is_never_leased_and_nothing_is_due_for_it(self, store: QueueClerk) -> None:
        (item,) = died(store, ORDERS, "a")
        store.wait(days=1)
        assert store.lease(ORDERS).items == []
        assert store.sweep(ORDERS) == Swept()
        assert store.items(ORDERS) == [item]
        assert (item.place, item.why) == (Place.DYING, Why.TOLD)

    def test_a_moved_item_is_in_the_dead_queue_and_here_no_more(self, store: QueueClerk) -> None:
        (item,) = died(store, ORDERS, "a")
        store.wait(seconds=1)
        assert store.move(ORDERS, [moved(item)], DEAD) == 1
        assert store.items(ORDERS) == []
        (dead,) = store.items(DEAD)
        assert dead == Item(
            dead.id, item.message_id, item.id, 0, store.now_us, store.now_us, 0, 0, item.payload, "a", "", "", "", 0, b"died"
        )
        assert store.take(DEAD).source_id == item.id
        assert store.stats(ORDERS)[0].total == 0

    def test_an_item_that_is_moved_twice_lands_once(self, store: QueueClerk) -> None:
        (item,) = died(store, ORDERS, "a")
        assert store.move(ORDERS, [moved(item)], DEAD) == 1
        assert store.move(ORDERS, [moved(item)], DEAD) == 0
        store.complete(DEAD, store.take(DEAD).id)
        assert store.move(ORDERS, [moved(item)], DEAD) == 0
        assert store.items(DEAD) == []

    def test_an_item_that_is_named_twice_lands_once(self, store: QueueClerk) -> None:
        (item,) = died(store, ORDERS, "a")
        assert store.move(ORDERS, [moved(item), moved(item)], DEAD) == 1
        assert names(store.items(DEAD)) == ["a"]
        assert store.items(ORDERS) == []

    def test_an_item_that_is_in_the_dead_queue_already_is_only_deleted_here(self, store: QueueClerk) -> None:
        a, b = died(store, ORDERS, "a", "b")
        store.put(DEAD, moved(a).fresh)
        assert store.move(ORDERS, [moved(a), moved(b)], DEAD) == 2
        assert names(store.items(DEAD)) == ["a", "b"]
        assert store.items(ORDERS) == []

    def test_items_that_are_not_dying_are_left_out(self, store: QueueClerk) -> None:
        dying, gone = died(store, ORDERS, "dying", "gone")
        store.delete(ORDERS, gone.id)
        store.put(ORDERS, fresh("leased"), fresh("ready"), fresh("scheduled", enqueue_us=START_US + HOUR_US))
        store.take(ORDERS)
        before = [item for item in store.items(ORDERS) if item.place is not Place.DYING]
        assert len(before) == 3
        assert store.move(ORDERS, [moved(item) for item in (*before, gone, dying)], DEAD) == 1
        assert store.items(ORDERS) == before
        assert names(store.items(DEAD)) == ["dying"]

    def test_an_item_is_looked_for_in_the_partition_that_is_named(self, store: QueueClerk) -> None:
        (item,) = died(store, PAIR, "a", partition=1)
        assert store.move(PAIR, [moved(item, partition=0)], DEAD) == 0
        assert store.move(PAIR, [moved(item, partition=1)], DEAD) == 1
        assert names(store.items(DEAD)) == ["a"]

    def test_items_of_several_partitions_move_together_in_the_order_given(self, store: QueueClerk) -> None:
        a, b = died(store, PAIR, "a", "b", partition=0)
        (c,) = died(store, PAIR, "c", partition=1)
        assert store.move(PAIR, [moved(b), moved(c, 1), moved(a)], DEAD) == 3
        assert names(store.items(DEAD)) == ["b", "c", "a"]
        assert store.everything(PAIR) == []

    def test_an_item_may_be_moved_to_a_partition_and_an_instant(self, store: QueueClerk) -> None:
        (item,) = died(store, ORDERS, "a")
        move = moved(item)
        later = START_US + HOUR_US
        assert (
            store.move(ORDERS, [Move(partition=0, id=item.id, fresh=replace(move.fresh, partition=1, enqueue_us=later))], PAIR)
            == 1
        )
        (there,) = store.items(PAIR, partition=1)
        assert (there.place, there.enqueue_us, there.expire_us) == (Place.SCHEDULED, later, later + HOUR_US)

    def test_a_dead_queue_that_is_gone_takes_nothing_and_nothing_is_lost(self, store: QueueClerk) -> None:
        (item,) = died(store, ORDERS, "a")
        store.remove(DEAD)
        with pytest.raises(QueueGone):
            store.move(ORDERS, [moved(item)], DEAD)
        assert store.dying(ORDERS) == [(0, item)]
