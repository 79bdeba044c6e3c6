"""The kit for leases: `lease`, `extend`, `complete` and `retry`."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy

import pytest
from msgspec.structs import replace

from redrive.model.errors import NoSuchItem, NotLeased
from redrive.model.item import SOON_US, Again, Leased, Place, Swept, Why
from redrive.model.ksuid import positions
from redrive.testing.kit.queue_clerk import QueueClerk, QueueKit
from redrive.testing.kit.queue_samples import HOUR_US, MINUTE_US, ORDERS, SECOND_US, START_US, fresh, named, names

_NOBODY = positions("", 1, START_US)[0]
"""An id that no item has."""


def _completed(store: QueueClerk, *ids: str) -> None:
    store.complete(ORDERS, *ids)


def _retried(store: QueueClerk, *ids: str) -> None:
    store.retry(ORDERS, *(Again(id=id) for id in ids))


def _given_up(store: QueueClerk, *ids: str) -> None:
    store.retry(ORDERS, *(Again(id=id, dead=True) for id in ids))


def _extended(store: QueueClerk, *ids: str) -> None:
    store.extend(ORDERS, *ids, lease_us=HOUR_US)


settling = pytest.mark.parametrize("settle", [_completed, _retried, _given_up, _extended])
Settle = Callable[..., None]


class Leasing(QueueKit):
    """One holder at a time, and only while the lease is live."""

    def test_a_lease_gives_the_oldest_items_with_their_attempt_and_end(self, store: QueueClerk) -> None:
        ids = store.put(ORDERS, *named("a", "b", "c"))
        before = store.items(ORDERS)
        store.wait(seconds=1)
        leased = store.lease(ORDERS, 2)
        until = store.now_us + MINUTE_US
        expected = [replace(item, attempts=1, updated_us=store.now_us, place=Place.LEASED, lease_us=until) for item in before[:2]]
        assert leased == Leased(partition=0, until_us=until, items=expected)
        assert store.items(ORDERS) == [*expected, before[2]]
        assert [item.id for item in leased.items] == ids[:2]

    def test_what_is_leased_is_not_leased_again(self, store: QueueClerk) -> None:
        store.put(ORDERS, *named("a", "b"))
        assert names(store.lease(ORDERS, 1).items) == ["a"]
        assert names(store.lease(ORDERS, 9).items) == ["b"]
        assert store.lease(ORDERS, 9).items == []

    def test_an_empty_queue_gives_nothing(self, store: QueueClerk) -> None:
        leased = store.lease(ORDERS)
        assert (leased.items, leased.dying, leased.wait_us) == ([], 0, 0)

    def test_the_time_of_a_lease_may_be_given(self, store: QueueClerk) -> None:
        store.put(ORDERS, *named("a", "b"))
        assert store.lease(ORDERS, 1, lease_us=HOUR_US).until_us == START_US + HOUR_US
        assert store.take(ORDERS, lease_us=SECOND_US).lease_us == START_US + SECOND_US
        store.wait(seconds=1)
        assert store.sweep(ORDERS) == Swept(ready=1)
        assert store.place(ORDERS, "a") is Place.LEASED

    def test_every_lease_is_an_attempt(self, store: QueueClerk) -> None:
        store.put(ORDERS, fresh("a", attempts=1))
        for attempts in (2, 3):
            item = store.take(replace(ORDERS, max_attempts=0))
            assert item.attempts == attempts
            store.retry(replace(ORDERS, max_attempts=0), Again(id=item.id))
        assert store.one(ORDERS, "a").attempts == 3

    def test_what_a_lease_gave_stays_as_it_was_given(self, store: QueueClerk) -> None:
        store.put(ORDERS, *named("extended", "retried", "dead", "swept"))
        items = store.lease(ORDERS).items
        given = [copy(item) for item in items]
        store.extend(ORDERS, items[0].id, lease_us=HOUR_US)
        store.retry(ORDERS, Again(id=items[1].id), Again(id=items[2].id, dead=True, failure=b"why"))
        store.wait(minutes=1)
        store.sweep(ORDERS)
        store.lease(ORDERS)
        assert items == given

    def test_an_item_past_its_time_is_dying_instead_of_leased(self, store: QueueClerk) -> None:
        store.put(ORDERS, *named("a", "b"))
        store.wait(minutes=30)
        store.put(ORDERS, *named("c", "d"))
        store.wait(minutes=30)
        leased = store.lease(ORDERS, 1)
        assert (names(leased.items), leased.dying) == (["c"], 2)
        assert [store.one(ORDERS, name).why for name in "ab"] == [Why.EXPIRED, Why.EXPIRED]
        assert store.one(ORDERS, "a").attempts == 0

    def test_a_queue_without_expiry_leases_what_is_past_its_time(self, store: QueueClerk) -> None:
        store.put(ORDERS, fresh("a"))
        store.wait(hours=2)
        leased = store.lease(replace(ORDERS, expire_us=0))
        assert (names(leased.items), leased.dying) == (["a"], 0)

    def test_a_completed_item_is_gone(self, store: QueueClerk) -> None:
        store.put(ORDERS, *named("a", "b", "c"))
        a, b = store.lease(ORDERS, 2).items
        store.complete(ORDERS, b.id, a.id)
        assert names(store.items(ORDERS)) == ["c"]
        store.wait(minutes=2)
        assert store.sweep(ORDERS) == Swept()

    def test_an_extended_lease_ends_so_long_from_now(self, store: QueueClerk) -> None:
        store.put(ORDERS, *named("a", "b"))
        a, b = store.lease(ORDERS).items
        store.wait(seconds=30)
        assert store.extend(ORDERS, a.id, lease_us=MINUTE_US) == store.now_us + MINUTE_US
        assert store.one(ORDERS, "a").lease_us == store.now_us + MINUTE_US
        assert store.one(ORDERS, "a").attempts == 1
        store.wait(seconds=59)
        assert store.sweep(ORDERS) == Swept(ready=1)
        with pytest.raises(NoSuchItem):
            store.complete(ORDERS, b.id)
        store.complete(ORDERS, a.id)

    def test_a_lease_may_be_made_shorter(self, store: QueueClerk) -> None:
        store.put(ORDERS, *named("a", "b"))
        a, b = store.lease(ORDERS).items
        assert store.extend(ORDERS, b.id, lease_us=SECOND_US) == START_US + SECOND_US
        store.wait(seconds=1)
        with pytest.raises(NotLeased):
            store.complete(ORDERS, b.id)
        assert store.sweep(ORDERS) == Swept(ready=1)
        store.complete(ORDERS, a.id)

    @settling
    def test_a_lease_that_is_over_is_over_although_nobody_has_swept(self, store: QueueClerk, settle: Settle) -> None:
        store.put(ORDERS, *named("a", "b"))
        a, b = store.lease(ORDERS).items
        store.wait(microseconds=MINUTE_US - 1)
        settle(store, a.id)
        store.wait(microseconds=1)
        with pytest.raises(NotLeased) as caught:
            settle(store, b.id)
        assert caught.value.id == b.id
        assert store.place(ORDERS, "b") is Place.LEASED

    @settling
    def test_an_id_that_names_no_item_changes_nothing(self, store: QueueClerk, settle: Settle) -> None:
        store.put(ORDERS, *named("a", "b"))
        a, b = (item.id for item in store.lease(ORDERS).items)
        before, stats = store.items(ORDERS), store.stats(ORDERS)
        for ids in ([_NOBODY], [a, _NOBODY], [_NOBODY, a], [a, _NOBODY, b]):
            with pytest.raises(NoSuchItem) as caught:
                settle(store, *ids)
            assert caught.value.id == _NOBODY
        assert (store.items(ORDERS), store.stats(ORDERS)) == (before, stats)

    @settling
    @pytest.mark.parametrize("what", ["ready", "scheduled", "dying", "over"])
    def test_an_item_that_is_not_leased_changes_nothing(self, store: QueueClerk, settle: Settle, what: str) -> None:
        store.put(ORDERS, *named("over", "dying", "a"))
        store.take(ORDERS, lease_us=SECOND_US)
        store.retry(ORDERS, Again(id=store.take(ORDERS).id, dead=True))
        a = store.take(ORDERS)
        store.put(ORDERS, fresh("ready"), fresh("scheduled", enqueue_us=START_US + HOUR_US))
        store.wait(seconds=1)
        bad = store.one(ORDERS, what).id
        before, stats = store.items(ORDERS), store.stats(ORDERS)
        for ids in ([bad], [a.id, bad], [bad, a.id]):
            with pytest.raises(NotLeased) as caught:
                settle(store, *ids)
            assert caught.value.id == bad
        assert (store.items(ORDERS), store.stats(ORDERS)) == (before, stats)

    @settling
    def test_who_was_late_does_not_touch_the_next_holder(self, store: QueueClerk, settle: Settle) -> None:
        store.put(ORDERS, fresh("a"))
        late = store.take(ORDERS)
        store.wait(minutes=1)
        store.sweep(ORDERS)
        item = store.take(ORDERS)
        assert (item.message_id, item.attempts) == (late.message_id, 2)
        with pytest.raises(NoSuchItem):
            settle(store, late.id)
        assert store.items(ORDERS) == [item]

    @settling
    def test_an_item_named_twice_counts_once(self, store: QueueClerk, settle: Settle) -> None:
        store.put(ORDERS, *named("a", "b"))
        a, b = store.lease(ORDERS).items
        settle(store, a.id, a.id)
        assert names(store.items(ORDERS, places={Place.LEASED})) == (["a", "b"] if settle is _extended else ["b"])
        (stats,) = store.stats(ORDERS)
        assert stats.total == (1 if settle is _completed else 2)
        store.complete(ORDERS, b.id)


class Retrying(QueueKit):
    """A leased item that is given back is never lost, and never the same position twice."""

    def test_a_retried_item_goes_to_the_tail_under_a_new_id(self, store: QueueClerk) -> None:
        store.put(ORDERS, *named("a", "b"))
        a = store.take(ORDERS)
        store.wait(seconds=1)
        assert store.retry(ORDERS, Again(id=a.id)) == Swept(ready=1)
        again = store.one(ORDERS, "a")
        assert again.id > store.one(ORDERS, "b").id
        assert again == replace(a, id=again.id, updated_us=store.now_us, place=Place.READY, lease_us=0)
        assert again.message_id == a.id
        with pytest.raises(NoSuchItem):
            store.complete(ORDERS, a.id)
        assert names(store.lease(ORDERS).items) == ["b", "a"]

    def test_items_are_retried_in_the_order_given(self, store: QueueClerk) -> None:
        store.put(ORDERS, *named("a", "b", "c", "d"))
        a, b, c = store.lease(ORDERS, 3).items
        assert store.retry(ORDERS, Again(id=c.id), Again(id=a.id), Again(id=b.id)) == Swept(ready=3)
        assert names(store.lease(ORDERS).items) == ["d", "c", "a", "b"]

    def test_a_retry_for_later_is_scheduled(self, store: QueueClerk) -> None:
        store.put(ORDERS, fresh("a"))
        a = store.take(ORDERS)
        assert store.retry(ORDERS, Again(id=a.id, at_us=START_US + HOUR_US)) == Swept()
        item = store.one(ORDERS, "a")
        assert (item.place, item.enqueue_us, item.lease_us) == (Place.SCHEDULED, START_US + HOUR_US, 0)
        assert item.id > a.id
        assert item.expire_us == a.expire_us

    @pytest.mark.parametrize(("after_us", "where"), [(SOON_US - 1, Place.READY), (SOON_US, Place.SCHEDULED)])
    def test_a_retry_for_soon_can_be_leased_at_once(self, store: QueueClerk, after_us: int, where: Place) -> None:
        store.put(ORDERS, fresh("a"))
        swept = store.retry(ORDERS, Again(id=store.take(ORDERS).id, at_us=START_US + after_us))
        assert store.place(ORDERS, "a") is where
        assert swept == Swept(ready=int(where is Place.READY))

    def test_an_item_that_is_told_to_be_dead_is_dying_and_keeps_its_id(self, store: QueueClerk) -> None:
        store.put(ORDERS, fresh("a"))
        a = store.take(ORDERS)
        store.wait(seconds=1)
        assert store.retry(ORDERS, Again(id=a.id, at_us=START_US + HOUR_US, dead=True)) == Swept(dying=1)
        expected = replace(a, place=Place.DYING, why=Why.TOLD, lease_us=0, updated_us=store.now_us)
        assert store.items(ORDERS) == [expected]

    def test_an_item_is_dying_when_its_attempts_exceed_the_most(self, store: QueueClerk) -> None:
        store.put(ORDERS, fresh("a"))
        for attempt in (1, 2):
            item = store.take(ORDERS)
            assert item.attempts == attempt
            assert store.retry(ORDERS, Again(id=item.id)) == Swept(ready=1)
        last = store.take(ORDERS)
        assert store.retry(ORDERS, Again(id=last.id)) == Swept(dying=1)
        item = store.one(ORDERS, "a")
        assert (item.id, item.place, item.why, item.attempts) == (last.id, Place.DYING, Why.ATTEMPTS, 3)

    def test_an_item_on_its_last_attempt_stays_with_its_holder(self, store: QueueClerk) -> None:
        store.put(ORDERS, fresh("a", attempts=2))
        last = store.take(ORDERS)
        store.wait(microseconds=MINUTE_US - 1)
        assert store.sweep(ORDERS) == Swept()
        store.complete(ORDERS, last.id)
        assert store.items(ORDERS) == []

    def test_attempts_without_a_most_are_never_too_many(self, store: QueueClerk) -> None:
        shard = replace(ORDERS, max_attempts=0)
        store.put(shard, fresh("a", attempts=1000))
        assert store.retry(shard, Again(id=store.take(shard).id)) == Swept(ready=1)

    def test_a_failure_is_kept_until_another_is_told_and_the_story_stays(self, store: QueueClerk) -> None:
        store.put(ORDERS, *named("a", "b", "c", "d", story=b"once"))
        a, b, c, d = store.lease(ORDERS).items
        later_us = store.now_us + MINUTE_US
        store.retry(
            ORDERS,
            Again(id=a.id),
            Again(id=b.id, failure=b"upon"),
            Again(id=c.id, dead=True, failure=b"a time"),
            Again(id=d.id, at_us=later_us, failure=b"there was"),
        )
        found = [store.one(ORDERS, name) for name in "abcd"]
        assert [item.failure for item in found] == [b"", b"upon", b"a time", b"there was"]
        assert {item.story for item in found} == {b"once"}
        a, b = store.lease(ORDERS).items
        assert (a.failure, b.failure) == (b"", b"upon")
        store.retry(ORDERS, Again(id=a.id, failure=b"a"), Again(id=b.id))
        assert [store.one(ORDERS, name).failure for name in "ab"] == [b"a", b"upon"]

    def test_one_call_may_send_items_every_way(self, store: QueueClerk) -> None:
        store.put(ORDERS, *named("tail", "later", "dead"), fresh("spent", attempts=2))
        tail, later, dead, spent = store.lease(ORDERS).items
        assert store.retry(
            ORDERS,
            Again(id=dead.id, dead=True),
            Again(id=later.id, at_us=START_US + HOUR_US),
            Again(id=spent.id),
            Again(id=tail.id),
        ) == Swept(ready=1, dying=2)
        assert {name: store.place(ORDERS, name) for name in ("tail", "later", "dead", "spent")} == {
            "tail": Place.READY,
            "later": Place.SCHEDULED,
            "dead": Place.DYING,
            "spent": Place.DYING,
        }
