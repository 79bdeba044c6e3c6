"""The queues of seed 003, by the public client alone: every test that it lists, on every store, in process and over HTTP."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import pytest

from redrive.model.errors import NotLeased, QueueEmpty, QueueRefused
from redrive.model.item import Fresh, Item
from redrive.model.story import heard
from redrive.queues import again, item
from tests.unit.queue_use import AT_ONCE, HOUR, MINUTE, STORES, WAYS, Place, Use, used
from tests.unit.waiting import until

SOURCE_ID = "2ABCDEFGHIJKLMNOPQRSTUVWXYZ"

Story = Callable[[Use], Awaitable[None]]
Tell = Callable[[Story], None]


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=STORES)
def tell(request: pytest.FixtureRequest, way: str, tmp_path: Path, namespace: str) -> Tell:
    """Runs a story on the queues of one store."""
    place: Place = request.param

    def told(story: Story) -> None:
        async def whole() -> None:
            async with used(way, place(tmp_path, namespace)) as use:
                await story(use)

        asyncio.run(whole())

    return told


async def with_dead_queue(use: Use, **settings: object) -> None:
    await use.define("orders-dead")
    await use.define("orders", dead_queue="orders-dead", **settings)


async def empty(use: Use, name: str = "orders") -> None:
    with pytest.raises(QueueEmpty, match="request timeout; no items are in the queue, try again"):
        await use.client.lease(name, client="looker", timeout=AT_ONCE)


class TestSourceId:
    def test_import_with_source_id(self, tell: Tell) -> None:
        async def story(use: Use) -> None:
            await use.define()
            (id,) = await use.client.bring("orders", 0, [Fresh(payload=b"x", source_id=SOURCE_ID)])
            (stored,) = await use.stored()
            assert (stored.id, stored.source_id, stored.payload) == (id, SOURCE_ID, b"x")

        tell(story)

    def test_duplicate_source_id_ignored(self, tell: Tell) -> None:
        async def story(use: Use) -> None:
            await use.define()
            first = await use.client.bring("orders", 0, [Fresh(payload=b"x", source_id=SOURCE_ID)])
            second = await use.client.bring("orders", 0, [Fresh(payload=b"y", source_id=SOURCE_ID)])
            assert second == [""]
            assert [(stored.id, stored.payload) for stored in await use.stored()] == [(first[0], b"x")]

        tell(story)

    def test_source_id_preserved_on_list(self, tell: Tell) -> None:
        async def story(use: Use) -> None:
            await use.define()
            await use.client.bring("orders", 0, [Fresh(payload=b"x", source_id=SOURCE_ID)])
            await use.client.produce("orders", [item("plain")])
            assert [stored.source_id for stored in await use.stored()] == [SOURCE_ID, ""]

        tell(story)


class TestValidation:
    def test_non_existent_dead_queue(self, tell: Tell) -> None:
        async def story(use: Use) -> None:
            with pytest.raises(QueueRefused, match=r"^dead_queue 'nope' does not exist; create it first$"):
                await use.define(dead_queue="nope")
            assert await use.client.queues() == []

        tell(story)

    def test_self_reference(self, tell: Tell) -> None:
        async def story(use: Use) -> None:
            with pytest.raises(QueueRefused, match=r"^dead_queue cannot reference itself$"):
                await use.define(dead_queue="orders")
            await use.define()
            with pytest.raises(QueueRefused, match=r"^dead_queue cannot reference itself$"):
                await use.client.update("orders", dead_queue="orders")

        tell(story)

    def test_a_dead_queue_has_no_dead_queue(self, tell: Tell) -> None:
        async def story(use: Use) -> None:
            await use.define("c")
            await use.define("b", dead_queue="c")
            with pytest.raises(QueueRefused, match=r"^dead_queue 'b' cannot have its own dead_queue$"):
                await use.define("a", dead_queue="b")

        tell(story)

    def test_no_chain_is_made_by_an_update_from_either_end(self, tell: Tell) -> None:
        async def story(use: Use) -> None:
            for name in ("a", "b", "c"):
                await use.define(name)
            await use.client.update("a", dead_queue="b")
            with pytest.raises(QueueRefused, match=r"^dead_queue 'b' cannot have its own dead_queue$"):
                await use.client.update("b", dead_queue="c")
            with pytest.raises(QueueRefused, match="cannot have its own dead_queue"):
                await use.client.update("b", dead_queue="a")
            with pytest.raises(QueueRefused, match=r"^dead_queue 'a' cannot have its own dead_queue$"):
                await use.client.update("c", dead_queue="a")
            assert [queue.dead_queue for queue in await use.client.queues()] == ["b", "", ""]

        tell(story)

    def test_valid_dead_queue(self, tell: Tell) -> None:
        async def story(use: Use) -> None:
            await with_dead_queue(use)
            assert (await use.client.info("orders")).dead_queue == "orders-dead"

        tell(story)

    def test_a_dead_queue_in_use_is_deleted_by_force_only(self, tell: Tell) -> None:
        async def story(use: Use) -> None:
            await with_dead_queue(use)
            with pytest.raises(QueueRefused, match="'orders-dead' is the dead_queue of 'orders'"):
                await use.client.delete("orders-dead")
            await use.client.delete("orders-dead", force=True)
            assert [queue.name for queue in await use.client.queues()] == ["orders"]

        tell(story)

    def test_a_dead_queue_keeps_its_partitions_while_others_lead_to_it(self, tell: Tell) -> None:
        async def story(use: Use) -> None:
            await with_dead_queue(use)
            with pytest.raises(QueueRefused, match=r"'orders-dead' is the dead_queue of 'orders' and keeps items to their"):
                await use.client.update("orders-dead", partitions=2)
            assert len((await use.client.update("orders", partitions=2)).partitions) == 2

        tell(story)


class TestDeadLetterQueue:
    def test_max_attempts(self, tell: Tell) -> None:
        async def story(use: Use) -> None:
            await with_dead_queue(use, max_attempts=2)
            await use.client.produce("orders", [item("bad", reference="o-1", kind="order", encoding="text")])
            for attempt in (1, 2, 3):
                partition, (leased,) = await use.take()
                assert leased.attempts == attempt
                await use.client.retry("orders", partition, [again(leased, ValueError("no such price"))])
            assert await use.stored() == []
            (dead,) = await use.stored("orders-dead")
            assert (dead.payload, dead.reference, dead.kind, dead.encoding) == (b"bad", "o-1", "order", "text")
            assert (dead.source_id, dead.attempts, dead.lease_us) == (leased.id, 0, 0)
            assert dead.id != dead.source_id
            assert dead.message_id == leased.message_id
            death = heard(dead.story)
            assert (death.queue, death.attempts, death.why) == ("orders", 3, "max_attempts")
            assert death.failure is not None
            assert (death.failure.type, death.failure.message) == ("builtins.ValueError", "no such price")

        tell(story)

    def test_max_attempts_by_leases_that_end(self, tell: Tell) -> None:
        async def story(use: Use) -> None:
            await with_dead_queue(use, max_attempts=1)
            await use.client.produce("orders", [item("bad")])
            for _ in range(2):
                await use.take()
                use.clock.advance(MINUTE + timedelta(seconds=1))
            await until(lambda: _count(use, "orders-dead", 1))
            assert await use.stored() == []

        tell(story)

    def test_a_last_attempt_is_its_holders_until_its_lease_is_over(self, tell: Tell) -> None:
        async def story(use: Use) -> None:
            await with_dead_queue(use, max_attempts=1, expire_timeout=2 * MINUTE)
            await use.client.produce("orders", [item("last")])
            partition, (leased,) = await use.take()
            await use.client.retry("orders", partition, [again(leased)])
            use.clock.advance(timedelta(seconds=90))
            partition, (leased,) = await use.take()
            await use.client.produce("orders", [item("other", at=use.clock.now() + timedelta(seconds=20))])
            use.clock.advance(timedelta(seconds=40))
            await until(lambda: _count(use, "orders", 2))
            await use.client.complete("orders", partition, [leased.id])
            assert await use.stored("orders-dead") == []

        tell(story)

    def test_expire_deadline(self, tell: Tell) -> None:
        async def story(use: Use) -> None:
            await with_dead_queue(use, expire_timeout=HOUR)
            await use.client.produce("orders", [item("old")])
            (stored,) = await use.stored()
            use.clock.advance(HOUR + MINUTE)
            await until(lambda: _count(use, "orders-dead", 1))
            assert await use.stored() == []
            (dead,) = await use.stored("orders-dead")
            assert (dead.source_id, heard(dead.story).why) == (stored.id, "expired")
            await empty(use)

        tell(story)

    def test_items_of_a_dead_queue_do_not_expire(self, tell: Tell) -> None:
        async def story(use: Use) -> None:
            await with_dead_queue(use)
            await use.client.produce("orders-dead", [item("by hand")])
            use.clock.advance(1000 * HOUR)
            await use.define("done")
            _, (leased,) = await use.take("orders-dead")
            assert leased.payload == b"by hand"

        tell(story)

    def test_no_dead_queue_configured(self, tell: Tell, caplog: pytest.LogCaptureFixture) -> None:
        async def story(use: Use) -> None:
            await use.define(max_attempts=1)
            await use.client.produce("orders", [item("bad")])
            for _ in range(2):
                partition, (leased,) = await use.take()
                await use.client.retry("orders", partition, [again(leased)])
            assert await use.stored() == []
            assert f"item '{leased.id}' exceeded max_attempts, deleting (no dead_queue configured)" in caplog.messages

        with caplog.at_level(logging.WARNING, logger="redrive.queues"):
            tell(story)

    def test_idempotency(self, tell: Tell) -> None:
        async def story(use: Use) -> None:
            await use.define("orders-dead")
            for payload in (b"once", b"twice"):
                await use.client.bring("orders-dead", 0, [Fresh(payload=payload, source_id="abc")])
            assert [stored.payload for stored in await use.stored("orders-dead")] == [b"once"]

        tell(story)

    def test_retry_as_dead_moves_at_once(self, tell: Tell) -> None:
        async def story(use: Use) -> None:
            await with_dead_queue(use)
            await use.client.produce("orders", [item("hopeless"), item("fine")])
            partition, (bad, fine) = await use.take()
            await use.client.retry("orders", partition, [again(bad, dead=True), again(fine)])
            assert [dead.payload for dead in await use.stored("orders-dead")] == [b"hopeless"]
            assert [stored.payload for stored in await use.stored()] == [b"fine"]

        tell(story)

    def test_dead_items_are_spread_over_the_dead_queues_partitions(self, tell: Tell) -> None:
        async def story(use: Use) -> None:
            await use.define("orders-dead", partitions=3)
            await use.define("orders", dead_queue="orders-dead")
            await use.client.produce("orders", [item(str(number)) for number in range(60)])
            partition, leased = await use.take(limit=60)
            await use.client.retry("orders", partition, [again(one, dead=True) for one in leased])
            counts = [len(await use.stored("orders-dead", number)) for number in range(3)]
            assert sum(counts) == 60
            assert all(counts)

        tell(story)

    def test_a_dead_queue_that_is_gone_loses_nothing(self, tell: Tell, caplog: pytest.LogCaptureFixture) -> None:
        async def story(use: Use) -> None:
            await with_dead_queue(use)
            await use.client.produce("orders", [item("bad")])
            partition, (leased,) = await use.take()
            await use.client.delete("orders-dead", force=True)
            await use.client.retry("orders", partition, [again(leased, dead=True)])
            assert any(line.startswith("failed to produce to dead_queue 'orders-dead': ") for line in caplog.messages)
            assert [stored.id for stored in await use.stored()] == [leased.id]
            await empty(use)
            await use.define("orders-dead")
            await until(lambda: _count(use, "orders-dead", 1))
            assert await use.stored() == []

        with caplog.at_level(logging.ERROR, logger="redrive.queues"):
            tell(story)


async def _count(use: Use, name: str, count: int) -> bool:
    return len(await use.stored(name)) == count


class TestLeases:
    def test_a_waiting_lease_is_woken_by_an_item_that_is_produced(self, tell: Tell) -> None:
        async def story(use: Use) -> None:
            await use.define()
            waiting = asyncio.create_task(use.take())
            await until(lambda: _waits(use))
            await use.client.produce("orders", [item("here")])
            _, (leased,) = await waiting
            assert leased.payload == b"here"

        tell(story)

    def test_a_waiting_lease_is_woken_by_a_scheduled_item_that_comes_due(self, tell: Tell) -> None:
        async def story(use: Use) -> None:
            await use.define()
            at = use.clock.now() + HOUR
            await use.client.produce("orders", [item("later", at=at), item("much later", at=at + HOUR)])
            assert await use.stored() == []
            assert [stored.payload for stored in await use.client.scheduled("orders", 0)] == [b"later", b"much later"]
            for expected in (b"later", b"much later"):
                waiting = asyncio.create_task(use.take())
                await until(lambda: _waits(use))
                use.clock.advance(HOUR)
                partition, (leased,) = await waiting
                assert leased.payload == expected
                await use.client.complete("orders", partition, [leased.id])

        tell(story)

    def test_a_waiting_lease_is_woken_by_a_lease_that_ends(self, tell: Tell) -> None:
        async def story(use: Use) -> None:
            await use.define()
            await use.client.produce("orders", [item("dropped")])
            partition, (first,) = await use.take()
            waiting = asyncio.create_task(use.take(client="other"))
            await until(lambda: _waits(use))
            use.clock.advance(MINUTE + timedelta(seconds=1))
            _, (second,) = await waiting
            assert (second.payload, second.attempts, second.message_id) == (b"dropped", 2, first.message_id)
            assert second.id > first.id
            with pytest.raises(QueueRefused):
                await use.client.complete("orders", partition, [first.id])

        tell(story)

    def test_a_lease_can_be_extended_and_has_the_length_that_is_asked_for(self, tell: Tell) -> None:
        async def story(use: Use) -> None:
            await use.define()
            await use.client.produce("orders", [item("long")])
            leased = await use.client.lease("orders", client="worker", lease=HOUR)
            use.clock.advance(50 * MINUTE)
            until_us = await use.client.extend("orders", leased.partition, [leased.items[0].id], HOUR)
            assert until_us - use.clock.now_us() == HOUR // timedelta(microseconds=1)
            use.clock.advance(50 * MINUTE)
            await use.client.complete("orders", leased.partition, [leased.items[0].id])

        tell(story)

    def test_complete_is_all_or_nothing(self, tell: Tell) -> None:
        async def story(use: Use) -> None:
            await use.define()
            await use.client.produce("orders", [item(str(number)) for number in range(3)])
            partition, (one, two) = await use.take(limit=2)
            three = (await use.stored())[-1]
            with pytest.raises(NotLeased, match=rf"^item\(s\) cannot be completed; '{three.id}' is not marked as leased$"):
                await use.client.complete("orders", partition, [one.id, two.id, three.id])
            assert len(await use.stored()) == 3
            await use.client.complete("orders", partition, [one.id, two.id])
            assert [stored.id for stored in await use.stored()] == [three.id]

        tell(story)

    def test_retried_items_go_to_the_tail_under_a_new_id_or_wait_for_their_time(self, tell: Tell) -> None:
        async def story(use: Use) -> None:
            await use.define()
            await use.client.produce("orders", [item("a"), item("b"), item("c")])
            partition, (a, b) = await use.take(limit=2)
            await use.client.retry("orders", partition, [again(a), again(b, at=use.clock.now() + HOUR)])
            stored = await use.stored()
            assert [(one.payload, one.attempts) for one in stored] == [(b"c", 0), (b"a", 1)]
            assert stored[1].id > b.id
            (later,) = await use.client.scheduled("orders", 0)
            assert (later.payload, later.attempts) == (b"b", 1)

        tell(story)

    def test_produce_goes_where_fewest_wait_and_lease_where_most_do(self, tell: Tell) -> None:
        async def story(use: Use) -> None:
            await use.define(partitions=2)
            await use.client.produce("orders", [item("1"), item("2")])
            await use.client.produce("orders", [item("3")])
            counts = [one.total for one in (await use.client.stats("orders")).partitions]
            assert sorted(counts) == [1, 2]
            partition, leased = await use.take(limit=10)
            assert (counts[partition], len(leased)) == (2, 2)

        tell(story)

    def test_two_requests_of_one_client_are_one_too_many(self, tell: Tell) -> None:
        async def story(use: Use) -> None:
            await use.define()
            waiting = asyncio.create_task(use.take())
            await until(lambda: _waits(use))
            with pytest.raises(QueueRefused, match=r"^duplicate client id; a client cannot make multiple leased requests to"):
                await use.take()
            await use.client.produce("orders", [item("x")])
            await waiting

        tell(story)


async def _waits(use: Use) -> bool:
    return (await use.client.stats("orders")).leasing == 1


class TestStored:
    def test_stats_count_what_is_there(self, tell: Tell) -> None:
        async def story(use: Use) -> None:
            await use.define()
            await use.client.produce("orders", [item("a"), item("b"), item("c"), item("d", at=use.clock.now() + HOUR)])
            use.clock.advance(timedelta(seconds=20))
            await use.take(limit=2)
            use.clock.advance(timedelta(seconds=10))
            (stats,) = (await use.client.stats("orders")).partitions
            assert (stats.total, stats.leased, stats.ready, stats.scheduled) == (3, 2, 1, 1)
            assert (stats.average_age_us, stats.average_leased_age_us) == (30_000_000, 10_000_000)

        tell(story)

    def test_clear_takes_what_waits_and_destructively_everything(self, tell: Tell) -> None:
        async def story(use: Use) -> None:
            await use.define()
            for _ in range(2):
                await use.client.produce("orders", [item("a"), item("b"), item("c", at=use.clock.now() + HOUR)])
            _, leased = await use.take(limit=1)
            assert await use.client.clear("orders", queue=True) == 3
            assert [stored.id for stored in await use.stored()] == [leased[0].id]
            assert await use.client.clear("orders", scheduled=True) == 2
            assert await use.client.clear("orders", queue=True, destructive=True) == 1
            assert await use.stored() == []

        tell(story)

    def test_items_are_listed_in_pages_from_a_pivot(self, tell: Tell) -> None:
        async def story(use: Use) -> None:
            await use.define()
            await use.client.produce("orders", [item(str(number)) for number in range(7)])
            page: list[Item] = await use.client.items("orders", 0, limit=3)
            assert [one.payload for one in page] == [b"0", b"1", b"2"]
            await use.client.discard("orders", 0, [page[2].id])
            following = await use.client.items("orders", 0, pivot=page[2].id, limit=3)
            assert [one.payload for one in following] == [b"3", b"4", b"5"]

        tell(story)

    def test_an_update_changes_what_is_given_and_shows_at_once(self, tell: Tell) -> None:
        async def story(use: Use) -> None:
            await use.define(max_attempts=3, reference="shop")
            await use.client.update("orders", lease_timeout=5 * MINUTE)
            queue = await use.client.info("orders")
            assert (queue.lease_timeout, queue.max_attempts, queue.reference) == (5 * MINUTE, 3, "shop")
            with pytest.raises(QueueRefused, match=r"^lease timeout is too long; 48h0m0s cannot be greater than the expire"):
                await use.client.update("orders", lease_timeout=48 * HOUR, max_attempts=9)
            assert (await use.client.info("orders")).max_attempts == 3
            await use.client.produce("orders", [item("x")])
            leased = await use.client.lease("orders", client="worker")
            assert leased.until_us == use.clock.now_us() + 5 * MINUTE // timedelta(microseconds=1)

        tell(story)
