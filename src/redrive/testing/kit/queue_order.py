"""The kit for who comes first: priorities, keys, partitions and rates."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from redrive.model.item import Again, Place, Swept
from redrive.testing.kit.queue_clerk import QueueClerk, QueueKit
from redrive.testing.kit.queue_dying import moved
from redrive.testing.kit.queue_samples import DEAD, HOUR_US, LINES, MINUTE_US, ORDERS, PAIR, START_US, fresh, named, names


def _complete(store: QueueClerk) -> None:
    store.complete(LINES, store.one(LINES, "first").id)


def _give_up(store: QueueClerk) -> None:
    store.retry(LINES, Again(id=store.one(LINES, "first").id, dead=True))


def _run_out(store: QueueClerk) -> None:
    store.wait(minutes=1)
    store.sweep(replace(LINES, max_attempts=1))


def _delete(store: QueueClerk) -> None:
    store.delete(LINES, store.one(LINES, "first").id)


def _clear(store: QueueClerk) -> None:
    assert store.clear(LINES, Place.LEASED) == 1


class Priorities(QueueKit):
    """Higher priorities first; within each, the oldest first."""

    def test_the_highest_priority_comes_first_then_the_oldest(self, store: QueueClerk) -> None:
        priorities = {"a": 0, "b": 9, "c": 5, "d": 0, "e": 5, "f": 9, "g": 1}
        store.put(ORDERS, *(fresh(name, priority=priority) for name, priority in priorities.items()))
        assert names(store.lease(ORDERS, 3).items) == ["b", "f", "c"]
        store.put(ORDERS, fresh("h", priority=7))
        assert names(store.lease(ORDERS).items) == ["h", "e", "g", "a", "d"]

    def test_a_retried_item_keeps_its_priority(self, store: QueueClerk) -> None:
        store.put(ORDERS, fresh("a", priority=3), fresh("b"), fresh("c", priority=3))
        store.retry(ORDERS, Again(id=store.take(ORDERS).id))
        assert names(store.lease(ORDERS).items) == ["c", "a", "b"]

    @pytest.mark.parametrize("limit", range(1, 7))
    def test_a_lease_over_several_priorities_takes_no_more_than_its_limit(self, store: QueueClerk, limit: int) -> None:
        store.put(ORDERS, *(fresh(f"{priority}/{number}", priority=priority) for priority in range(3) for number in range(2)))
        assert len(store.lease(ORDERS, limit).items) == limit
        assert len(store.lease(ORDERS).items) == 6 - limit


class Keys(QueueKit):
    """In an ordered queue, items of a key are leased one at a time, in order."""

    def test_one_item_of_a_key_is_ready_and_the_others_behind_it(self, store: QueueClerk) -> None:
        store.put(LINES, *named("a1", "a2", key="a"), fresh("b1", key="b"), *named("free", "free too"))
        store.put(LINES, fresh("a3", key="a"))
        assert names(store.items(LINES, places={Place.BEHIND})) == ["a2", "a3"]
        assert names(store.lease(LINES).items) == ["a1", "b1", "free", "free too"]
        assert store.lease(LINES).items == []

    @pytest.mark.parametrize("end", [_complete, _give_up, _run_out, _delete, _clear])
    def test_the_next_of_a_key_is_ready_when_the_one_before_is_out_of_the_way(
        self, store: QueueClerk, end: Callable[[QueueClerk], None]
    ) -> None:
        store.put(LINES, fresh("first", key="k", attempts=1), *named("second", "third", key="k"))
        store.take(LINES)
        before = store.one(LINES, "second")
        end(store)
        second = store.one(LINES, "second")
        assert second == replace(before, id=second.id, place=Place.READY, updated_us=store.now_us)
        assert second.id > store.one(LINES, "third").id
        assert names(store.lease(LINES).items) == ["second"]
        store.complete(LINES, second.id)
        assert names(store.lease(LINES).items) == ["third"]

    def test_a_key_waits_behind_a_retried_item(self, store: QueueClerk) -> None:
        store.put(LINES, *named("a1", "a2", key="a"), fresh("b1", key="b"))
        assert store.retry(LINES, Again(id=store.take(LINES).id)) == Swept(ready=1)
        assert names(store.lease(LINES).items) == ["b1", "a1"]
        assert store.place(LINES, "a2") is Place.BEHIND

    def test_a_key_waits_behind_a_scheduled_item(self, store: QueueClerk) -> None:
        store.put(LINES, fresh("a1", key="a", enqueue_us=START_US + MINUTE_US), fresh("a2", key="a"))
        assert store.lease(LINES).items == []
        store.wait(minutes=1)
        assert store.sweep(LINES) == Swept(ready=1)
        item = store.take(LINES)
        assert item.reference == "a1"
        store.retry(LINES, Again(id=item.id, at_us=store.now_us + MINUTE_US))
        assert store.lease(LINES).items == []
        store.wait(minutes=1)
        store.sweep(LINES)
        store.complete(LINES, store.take(LINES).id)
        assert names(store.lease(LINES).items) == ["a2"]

    def test_a_key_waits_behind_an_item_whose_lease_has_ended(self, store: QueueClerk) -> None:
        store.put(LINES, *named("a1", "a2", key="a"))
        store.take(LINES)
        store.wait(minutes=1)
        assert store.sweep(LINES) == Swept(ready=1)
        assert names(store.lease(LINES).items) == ["a1"]

    @pytest.mark.parametrize("where", [Place.READY, Place.SCHEDULED])
    def test_deleting_the_first_of_a_key_releases_the_next_wherever_it_was(self, store: QueueClerk, where: Place) -> None:
        for which in ("delete", "clear"):
            later = START_US + HOUR_US if where is Place.SCHEDULED else 0
            store.put(LINES, fresh(f"{which} 1", key=which, enqueue_us=later), *named(f"{which} 2", f"{which} 3", key=which))
        store.delete(LINES, store.one(LINES, "delete 1").id)
        assert store.place(LINES, "delete 2") is Place.READY
        assert store.place(LINES, "delete 3") is Place.BEHIND
        cleared = store.clear(LINES, where)
        assert cleared == (2 if where is Place.READY else 1)
        assert set(names(store.items(LINES, places={Place.READY}))) == {
            "clear 2",
            "delete 3" if where is Place.READY else "delete 2",
        }

    def test_one_that_is_deleted_from_behind_leaves_the_order_of_the_others(self, store: QueueClerk) -> None:
        store.put(LINES, *named("a", "b", "c", "d", key="k"))
        first = store.take(LINES)
        store.delete(LINES, store.one(LINES, "b").id)
        assert store.lease(LINES).items == []
        store.complete(LINES, first.id)
        assert names(store.lease(LINES).items) == ["c"]
        assert store.clear(LINES, Place.BEHIND) == 1
        assert names(store.items(LINES)) == ["c"]

    def test_all_of_a_key_can_be_deleted_at_once_and_the_key_is_free(self, store: QueueClerk) -> None:
        ids = store.put(LINES, *named("a", "b", "c", key="k"))
        store.delete(LINES, *ids)
        assert store.items(LINES) == []
        store.put(LINES, *named("d", "e", key="k"))
        assert store.clear(LINES, Place.READY, Place.BEHIND) == 2
        store.put(LINES, fresh("f", key="k"))
        assert names(store.lease(LINES).items) == ["f"]

    def test_a_dying_item_holds_up_nobody(self, store: QueueClerk) -> None:
        store.put(LINES, *named("a", "b", key="k"))
        store.retry(LINES, Again(id=store.take(LINES).id, dead=True))
        store.complete(LINES, store.take(LINES).id)
        store.put(LINES, *named("c", "d", key="k"))
        ((_, dying),) = store.dying(LINES)
        store.move(LINES, [moved(dying)], DEAD)
        assert names(store.items(LINES, places={Place.BEHIND})) == ["d"]
        assert names(store.lease(LINES).items) == ["c"]

    def test_who_is_scheduled_for_later_waits_on_when_its_turn_has_come(self, store: QueueClerk) -> None:
        store.put(LINES, fresh("a", key="k"), fresh("b", key="k", enqueue_us=START_US + MINUTE_US), fresh("c", key="k"))
        assert store.place(LINES, "b") is Place.BEHIND
        store.complete(LINES, store.take(LINES).id)
        assert store.place(LINES, "b") is Place.SCHEDULED
        store.wait(minutes=1)
        assert store.sweep(LINES) == Swept(ready=1)
        assert names(store.lease(LINES).items) == ["b"]

    def test_keys_of_two_partitions_or_two_queues_do_not_meet(self, store: QueueClerk) -> None:
        two = replace(LINES, queue="two", partitions=(0, 1))
        store.put(two, fresh("a", key="k", partition=0), fresh("b", key="k", partition=1))
        store.put(LINES, fresh("c", key="k"))
        assert [item.place for item in (*store.everything(two), *store.everything(LINES))] == [Place.READY] * 3

    def test_in_a_queue_that_is_not_ordered_keys_mean_nothing(self, store: QueueClerk) -> None:
        store.put(ORDERS, *named("a", "b", key="k"))
        assert names(store.lease(ORDERS).items) == ["a", "b"]


class Balance(QueueKit):
    """Items go where the fewest are ready, and are leased where the most are."""

    def test_items_go_together_to_the_partition_with_the_fewest_ready(self, store: QueueClerk) -> None:
        chosen = []
        for number, count in enumerate((3, 1, 1, 1, 1)):
            store.put(PAIR, *named(*(f"{number}/{item}" for item in range(count))))
            chosen.append([one.total for one in store.stats(PAIR)])
        assert chosen == [[3, 0], [3, 1], [3, 2], [3, 3], [4, 3]]

    def test_only_the_ready_count(self, store: QueueClerk) -> None:
        store.put(PAIR, *named("a", "b", "c", partition=0), fresh("d", partition=1))
        store.put(PAIR, *named("e", "f", "g", partition=1, enqueue_us=START_US + HOUR_US))
        assert store.lease(PAIR, 3).partition == 0
        store.put(PAIR, fresh("h"))
        assert store.one(PAIR, "h") in store.items(PAIR, partition=0)

    def test_some_items_of_a_call_may_have_a_partition_of_their_own(self, store: QueueClerk) -> None:
        store.put(PAIR, fresh("there", partition=0))
        ids = store.put(PAIR, fresh("a"), fresh("b", partition=0), fresh("c"), fresh("d", partition=1))
        assert [store.one(PAIR, name).id for name in "abcd"] == ids
        assert names(store.items(PAIR, partition=0)) == ["there", "b"]
        assert names(store.items(PAIR, partition=1)) == ["a", "c", "d"]

    def test_a_lease_is_of_the_partition_with_the_most_ready(self, store: QueueClerk) -> None:
        store.put(PAIR, *named("a", "b", partition=0), *named("c", "d", "e", partition=1))
        leases = [store.lease(PAIR, 2) for _ in range(4)]
        assert [(leased.partition, names(leased.items)) for leased in leases] == [
            (1, ["c", "d"]),
            (0, ["a", "b"]),
            (1, ["e"]),
            (leases[-1].partition, []),
        ]

    def test_of_equals_the_first_that_the_shard_names_is_chosen(self, store: QueueClerk) -> None:
        shard = replace(PAIR, partitions=(3, 1, 2))
        for name in "abc":
            store.put(shard, fresh(name))
        assert [names(store.items(shard, partition=partition)) for partition in (3, 1, 2)] == [["a"], ["b"], ["c"]]
        assert [store.lease(shard, 1).partition for _ in range(3)] == [3, 1, 2]

    def test_a_shard_has_only_its_own_partitions(self, store: QueueClerk) -> None:
        store.put(PAIR, *named("a", partition=0), *named("b", "c", partition=1))
        first = replace(PAIR, partitions=(0,))
        assert names(store.lease(first).items) == ["a"]
        assert [one.partition for one in store.stats(first)] == [0]


class Rates(QueueKit):
    """A rate lets no more pass than its bucket holds."""

    def test_a_new_bucket_holds_one_seconds_worth(self, store: QueueClerk) -> None:
        shard = replace(ORDERS, rate=2.0)
        store.put(shard, *named(*"abcdefg"))
        assert names(store.lease(shard).items) == ["a", "b"]
        empty = store.lease(shard)
        assert (empty.items, empty.wait_us) == ([], 500_000)
        store.wait(microseconds=499_999)
        assert store.lease(shard).wait_us in (1, 2)
        store.wait(microseconds=1)
        assert names(store.lease(shard).items) == ["c"]
        store.wait(hours=0.5)
        assert names(store.lease(shard).items) == ["d", "e"]

    def test_less_may_be_taken_and_the_rest_is_there_for_the_next(self, store: QueueClerk) -> None:
        shard = replace(ORDERS, rate=3.0)
        store.put(shard, *named(*"abcdefg"))
        assert [names(store.lease(shard, 1).items) for _ in range(2)] == [["a"], ["b"]]
        assert names(store.lease(shard, 5).items) == ["c"]
        assert store.lease(shard).wait_us > 0

    def test_a_bucket_of_a_slow_rate_holds_one(self, store: QueueClerk) -> None:
        shard = replace(ORDERS, rate=0.1)
        store.put(shard, *named("a", "b"))
        assert names(store.lease(shard).items) == ["a"]
        assert store.lease(shard).wait_us == 10_000_000
        store.wait(seconds=10)
        assert names(store.lease(shard).items) == ["b"]

    def test_a_lease_that_finds_nothing_takes_nothing_from_the_bucket_and_has_nothing_to_wait_for(
        self, store: QueueClerk
    ) -> None:
        shard = replace(ORDERS, rate=1.0)
        assert (store.lease(shard).items, store.lease(shard).wait_us) == ([], 0)
        store.put(shard, fresh("a"))
        assert names(store.lease(shard).items) == ["a"]
        assert (store.lease(shard).items, store.lease(shard).wait_us) == ([], 0)
        store.put(shard, fresh("b"))
        assert (store.lease(shard).items, store.lease(shard).wait_us) == ([], 1_000_000)

    def test_partitions_share_the_bucket_and_queues_do_not(self, store: QueueClerk) -> None:
        shard, other = replace(PAIR, rate=2.0), replace(ORDERS, rate=1.0)
        store.put(shard, *named("a", "b", partition=0), fresh("c", partition=1))
        store.put(other, fresh("d"))
        assert names(store.lease(shard, 1).items) == ["a"]
        assert len(store.lease(shard).items) == 1
        assert store.lease(shard).wait_us == 500_000
        assert names(store.lease(other).items) == ["d"]

    def test_the_expired_cost_nothing(self, store: QueueClerk) -> None:
        shard = replace(ORDERS, rate=1.0)
        store.put(shard, *named("a", "b", expire_us=START_US + 1), fresh("c"))
        store.wait(seconds=1)
        leased = store.lease(shard)
        assert (names(leased.items), leased.dying) == (["c"], 2)
