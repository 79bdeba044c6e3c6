"""The kit for `put`: what an item is once it is there, its position, and what is there already."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from redrive.model.item import PRIORITIES, SOON_US, Again, Fresh, Item, Place
from redrive.model.ksuid import LENGTH, what_is_wrong
from redrive.testing.kit.clerk import Run, needs
from redrive.testing.kit.queue_clerk import QueueClerk, QueueKit, QueueOpener
from redrive.testing.kit.queue_samples import DEAD, HOUR_US, MINUTE_US, ORDERS, PAIR, START_US, fresh, named, names

_AWKWARD = "a'b\"c\\d,e;f{g}:h\n\té中\U0001f4ee"
_DEDUPED = replace(ORDERS, dedupe_us=MINUTE_US)


class Putting(QueueKit):
    """What was put is there as it was given, once, and behind all that was put before."""

    def test_an_item_is_there_as_it_was_given(self, store: QueueClerk) -> None:
        given = Fresh(
            payload=b"\0\xff" + _AWKWARD.encode(),
            reference=_AWKWARD,
            encoding="application/json",
            kind="order; v=1",
            key=f"key {_AWKWARD}",
            priority=3,
            story=b"\0story\xff",
            message_id="its own id",
            source_id="where it died",
            attempts=4,
            created_us=START_US - 17,
            expire_us=START_US + HOUR_US + 1,
        )
        (id,) = store.put(ORDERS, given)
        expected = Item(
            id, "its own id", "where it died", 4, START_US - 17, START_US, 0, START_US + HOUR_US + 1, given.payload, _AWKWARD,
            "application/json", "order; v=1", f"key {_AWKWARD}", 3, b"\0story\xff",
        )  # fmt: skip
        assert store.items(ORDERS) == [expected]

    def test_what_is_not_given_is_given_by_the_queue_and_the_clock(self, store: QueueClerk) -> None:
        (id,) = store.put(ORDERS, Fresh())
        (item,) = store.items(ORDERS)
        assert item == Item(id, id, "", 0, START_US, START_US, 0, START_US + HOUR_US, b"", "", "", "", "", 0, b"")
        assert (item.place, item.lease_us, item.why) == (Place.READY, 0, "")

    def test_a_large_payload_is_kept(self, store: QueueClerk) -> None:
        payload = bytes(range(256)) * 4096
        store.put(ORDERS, fresh("large", payload=payload))
        assert store.take(ORDERS).payload == payload

    def test_nothing_to_put_changes_nothing(self, store: QueueClerk) -> None:
        assert store.put(ORDERS) == []
        assert store.items(ORDERS) == []

    def test_queues_keep_their_items_apart(self, store: QueueClerk) -> None:
        store.put(ORDERS, fresh("order"))
        store.put(DEAD, fresh("dead"))
        assert [names(store.items(shard)) for shard in (ORDERS, DEAD, PAIR)] == [["order"], ["dead"], []]
        assert names(store.lease(ORDERS).items) == ["order"]

    def test_ids_are_ksuids_that_increase_in_the_order_given(self, store: QueueClerk) -> None:
        ids = [*store.put(ORDERS, *named(*map(str, range(300)))), *store.put(ORDERS, fresh("later"))]
        assert all(what_is_wrong(id) is None and len(id) == LENGTH for id in ids)
        assert ids == sorted(set(ids))
        assert [item.id for item in store.items(ORDERS)] == ids

    @pytest.mark.parametrize("seconds", [-3600, -1, 0, 1, 3600])
    def test_ids_increase_whichever_way_the_clock_goes_and_when_all_else_is_gone(self, store: QueueClerk, seconds: int) -> None:
        (first,) = store.put(ORDERS, fresh("first"))
        store.complete(ORDERS, store.take(ORDERS).id)
        store.wait(seconds=seconds)
        (second,) = store.put(ORDERS, fresh("second"))
        store.clear(ORDERS, Place.READY)
        (third,) = store.put(ORDERS, fresh("third"))
        assert first < second < third

    def test_an_id_that_was_given_by_a_retry_or_a_sweep_is_the_highest(self, store: QueueClerk) -> None:
        later = START_US + MINUTE_US
        known = store.put(ORDERS, *named("retried", "swept"), fresh("scheduled", enqueue_us=later))
        retried, _ = store.lease(ORDERS).items
        store.retry(ORDERS, Again(id=retried.id))
        assert store.one(ORDERS, "retried").id > max(known)
        store.wait(minutes=1)
        store.sweep(ORDERS)
        swept = [store.one(ORDERS, name).id for name in ("retried", "swept", "scheduled")]
        assert swept == sorted(swept)
        (new,) = store.put(ORDERS, fresh("new"))
        assert new > max(swept)

    def test_what_is_durable_is_there_when_the_store_is_opened_again(
        self, store: QueueClerk, opener: QueueOpener, place: Path, run: Run
    ) -> None:
        needs(store, "durable")
        store.put(ORDERS, *named("done", "leased", "ready"), fresh("scheduled", enqueue_us=START_US + MINUTE_US))
        done, leased = store.lease(ORDERS, 2).items
        store.complete(ORDERS, done.id)
        before = store.items(ORDERS)
        (last,) = store.put(ORDERS, fresh("deleted"))
        store.delete(ORDERS, last)
        store.close()
        store.store = opener(place)
        assert store.items(ORDERS) == before
        store.now -= timedelta(days=1)
        (new,) = store.put(ORDERS, fresh("new"))
        assert new > last
        store.complete(ORDERS, leased.id)

    def test_an_item_for_later_is_scheduled_and_expires_from_then_on(self, store: QueueClerk) -> None:
        later = START_US + 2 * HOUR_US
        store.put(ORDERS, fresh("later", enqueue_us=later))
        item = store.one(ORDERS, "later")
        assert (item.place, item.enqueue_us, item.expire_us) == (Place.SCHEDULED, later, later + HOUR_US)
        assert store.lease(ORDERS).items == []

    @pytest.mark.parametrize(
        ("after_us", "where"),
        [(-HOUR_US, Place.READY), (0, Place.READY), (SOON_US - 1, Place.READY), (SOON_US, Place.SCHEDULED)],
    )
    def test_an_item_for_soon_can_be_leased_at_once(self, store: QueueClerk, after_us: int, where: Place) -> None:
        store.put(ORDERS, fresh("soon", enqueue_us=START_US + after_us))
        item = store.one(ORDERS, "soon")
        assert item.place is where
        assert item.enqueue_us == (START_US + after_us if where is Place.SCHEDULED else 0)

    def test_an_item_of_a_queue_without_expiry_has_none(self, store: QueueClerk) -> None:
        store.put(DEAD, fresh("dead"))
        assert store.one(DEAD, "dead").expire_us == 0

    def test_what_died_elsewhere_is_taken_but_once_while_it_is_there(self, store: QueueClerk) -> None:
        first, again, other = store.put(DEAD, fresh("a", source_id="1"), fresh("b", source_id="1"), fresh("c", source_id="2"))
        assert first
        assert not again
        assert other > first
        assert store.put(DEAD, fresh("d", source_id="1")) == [""]
        leased = store.take(DEAD)
        assert store.put(DEAD, fresh("e", source_id="1")) == [""]
        store.complete(DEAD, leased.id)
        assert all(store.put(DEAD, fresh("f", source_id="1")))
        assert names(store.items(DEAD)) == ["c", "f"]

    def test_a_source_is_known_in_its_partition_after_a_retry_and_until_it_is_cleared(self, store: QueueClerk) -> None:
        store.put(PAIR, fresh("a", source_id="1", partition=0))
        assert all(store.put(PAIR, fresh("b", source_id="1", partition=1)))
        item = store.take(PAIR)
        store.retry(PAIR, Again(id=item.id))
        assert store.put(PAIR, fresh("c", source_id="1", partition=0)) == [""]
        assert store.clear(PAIR, Place.READY) == 2
        assert all(store.put(PAIR, fresh("d", source_id="1", partition=0)))

    def test_a_reference_is_known_for_as_long_as_the_queue_says(self, store: QueueClerk) -> None:
        first, again = store.put(_DEDUPED, *named("a", "a"))
        assert first
        assert not again
        store.complete(_DEDUPED, store.take(_DEDUPED).id)
        store.wait(seconds=59)
        assert store.put(_DEDUPED, fresh("a")) == [""]
        store.sweep(_DEDUPED)
        store.wait(microseconds=999_999)
        assert store.put(_DEDUPED, fresh("a")) == [""]
        store.wait(microseconds=1)
        assert all(store.put(_DEDUPED, fresh("a")))
        assert store.put(_DEDUPED, fresh("a")) == [""]

    def test_items_without_a_reference_are_all_different(self, store: QueueClerk) -> None:
        assert all(store.put(_DEDUPED, *named("", "")))
        assert all(store.put(_DEDUPED, fresh("")))

    def test_where_nothing_is_deduped_a_reference_may_come_again(self, store: QueueClerk) -> None:
        assert all(store.put(ORDERS, *named("a", "a")))

    def test_what_was_not_put_for_its_reference_leaves_its_source_unknown(self, store: QueueClerk) -> None:
        store.put(_DEDUPED, fresh("a"))
        assert store.put(_DEDUPED, fresh("a", source_id="1")) == [""]
        assert all(store.put(_DEDUPED, fresh("b", source_id="1")))

    def test_what_was_not_put_for_its_source_leaves_its_reference_unknown(self, store: QueueClerk) -> None:
        store.put(_DEDUPED, fresh("a", source_id="1"))
        assert store.put(_DEDUPED, fresh("b", source_id="1")) == [""]
        assert all(store.put(_DEDUPED, fresh("b")))

    def test_duplicates_are_told_from_their_neighbours(self, store: QueueClerk) -> None:
        store.put(_DEDUPED, fresh("b"))
        ids = store.put(_DEDUPED, *named("a", "b", "c"))
        assert [bool(id) for id in ids] == [True, False, True]
        assert names(store.items(_DEDUPED)) == ["b", "a", "c"]
        assert [store.one(_DEDUPED, name).id for name in "ac"] == [ids[0], ids[2]]

    @pytest.mark.parametrize("priority", range(PRIORITIES))
    def test_every_priority_is_kept(self, store: QueueClerk, priority: int) -> None:
        store.put(ORDERS, fresh("a", priority=priority))
        assert store.take(ORDERS).priority == priority
