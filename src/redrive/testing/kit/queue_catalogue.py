"""The kit for the catalogue: `catalogue` and `define`."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from redrive.model.queue import Catalogue, Queue
from redrive.testing.kit.clerk import needs
from redrive.testing.kit.queue_clerk import QueueClerk, QueueKit, QueueOpener
from redrive.testing.kit.queue_samples import ORDERS, START_US, fresh, names


def queue(name: str, **changes: Any) -> Queue:
    """A queue of this name. Its id is made of it, unless one is given."""
    values: dict[str, Any] = {
        "id": f"id of {name}",
        "lease_timeout": timedelta(minutes=1),
        "expire_timeout": timedelta(hours=1),
        "created_us": START_US,
        "updated_us": START_US,
        "partitions": ("here",),
    }
    return Queue(name=name, **(values | changes))


class Catalogues(QueueKit):
    """All queues as of a version; who changes an old version is told so."""

    def test_a_new_store_has_no_queues(self, store: QueueClerk) -> None:
        assert store.catalogue() == Catalogue()

    def test_a_queue_is_there_as_it_was_defined(self, store: QueueClerk) -> None:
        full = queue(
            "orders",
            lease_timeout=timedelta(microseconds=1),
            expire_timeout=timedelta(days=400, microseconds=7),
            updated_us=START_US + 1,
            partitions=("here", "there", "here"),
            dead_queue="orders-dead",
            reference="a'b\"c\\d 中",
            max_attempts=3,
            ordered=True,
            dedupe=timedelta(seconds=1.5),
            rate=0.25,
        )
        assert store.define(0, full, queue("plain"))
        found = store.catalogue()
        assert found.queues == (full, queue("plain"))
        assert found.version > 0

    def test_every_change_raises_the_version_and_an_old_one_is_refused(self, store: QueueClerk) -> None:
        versions = [0]
        for name in "abc":
            assert store.define(versions[-1], queue(name))
            versions.append(store.catalogue().version)
        assert versions == sorted(set(versions))
        before = store.catalogue()
        for version in (*versions[:-1], versions[-1] + 1):
            assert not store.define(version, queue("late"), drop=["id of a"])
        assert store.catalogue() == before

    def test_queues_are_listed_by_name(self, store: QueueClerk) -> None:
        wanted = ["b", "a-c", "ab", "a_b", "B", "a", "é", "a.b", "10", "9"]
        assert store.define(0, *(queue(name) for name in wanted))
        assert [one.name for one in store.catalogue().queues] == sorted(wanted)

    def test_a_queue_is_changed_by_its_id(self, store: QueueClerk) -> None:
        store.define(0, queue("orders"), queue("other"))
        renamed = replace(queue("orders"), name="zebra", max_attempts=7)
        assert store.define(store.catalogue().version, renamed)
        assert store.catalogue().queues == (queue("other"), renamed)

    def test_a_dropped_queue_is_forgotten_and_its_items_are_not_touched(self, store: QueueClerk) -> None:
        store.define(0, queue("orders", id=ORDERS.queue), queue("other"))
        store.put(ORDERS, fresh("a"))
        assert store.define(store.catalogue().version, drop=[ORDERS.queue, "nobody's id"])
        assert store.catalogue().queues == (queue("other"),)
        assert names(store.lease(ORDERS).items) == ["a"]

    def test_a_queue_made_again_under_its_name_is_another_one(self, store: QueueClerk) -> None:
        store.define(0, queue("orders"))
        again = queue("orders", id="another id")
        assert store.define(store.catalogue().version, again, drop=["id of orders"])
        assert store.catalogue().queues == (again,)

    def test_the_catalogue_is_there_when_the_store_is_opened_again(
        self, store: QueueClerk, opener: QueueOpener, place: Path
    ) -> None:
        needs(store, "durable")
        store.define(0, queue("orders"))
        before = store.catalogue()
        store.close()
        store.store = opener(place)
        assert store.catalogue() == before
        assert store.define(before.version, queue("other"))
