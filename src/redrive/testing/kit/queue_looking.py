"""The kit for operators of queues: `items`, `stats`, `clear`, `delete` and `remove`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from redrive.model.errors import NoSuchItem, QueueGone
from redrive.model.item import Again, Move, PartitionStats, Place, Swept
from redrive.model.ksuid import positions
from redrive.testing.kit.clerk import Run, needs
from redrive.testing.kit.crowd import PATIENCE_SECONDS
from redrive.testing.kit.queue_clerk import QueueClerk, QueueKit, QueueOpener
from redrive.testing.kit.queue_samples import (
    DEAD,
    EVERYWHERE,
    HOUR_US,
    LINES,
    ORDERS,
    PAIR,
    SECOND_US,
    START_US,
    fresh,
    named,
    names,
)

_NOBODY = positions("", 1, START_US)[0]

_VERBS: dict[str, Callable[[QueueClerk], object]] = {
    "put": lambda store: store.put(ORDERS, fresh("late")),
    "lease": lambda store: store.lease(ORDERS),
    "extend": lambda store: store.extend(ORDERS, _NOBODY, lease_us=1),
    "complete": lambda store: store.complete(ORDERS, _NOBODY),
    "retry": lambda store: store.retry(ORDERS, Again(id=_NOBODY)),
    "sweep": lambda store: store.sweep(ORDERS),
    "dying": lambda store: store.dying(ORDERS),
    "move": lambda store: store.move(ORDERS, [Move(partition=0, id=_NOBODY, fresh=fresh("late"))], DEAD),
    "items": lambda store: store.items(ORDERS),
    "stats": lambda store: store.stats(ORDERS),
    "clear": lambda store: store.clear(ORDERS, *EVERYWHERE),
    "delete": lambda store: store.delete(ORDERS, _NOBODY),
}
"""All verbs on a queue's items, but `remove`."""


def one_in_each_place(store: QueueClerk) -> None:
    """An item of an ordered queue for every place, each called by it."""
    store.put(LINES, fresh("leased"), fresh("dying"))
    _, dying = store.lease(LINES, 2).items
    store.retry(LINES, Again(id=dying.id, dead=True))
    store.put(LINES, fresh("ready", key="k"), fresh("behind", key="k"), fresh("scheduled", enqueue_us=START_US + HOUR_US))


class Looking(QueueKit):
    """What is where."""

    def test_items_are_listed_by_the_places_that_are_asked_for(self, store: QueueClerk) -> None:
        one_in_each_place(store)
        for place in Place:
            assert [(item.reference, item.place) for item in store.items(LINES, places={place})] == [(place.value, place)]
        assert names(store.items(LINES, places={Place.READY, Place.DYING})) == ["dying", "ready"]
        assert names(store.items(LINES)) == ["leased", "dying", "ready", "behind", "scheduled"]
        assert store.items(LINES, places=()) == []

    def test_items_are_listed_page_by_page_from_a_pivot_on(self, store: QueueClerk) -> None:
        ids = store.put(ORDERS, *named(*map(str, range(7))))
        assert [item.id for item in store.items(ORDERS, limit=3)] == ids[:3]
        assert [item.id for item in store.items(ORDERS, pivot=ids[2], limit=3)] == ids[2:5]
        assert [item.id for item in store.items(ORDERS, pivot=ids[6], limit=3)] == ids[6:]

    def test_a_pivot_need_not_be_there(self, store: QueueClerk) -> None:
        ids = store.put(ORDERS, *named(*map(str, range(5))))
        store.delete(ORDERS, ids[2])
        assert [item.id for item in store.items(ORDERS, pivot=ids[2])] == ids[3:]
        store.lease(ORDERS, 1)
        assert [item.id for item in store.items(ORDERS, pivot=ids[0], places={Place.READY})] == [ids[1], *ids[3:]]
        assert [item.id for item in store.items(ORDERS, pivot="0" * 27)] == [ids[0], ids[1], *ids[3:]]
        assert store.items(ORDERS, pivot="z" * 27) == []

    def test_partitions_are_listed_one_by_one(self, store: QueueClerk) -> None:
        store.put(PAIR, fresh("a", partition=0), fresh("b", partition=1))
        assert [names(store.items(PAIR, partition=partition)) for partition in (0, 1)] == [["a"], ["b"]]

    def test_looking_changes_nothing(self, store: QueueClerk) -> None:
        store.put(ORDERS, fresh("a"))
        (item,) = store.items(ORDERS)
        item.place, item.attempts = Place.DYING, 9
        (again,) = store.items(ORDERS)
        assert (again.place, again.attempts) == (Place.READY, 0)

    def test_stats_count_every_place(self, store: QueueClerk) -> None:
        one_in_each_place(store)
        expected = PartitionStats(partition=0, total=4, leased=1, ready=1, scheduled=1, behind=1, dying=1)
        assert store.stats(LINES) == [expected]

    def test_stats_of_an_empty_queue_are_nothing(self, store: QueueClerk) -> None:
        assert store.stats(PAIR) == [PartitionStats(partition=0), PartitionStats(partition=1)]

    def test_ages_are_averages_since_items_were_created_and_leased(self, store: QueueClerk) -> None:
        store.put(ORDERS, fresh("a"), fresh("later", enqueue_us=START_US + HOUR_US, created_us=1))
        store.wait(seconds=4)
        store.put(ORDERS, fresh("b"), fresh("old", created_us=START_US - 6 * SECOND_US))
        store.take(ORDERS)
        store.wait(seconds=2)
        store.take(ORDERS)
        store.wait(seconds=1)
        (stats,) = store.stats(ORDERS)
        ages = [7, 3, 13]
        assert abs(stats.average_age_us - sum(ages) * SECOND_US // 3) <= 1
        assert abs(stats.average_leased_age_us - 2 * SECOND_US) <= 1
        assert (stats.total, stats.leased, stats.scheduled) == (3, 2, 1)

    def test_who_is_no_longer_leased_does_not_count_for_the_age_of_leases(self, store: QueueClerk) -> None:
        store.put(ORDERS, *named("completed", "retried", "swept", "leased"))
        completed, retried = store.lease(ORDERS, 2).items
        store.take(ORDERS, lease_us=SECOND_US)
        store.wait(seconds=2)
        store.complete(ORDERS, completed.id)
        store.retry(ORDERS, Again(id=retried.id, at_us=START_US + HOUR_US))
        store.sweep(ORDERS)
        store.take(ORDERS)
        store.wait(seconds=3)
        (stats,) = store.stats(ORDERS)
        assert (stats.leased, stats.average_leased_age_us, stats.average_age_us) == (1, 3 * SECOND_US, 5 * SECOND_US)

    def test_an_extended_lease_is_as_old_as_it_was_and_one_that_ended_has_no_age(self, store: QueueClerk) -> None:
        store.put(ORDERS, fresh("a"))
        item = store.take(ORDERS)
        store.wait(seconds=5)
        store.extend(ORDERS, item.id, lease_us=SECOND_US)
        assert store.stats(ORDERS)[0].average_leased_age_us == 5 * SECOND_US
        store.wait(seconds=1)
        store.sweep(ORDERS)
        assert store.stats(ORDERS) == [PartitionStats(partition=0, total=1, ready=1, average_age_us=6 * SECOND_US)]


class Deleting(QueueKit):
    """What is deleted is gone, and nothing else is."""

    @pytest.mark.parametrize("where", Place)
    def test_a_place_can_be_cleared(self, store: QueueClerk, where: Place) -> None:
        one_in_each_place(store)
        assert store.clear(LINES, where) == 1
        left = {one.value for one in Place} - {where.value}
        assert set(names(store.items(LINES))) == left
        assert store.clear(LINES, *EVERYWHERE) == 4
        assert store.stats(LINES) == [PartitionStats(partition=0)]
        store.wait(days=1)
        assert store.sweep(LINES) == Swept()

    def test_all_partitions_of_the_queue_and_of_no_other_are_cleared(self, store: QueueClerk) -> None:
        store.put(PAIR, *named("a", "b", partition=0), fresh("c", partition=1))
        store.put(ORDERS, fresh("d"))
        assert store.clear(PAIR, Place.LEASED) == 0
        assert store.clear(PAIR, Place.READY) == 3
        assert store.everything(PAIR) == []
        assert names(store.items(ORDERS)) == ["d"]

    @pytest.mark.parametrize("where", Place)
    def test_an_item_can_be_deleted_wherever_it_is(self, store: QueueClerk, where: Place) -> None:
        one_in_each_place(store)
        store.delete(LINES, store.one(LINES, where.value).id)
        assert set(names(store.items(LINES))) == {one.value for one in Place} - {where.value}

    def test_all_are_deleted_or_none(self, store: QueueClerk) -> None:
        one_in_each_place(store)
        ids = [item.id for item in store.items(LINES)]
        before, stats = store.items(LINES), store.stats(LINES)
        for bad in ([*ids, _NOBODY], [_NOBODY, *ids]):
            with pytest.raises(NoSuchItem) as caught:
                store.delete(LINES, *bad)
            assert caught.value.id == _NOBODY
        assert (store.items(LINES), store.stats(LINES)) == (before, stats)
        store.delete(LINES, *ids, ids[0])
        assert store.items(LINES) == []

    def test_who_held_a_deleted_item_is_told_that_it_is_gone(self, store: QueueClerk) -> None:
        store.put(ORDERS, fresh("a"))
        item = store.take(ORDERS)
        store.delete(ORDERS, item.id)
        with pytest.raises(NoSuchItem):
            store.complete(ORDERS, item.id)

    def test_an_item_is_looked_for_in_its_partition(self, store: QueueClerk) -> None:
        (id,) = store.put(PAIR, fresh("a", partition=1))
        with pytest.raises(NoSuchItem):
            store.delete(PAIR, id, partition=0)
        store.delete(PAIR, id, partition=1)
        assert store.everything(PAIR) == []


class Removing(QueueKit):
    """A queue that was removed is gone for everybody, for ever."""

    @pytest.mark.parametrize("verb", _VERBS)
    def test_every_verb_on_a_removed_queue_is_refused(self, store: QueueClerk, verb: str) -> None:
        store.put(ORDERS, *named("a", "b"))
        store.take(ORDERS)
        store.remove(ORDERS)
        with pytest.raises(QueueGone):
            _VERBS[verb](store)
        assert store.items(DEAD) == []

    @pytest.mark.parametrize("verb", ["put", "lease", "stats"])
    def test_a_queue_that_was_never_used_can_be_removed_and_more_than_once(self, store: QueueClerk, verb: str) -> None:
        store.remove(ORDERS)
        store.remove(ORDERS)
        with pytest.raises(QueueGone):
            _VERBS[verb](store)

    def test_other_queues_stay_as_they_are(self, store: QueueClerk) -> None:
        store.put(PAIR, fresh("a"))
        store.put(ORDERS, fresh("b"))
        store.remove(ORDERS)
        assert names(store.lease(PAIR).items) == ["a"]
        again = replace(ORDERS, queue="orders of another id")
        store.put(again, fresh("c"))
        assert names(store.lease(again).items) == ["c"]

    def test_who_knows_nothing_of_it_is_refused_too(self, store: QueueClerk, opener: QueueOpener, place: Path, run: Run) -> None:
        needs(store, "shared")
        other = QueueClerk(opener(place), run)
        other.put(ORDERS, fresh("a"))
        item = other.take(ORDERS)
        store.remove(ORDERS)
        for late in (
            lambda: other.put(ORDERS, fresh("b")),
            lambda: other.complete(ORDERS, item.id),
            lambda: other.lease(ORDERS),
        ):
            with pytest.raises(QueueGone):
                late()
        other.close()

    def test_who_opens_the_store_later_is_refused_too(self, store: QueueClerk, opener: QueueOpener, place: Path) -> None:
        needs(store, "durable")
        store.put(ORDERS, fresh("a"))
        store.remove(ORDERS)
        store.close()
        store.store = opener(place)
        with pytest.raises(QueueGone):
            store.put(ORDERS, fresh("b"))


class Hearing(QueueKit):
    """Who waits for something to be ready need not wait much longer than needed."""

    def test_who_waits_is_let_go_when_patience_is_at_its_end(self, store: QueueClerk, run: Run) -> None:
        async def bounded() -> str:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await store.store.changed(timedelta(milliseconds=1))
            return "let go"

        store.check()
        assert run(bounded()) == "let go"

    def test_who_waits_hears_of_what_others_put(self, store: QueueClerk, opener: QueueOpener, place: Path, run: Run) -> None:
        needs(store, "shared")
        other = opener(place)

        async def scene() -> int:
            waiting = asyncio.ensure_future(store.store.changed(timedelta(hours=1)))
            puts = 0
            async with asyncio.timeout(PATIENCE_SECONDS):
                # Who begins to wait at the instant of a put may hear only of the next.
                while not waiting.done():
                    await other.put(ORDERS, [fresh(str(puts))], now=store.now)
                    puts += 1
                    await asyncio.wait([waiting], timeout=0.05)
            await waiting
            await other.close()
            return puts

        assert run(scene()) == store.stats(ORDERS)[0].ready
