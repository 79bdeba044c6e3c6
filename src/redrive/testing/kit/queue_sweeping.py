"""The kit for what time does to items: `sweep` and `next_due`."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from redrive.model.errors import NotLeased
from redrive.model.item import OVERDUE_US, Again, Due, Move, Place, Swept, Why
from redrive.testing.kit.queue_clerk import QueueClerk, QueueKit
from redrive.testing.kit.queue_samples import (
    DEAD,
    HOUR_US,
    LINES,
    MINUTE_US,
    ORDERS,
    PAIR,
    SECOND_US,
    START_US,
    fresh,
    named,
    names,
)


class Sweeping(QueueKit):
    """What is due is done, what is not is left alone, and nothing is lost on the way."""

    def test_where_nothing_is_due_nothing_is_done(self, store: QueueClerk) -> None:
        assert store.sweep(ORDERS) == Swept()
        store.put(ORDERS, *named("a", "b"), fresh("c", enqueue_us=START_US + MINUTE_US))
        store.take(ORDERS)
        before = store.items(ORDERS)
        store.wait(microseconds=MINUTE_US - 1)
        assert store.sweep(ORDERS) == Swept()
        assert store.items(ORDERS) == before

    def test_a_scheduled_item_goes_to_the_tail_when_its_time_has_come(self, store: QueueClerk) -> None:
        store.put(ORDERS, fresh("later", enqueue_us=START_US + MINUTE_US), fresh("now"))
        before = store.one(ORDERS, "later")
        store.wait(minutes=1)
        assert store.lease(ORDERS, 0).items == []
        assert store.sweep(ORDERS) == Swept(ready=1)
        item = store.one(ORDERS, "later")
        assert item.id > store.one(ORDERS, "now").id
        assert item == replace(before, id=item.id, place=Place.READY, updated_us=store.now_us)
        assert item.message_id == before.id
        assert names(store.lease(ORDERS).items) == ["now", "later"]

    def test_scheduled_items_come_in_the_order_of_their_times(self, store: QueueClerk) -> None:
        minutes = {"c": 3, "a": 1, "d": 3, "b": 2}
        store.put(ORDERS, *(fresh(name, enqueue_us=START_US + minute * MINUTE_US) for name, minute in minutes.items()))
        store.wait(minutes=3)
        assert store.sweep(ORDERS) == Swept(ready=4)
        assert names(store.lease(ORDERS).items) == ["a", "b", "c", "d"]

    def test_an_item_whose_lease_has_ended_goes_to_the_tail(self, store: QueueClerk) -> None:
        store.put(ORDERS, *named("a", "b"))
        a = store.take(ORDERS)
        store.wait(minutes=1)
        assert store.sweep(ORDERS) == Swept(ready=1)
        item = store.one(ORDERS, "a")
        assert item == replace(a, id=item.id, place=Place.READY, lease_us=0, updated_us=store.now_us)
        assert names(store.lease(ORDERS).items) == ["b", "a"]

    def test_leases_end_in_the_order_of_their_ends_whatever_the_order_in_which_they_were_given(self, store: QueueClerk) -> None:
        store.put(ORDERS, *named("a", "b", "c", "d"))
        for seconds in (30, 10, 20, 10):
            store.take(ORDERS, lease_us=seconds * SECOND_US)
        store.wait(seconds=10)
        assert store.sweep(ORDERS) == Swept(ready=2)
        store.wait(seconds=20)
        assert store.sweep(ORDERS) == Swept(ready=2)
        assert names(store.lease(ORDERS).items) == ["b", "d", "c", "a"]

    def test_ended_leases_come_before_schedules(self, store: QueueClerk) -> None:
        store.put(ORDERS, fresh("leased"), fresh("scheduled", enqueue_us=START_US + SECOND_US))
        store.take(ORDERS)
        store.wait(minutes=1)
        assert store.sweep(ORDERS) == Swept(ready=2)
        assert names(store.lease(ORDERS).items) == ["leased", "scheduled"]

    def test_a_lease_that_ends_after_the_last_attempt_leaves_the_item_dying(self, store: QueueClerk) -> None:
        store.put(ORDERS, fresh("a", attempts=2))
        last = store.take(ORDERS)
        store.wait(minutes=1)
        assert store.sweep(ORDERS) == Swept(dying=1)
        expected = replace(last, place=Place.DYING, why=Why.ATTEMPTS, lease_us=0, updated_us=store.now_us)
        assert store.items(ORDERS) == [expected]
        with pytest.raises(NotLeased):
            store.complete(ORDERS, last.id)
        assert store.sweep(ORDERS) == Swept()

    def test_a_leased_item_does_not_expire_before_its_lease_ends(self, store: QueueClerk) -> None:
        store.put(ORDERS, fresh("a"))
        held = store.take(ORDERS, lease_us=2 * HOUR_US)
        store.wait(hours=1)
        assert store.sweep(ORDERS) == Swept()
        store.wait(hours=1)
        assert store.sweep(ORDERS) == Swept(dying=1)
        item = store.one(ORDERS, "a")
        assert (item.id, item.why) == (held.id, Why.EXPIRED)

    def test_a_ready_item_past_its_time_is_dying_and_keeps_its_id(self, store: QueueClerk) -> None:
        ids = store.put(ORDERS, *named("a", "b"))
        store.put(ORDERS, fresh("c", expire_us=START_US + HOUR_US + 1))
        store.wait(microseconds=HOUR_US - 1)
        assert store.sweep(ORDERS) == Swept()
        store.wait(microseconds=1)
        assert store.sweep(ORDERS) == Swept(dying=2)
        dying = store.items(ORDERS, places={Place.DYING})
        assert [(item.id, item.why, item.updated_us) for item in dying] == [(id, Why.EXPIRED, store.now_us) for id in ids]
        assert names(store.lease(ORDERS).items) == ["c"]

    def test_an_item_expires_though_those_before_it_do_not(self, store: QueueClerk) -> None:
        later = START_US + 5 * HOUR_US
        store.put(ORDERS, *named("a", "b", expire_us=later), *named("c", "d", expire_us=START_US + SECOND_US), fresh("e"))
        store.wait(seconds=1)
        assert store.sweep(ORDERS) == Swept(dying=2)
        assert names(store.items(ORDERS, places={Place.DYING})) == ["c", "d"]
        store.wait(hours=1)
        assert store.sweep(ORDERS) == Swept(dying=1)
        assert names(store.lease(ORDERS).items) == ["a", "b"]

    def test_a_retried_item_expires_when_it_would_have(self, store: QueueClerk) -> None:
        store.put(ORDERS, fresh("old"))
        store.wait(minutes=30)
        store.put(ORDERS, fresh("new"))
        store.retry(ORDERS, Again(id=store.take(ORDERS).id))
        store.wait(minutes=30)
        assert store.sweep(ORDERS) == Swept(dying=1)
        assert store.place(ORDERS, "old") is Place.DYING

    def test_a_scheduled_item_past_its_time_is_dying(self, store: QueueClerk) -> None:
        store.put(ORDERS, fresh("a", enqueue_us=START_US + 3 * HOUR_US, expire_us=START_US + HOUR_US))
        before = store.one(ORDERS, "a")
        store.wait(hours=1)
        assert store.sweep(ORDERS) == Swept(dying=1)
        item = store.one(ORDERS, "a")
        assert item == replace(before, place=Place.DYING, why=Why.EXPIRED, updated_us=store.now_us)
        (stats,) = store.stats(ORDERS)
        assert (stats.scheduled, stats.dying, stats.total) == (0, 1, 1)

    def test_what_comes_when_it_has_expired_is_dying(self, store: QueueClerk) -> None:
        store.put(ORDERS, fresh("a", enqueue_us=START_US + MINUTE_US))
        store.wait(minutes=61)
        assert store.sweep(ORDERS) == Swept(dying=1)

    def test_nothing_expires_in_a_queue_that_does_not_say_so(self, store: QueueClerk) -> None:
        store.put(DEAD, fresh("a"), fresh("b", expire_us=START_US + 1), fresh("d"))
        store.put(DEAD, fresh("c", enqueue_us=START_US + 2 * HOUR_US, expire_us=START_US + HOUR_US))
        store.take(DEAD)
        store.wait(hours=1)
        assert store.sweep(DEAD) == Swept(ready=1)
        assert store.place(DEAD, "c") is Place.SCHEDULED
        store.wait(hours=1)
        assert store.sweep(DEAD) == Swept(ready=1)
        leased = store.lease(DEAD)
        assert (names(leased.items), leased.dying) == (["b", "d", "a", "c"], 0)
        store.wait(days=1000)
        assert store.sweep(DEAD) == Swept(ready=4)

    def test_one_that_waits_behind_another_expires_only_when_its_turn_has_come(self, store: QueueClerk) -> None:
        store.put(LINES, fresh("first", key="k"), fresh("second", key="k", expire_us=START_US + MINUTE_US))
        first = store.take(LINES, lease_us=HOUR_US)
        store.wait(minutes=2)
        assert store.sweep(LINES) == Swept()
        assert store.place(LINES, "second") is Place.BEHIND
        store.complete(LINES, first.id)
        assert store.place(LINES, "second") is Place.READY
        assert store.sweep(LINES) == Swept(dying=1)
        assert store.one(LINES, "second").why == Why.EXPIRED

    def test_all_of_a_key_expire_in_the_end(self, store: QueueClerk) -> None:
        store.put(LINES, *named("a", "b", "c", key="k"))
        store.wait(hours=1)
        dying = 0
        while swept := store.sweep(LINES).dying:
            dying += swept
        assert dying == 3
        assert {item.place for item in store.items(LINES)} == {Place.DYING}

    def test_a_sweep_does_no_more_than_its_limit_and_says_that_there_is_more(self, store: QueueClerk) -> None:
        store.put(PAIR, *named("a", "b", "c", partition=0), *named("d", "e", partition=1))
        store.put(PAIR, *(fresh(name, partition=1, enqueue_us=START_US + MINUTE_US) for name in "fg"))
        store.lease(PAIR)
        store.wait(hours=1)
        counts = []
        while not (swept := store.sweep(PAIR, limit=2)).is_done:
            counts.append(swept.ready + swept.dying)
            assert counts[-1] == 2
        assert sum(counts) + swept.ready + swept.dying == 7
        assert store.sweep(PAIR) == Swept()
        assert [(one.ready, one.scheduled, one.leased, one.dying) for one in store.stats(PAIR)] == [(0, 0, 0, 3), (2, 0, 0, 2)]

    def test_a_sweep_is_of_one_queue_and_all_its_partitions(self, store: QueueClerk) -> None:
        for shard in (PAIR, ORDERS):
            for partition in shard.partitions:
                store.put(shard, fresh(f"in {partition}", partition=partition))
        store.wait(hours=1)
        assert store.sweep(PAIR) == Swept(dying=2)
        assert store.sweep(ORDERS) == Swept(dying=1)


class Dues(QueueKit):
    """Who asks what is due next is never told too late."""

    def test_nothing_is_due_where_nothing_can_happen(self, store: QueueClerk) -> None:
        assert store.next_due() == []
        store.put(DEAD, fresh("a"))
        assert store.next_due() == []

    @pytest.mark.parametrize("what", ["ready", "scheduled", "leased", "extended", "shortened", "retried"])
    def test_every_item_that_is_due_some_time_is_named_in_time(self, store: QueueClerk, what: str) -> None:
        store.put(ORDERS, fresh("a", enqueue_us=START_US + MINUTE_US if what == "scheduled" else 0))
        due_us = {"ready": HOUR_US, "extended": 2 * MINUTE_US, "shortened": SECOND_US, "retried": 3 * MINUTE_US}.get(
            what, MINUTE_US
        )
        if what not in ("ready", "scheduled"):
            item = store.take(ORDERS)
            if what in ("extended", "shortened"):
                store.extend(ORDERS, item.id, lease_us=due_us)
            if what == "retried":
                store.retry(ORDERS, Again(id=item.id, at_us=START_US + due_us))
        (due,) = store.next_due()
        assert due.queue == ORDERS.queue
        assert due.at_us <= START_US + due_us
        store.wait(microseconds=due_us)
        swept = store.sweep(ORDERS)
        assert swept.ready + swept.dying == 1

    def test_queues_come_by_what_is_due_the_soonest(self, store: QueueClerk) -> None:
        shards = [replace(ORDERS, queue=name) for name in ("late", "soon", "between")]
        for shard, minutes in zip(shards, (30, 10, 20), strict=True):
            store.put(shard, *(fresh(str(more), enqueue_us=START_US + (minutes + more) * MINUTE_US) for more in (5, 0, 9)))
        assert store.next_due() == [
            Due(queue=name, at_us=START_US + minutes * MINUTE_US)
            for name, minutes in (("soon", 10), ("between", 20), ("late", 30))
        ]
        assert [due.queue for due in store.next_due(limit=2)] == ["soon", "between"]

    def test_the_soonest_of_all_partitions_counts(self, store: QueueClerk) -> None:
        store.put(PAIR, fresh("a", partition=0), fresh("b", partition=1, enqueue_us=START_US + MINUTE_US))
        (due,) = store.next_due()
        assert due.at_us <= START_US + MINUTE_US

    def test_where_items_are_dying_it_is_overdue_until_they_are_gone(self, store: QueueClerk) -> None:
        store.put(ORDERS, *named("a", "b"))
        a, b = store.lease(ORDERS).items
        store.retry(ORDERS, Again(id=a.id, dead=True))
        overdue = [Due(queue=ORDERS.queue, at_us=OVERDUE_US)]
        assert store.next_due() == overdue
        store.extend(ORDERS, b.id, lease_us=MINUTE_US // 2)
        assert (store.sweep(ORDERS), store.next_due()) == (Swept(), overdue)
        store.delete(ORDERS, a.id)
        (due,) = store.next_due()
        assert OVERDUE_US < due.at_us <= START_US + MINUTE_US // 2

    def test_what_is_moved_is_overdue_no_more(self, store: QueueClerk) -> None:
        store.put(ORDERS, fresh("a"))
        item = store.take(ORDERS)
        store.retry(ORDERS, Again(id=item.id, dead=True))
        ((partition, dying),) = store.dying(ORDERS)
        store.move(ORDERS, [Move(partition=partition, id=dying.id, fresh=fresh("a", source_id=dying.id, partition=0))], DEAD)
        assert store.next_due() == []

    def test_items_that_do_not_expire_any_more_are_not_named_again_once_they_were_swept(self, store: QueueClerk) -> None:
        lasting = replace(ORDERS, expire_us=0)
        store.put(ORDERS, *named("a", "b"))
        store.put(ORDERS, fresh("early", expire_us=START_US + SECOND_US))
        store.wait(microseconds=2 * HOUR_US)
        assert store.sweep(lasting) == Swept()
        assert store.next_due() == []
        assert len(store.lease(lasting).items) == 3

    def test_a_removed_queue_is_not_due(self, store: QueueClerk) -> None:
        store.put(ORDERS, fresh("a"))
        store.remove(ORDERS)
        assert store.next_due() == []
