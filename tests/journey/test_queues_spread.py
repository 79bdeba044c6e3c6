"""Queues whose partitions lie in several stores: where items go and come from, and what happens when one of the stores fails."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec import Struct
from msgspec.structs import replace

from redrive import wiring
from redrive.model.errors import AnswerLost, BadSettings, QueueEmpty, StoreFull, StoreUnavailable, UnknownScheme
from redrive.model.item import Again, Fresh, Item, Place
from redrive.model.story import heard
from redrive.ports.queues import QueueStore
from redrive.queues import Queues, item, opening
from redrive.settings import load
from redrive.testing.clock import ManualClock
from tests.unit.queue_use import AT_ONCE, HOUR, MINUTE, SOON, WOKEN_SECONDS, Troubled, queue_store
from tests.unit.waiting import until

PAIRS = {
    "memory and SQLite": ("memory:", "sqlite:{}/second.db"),
    "two SQLite files": ("sqlite:{}/first.db", "sqlite:{}/second.db"),
}


class Spread(Struct):
    """Queues on two stores, the first of which keeps the catalogue."""

    queues: Queues
    first: Troubled
    second: Troubled
    clock: ManualClock

    async def define(self, name: str, *stores: str, **settings: Any) -> None:
        """A queue whose partitions lie in these stores."""
        await self.queues.create(
            name, **{"lease_timeout": MINUTE, "expire_timeout": 24 * HOUR, "partitions": len(stores), **settings}
        )
        catalogue = await self.first.catalogue()
        placed = [replace(queue, partitions=stores) for queue in catalogue.queues if queue.name == name]
        assert await self.first.define(catalogue.version, placed)
        await self.queues.reload(name)

    async def ready(self, name: str = "orders") -> list[int]:
        return [one.ready for one in (await self.queues.stats(name)).partitions]

    async def put(self, partition: int, *names: str, queue: str = "orders") -> None:
        await self.queues.bring(queue, partition, [Fresh(name.encode()) for name in names])

    async def take(self, name: str = "orders", limit: int = 10, client: str = "worker") -> tuple[int, list[str]]:
        leased = await self.queues.lease(name, limit, client=client, timeout=SOON)
        return leased.partition, [one.payload.decode() for one in leased.items]

    async def give_up(self, *names: str) -> list[Item]:
        """Produce, lease and give up items."""
        await self.queues.produce("orders", [item(name) for name in names])
        leased = await self.queues.lease("orders", len(names), client="giver")
        await self.queues.retry("orders", leased.partition, [Again(id=one.id, dead=True) for one in leased.items])
        return leased.items

    async def stored(self, name: str) -> list[Item]:
        queue = await self.queues.info(name)
        return [one for number in range(len(queue.partitions)) for one in await self.queues.items(name, number)]


Story = Callable[[Spread], Awaitable[None]]
Tell = Callable[[Story], None]


@pytest.fixture(params=PAIRS)
def tell(request: pytest.FixtureRequest, tmp_path: Path) -> Tell:
    """Runs a story on queues in two stores."""

    def told(story: Story) -> None:
        async def whole() -> None:
            first, second = (Troubled(queue_store(url.format(tmp_path))) for url in PAIRS[request.param])
            clock = ManualClock()
            stores = {"first": cast("QueueStore", first), "second": cast("QueueStore", second)}
            async with Queues(stores, clock=clock, owns_stores=True) as queues:
                await story(Spread(queues, first, second, clock))

        asyncio.run(whole())

    return told


class TestBalance:
    def test_partitions_of_a_new_queue_go_round_among_the_stores(self, tell: Tell) -> None:
        async def story(spread: Spread) -> None:
            queue = await spread.queues.create("orders", lease_timeout=MINUTE, expire_timeout=HOUR, partitions=3)
            assert queue.partitions == ("first", "second", "first")
            queue = await spread.queues.update("orders", partitions=4)
            assert queue.partitions == ("first", "second", "first", "second")

        tell(story)

    def test_items_are_put_where_the_fewest_wait(self, tell: Tell) -> None:
        async def story(spread: Spread) -> None:
            await spread.define("orders", "first", "second")
            await spread.put(0, "a", "b", "c")
            await spread.queues.produce("orders", [item("d"), item("e")])
            assert await spread.ready() == [3, 2]
            for _ in range(5):
                await spread.queues.produce("orders", [item("one more")])
            assert await spread.ready() == [5, 5]

        tell(story)

    def test_items_are_leased_where_the_most_wait(self, tell: Tell) -> None:
        async def story(spread: Spread) -> None:
            await spread.define("orders", "first", "second")
            await spread.put(0, "a", "b", "c")
            await spread.put(1, "d", "e", "f", "g", "h")
            assert await spread.take(limit=3) == (1, ["d", "e", "f"])
            assert await spread.take(limit=9) == (0, ["a", "b", "c"])
            assert await spread.take(limit=9) == (1, ["g", "h"])

        tell(story)

    def test_items_of_a_key_keep_their_order_wherever_their_partition_lies(self, tell: Tell) -> None:
        async def story(spread: Spread) -> None:
            await spread.define("orders", "first", "second", "first", "second", ordered=True)
            keys = [f"key{number}" for number in range(8)]
            for number in range(3):
                await spread.queues.produce("orders", [item(str(number), key=key) for key in keys])
            stats = (await spread.queues.stats("orders")).partitions
            assert sum(stats[number].total for number in (0, 2)) > 0
            assert sum(stats[number].total for number in (1, 3)) > 0
            worked: dict[str, list[str]] = {key: [] for key in keys}
            while sum(map(len, worked.values())) < 3 * len(keys):
                leased = await spread.queues.lease("orders", 10, client="worker", timeout=SOON)
                for one in leased.items:
                    worked[one.key].append(one.payload.decode())
                await spread.queues.complete("orders", leased.partition, [one.id for one in leased.items])
            assert worked == {key: ["0", "1", "2"] for key in keys}

        tell(story)

    def test_a_batch_of_several_keys_is_one_write_to_each_store(self, tell: Tell) -> None:
        async def story(spread: Spread) -> None:
            await spread.define("orders", "first", "second", "first", "second", ordered=True)
            await spread.queues.produce("orders", [item("x", key=f"key{number}") for number in range(50)])
            assert (spread.first.calls["put"], spread.second.calls["put"]) == (1, 1)

        tell(story)

    def test_a_rate_is_waited_for_in_whichever_store_there_are_items(self) -> None:
        async def whole() -> None:
            # Stores that no other process shares: nobody looks again by chance.
            stores = {"first": queue_store("memory:"), "second": queue_store("memory:")}
            async with Queues(stores, owns_stores=True) as queues:
                await queues.create("orders", lease_timeout=MINUTE, expire_timeout=HOUR, partitions=2, rate=8)
                for partition in (0, 1):
                    await queues.bring("orders", partition, [Fresh(b"x")] * 6)
                    taken = 0
                    async with asyncio.timeout(WOKEN_SECONDS):
                        while taken < 6:
                            taken += len((await queues.lease("orders", client="worker", timeout=SOON)).items)
                    assert taken == 6

        asyncio.run(whole())


@pytest.mark.parametrize("number", [0, 1], ids=["the first", "the second"])
class TestAStoreThatFails:
    def test_is_asked_last_and_its_items_come_when_it_is_back(self, tell: Tell, number: int) -> None:
        async def story(spread: Spread) -> None:
            await spread.define("orders", "first", "second")
            await spread.put(number, "a", "b", "c")
            await spread.put(1 - number, "d")
            bad = (spread.first, spread.second)[number]
            with bad.down():
                await spread.queues.produce("orders", [item("e")])
                assert await spread.take() == (1 - number, ["d", "e"])
                stats = await spread.queues.stats("orders")
                assert stats.failures[number] >= 2
                assert 1 - number not in stats.failures
                waiting = asyncio.create_task(spread.take())
                await spread.queues.produce("orders", [item("f")])
                async with asyncio.timeout(WOKEN_SECONDS):
                    assert await waiting == (1 - number, ["f"])
                waiting = asyncio.create_task(spread.take())
                await asyncio.sleep(0.05)
                assert not waiting.done()
            async with asyncio.timeout(WOKEN_SECONDS):
                assert await waiting == (number, ["a", "b", "c"])
            assert (await spread.queues.stats("orders")).failures == {}

        tell(story)

    def test_that_fails_only_while_it_leases_does_not_hide_the_others(self, tell: Tell, number: int) -> None:
        async def story(spread: Spread) -> None:
            await spread.define("orders", "first", "second")
            await spread.put(number, "a", "b", "c")
            await spread.put(1 - number, "d")
            (spread.first, spread.second)[number].fail("lease")
            assert await spread.take() == (1 - number, ["d"])
            assert (await spread.queues.stats("orders")).failures == {number: 1}
            assert await spread.take() == (number, ["a", "b", "c"])

        tell(story)

    @pytest.mark.parametrize("error", [StoreFull("no space is left"), StoreUnavailable("gone for lunch")], ids=["full", "down"])
    def test_that_takes_nothing_leaves_it_to_the_others(self, tell: Tell, number: int, error: Exception) -> None:
        async def story(spread: Spread) -> None:
            await spread.define("orders", "first", "second")
            await spread.put(1 - number, "a")
            (spread.first, spread.second)[number].fail("put", error)
            await spread.queues.produce("orders", [item("b")])
            assert await spread.take() == (1 - number, ["a", "b"])

        tell(story)

    def test_and_whose_answer_is_lost_is_not_taken_for_one_that_did_nothing(self, tell: Tell, number: int) -> None:
        async def story(spread: Spread) -> None:
            await spread.define("orders", "first", "second")
            await spread.put(1 - number, "a")
            (spread.first, spread.second)[number].lose_answer("put")
            with pytest.raises(AnswerLost):
                await spread.queues.produce("orders", [item("b")])
            assert sorted([*(await spread.take())[1], *(await spread.take())[1]]) == ["a", "b"]
            with pytest.raises(QueueEmpty):
                await spread.queues.lease("orders", client="late", timeout=AT_ONCE)

        tell(story)

    def test_does_not_keep_the_dying_of_the_others_from_their_rest(
        self, tell: Tell, number: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def story(spread: Spread) -> None:
            await spread.define("dead", "first", "second")
            await spread.define("orders", "first", "second", dead_queue="dead", max_attempts=1)
            for partition in (0, 1):
                await spread.put(partition, *(f"{partition}/{one}" for one in range(4)))
            held = [await spread.queues.lease("orders", 4, client="worker") for _ in range(2)]
            assert {leased.partition for leased in held} == {0, 1}
            bad = (spread.first, spread.second)[number]
            bad.fail("dying", times=3)
            for leased in held:
                await spread.queues.retry("orders", leased.partition, [Again(id=one.id, dead=True) for one in leased.items])
            assert "failed to read dying items of 'orders': gone for lunch" in caplog.text
            assert {f"{1 - number}/{one}" for one in range(4)} <= {one.payload.decode() for one in await spread.stored("dead")}

            async def are_moved() -> bool:
                return len(await spread.stored("dead")) == 8 and await spread.stored("orders") == []

            await until(are_moved)

        tell(story)

    def test_all_fail_and_that_is_said(self, tell: Tell, number: int) -> None:
        async def story(spread: Spread) -> None:
            await spread.define("orders", "first", "second")
            with spread.first.down(), spread.second.down():
                with pytest.raises(StoreUnavailable, match="gone for lunch"):
                    await spread.queues.produce("orders", [item("a")])
                with pytest.raises(StoreUnavailable, match="gone for lunch"):
                    await spread.take()
            await spread.put(number, "a")
            assert await spread.take() == (number, ["a"])

        tell(story)


class TestTheDeadQueueElsewhere:
    def test_has_the_item_under_the_position_at_which_it_died_and_nobody_else_has(self, tell: Tell) -> None:
        async def story(spread: Spread) -> None:
            await spread.define("dead", "second", "second")
            await spread.define("orders", "first", dead_queue="dead")
            given_up = await spread.give_up(*(str(number) for number in range(10)))
            dead = await spread.stored("dead")
            assert {one.source_id: (one.message_id, one.payload) for one in dead} == {
                one.id: (one.message_id, one.payload) for one in given_up
            }
            assert {(one.attempts, one.place, heard(one.story).queue) for one in dead} == {(0, Place.READY, "orders")}
            assert await spread.stored("orders") == []
            assert (spread.first.calls["move"], spread.second.calls["put"]) == (0, 1)

        tell(story)

    def test_is_down_and_the_item_stays_until_it_is_back(self, tell: Tell, caplog: pytest.LogCaptureFixture) -> None:
        async def story(spread: Spread) -> None:
            await spread.define("dead", "second")
            await spread.define("orders", "first", dead_queue="dead")
            with spread.second.down():
                (given_up,) = await spread.give_up("a")
                (stays,) = await spread.queues.items("orders", 0)
                assert (stays.id, stays.place) == (given_up.id, Place.DYING)
                assert "failed to produce to dead_queue 'dead': gone for lunch" in caplog.text
                # What waits is served all the same, and the dying item is not.
                await spread.queues.produce("orders", [item("b")])
                assert await spread.take() == (0, ["b"])

            # It is deleted only when the dead queue has it.
            async def is_moved() -> bool:
                return [one.payload for one in await spread.stored("orders")] == [b"b"]

            await until(is_moved)
            assert [one.source_id for one in await spread.stored("dead")] == [given_up.id]

        tell(story)

    def test_what_could_not_be_deleted_is_deleted_later_and_is_not_twice(
        self, tell: Tell, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def story(spread: Spread) -> None:
            await spread.define("dead", "second", "second", "second")
            await spread.define("orders", "first", dead_queue="dead")
            spread.first.fail("delete", times=3)
            given_up = await spread.give_up("a", "b", "c")
            assert "failed to delete from 'orders' what its dead_queue has: gone for lunch" in caplog.text

            async def is_clean() -> bool:
                return await spread.stored("orders") == []

            await until(is_clean)
            assert sorted(one.source_id for one in await spread.stored("dead")) == sorted(one.id for one in given_up)

        tell(story)

    @pytest.mark.parametrize("lost", ["put", "delete"])
    def test_whose_answer_was_lost_has_the_item_once(self, tell: Tell, lost: str) -> None:
        async def story(spread: Spread) -> None:
            await spread.define("dead", "second")
            await spread.define("orders", "first", dead_queue="dead")
            (spread.second if lost == "put" else spread.first).lose_answer(lost)
            (given_up,) = await spread.give_up("a")

            async def is_clean() -> bool:
                return await spread.stored("orders") == []

            await until(is_clean)
            assert [one.source_id for one in await spread.stored("dead")] == [given_up.id]

        tell(story)

    def test_serves_while_the_store_of_the_catalogue_is_down(self, tell: Tell) -> None:
        async def story(spread: Spread) -> None:
            await spread.define("orders", "second")
            with spread.first.down():
                await spread.queues.produce("orders", [item("a")])
                leased = await spread.queues.lease("orders", client="worker")
                await spread.queues.complete("orders", leased.partition, [one.id for one in leased.items])
            assert await spread.stored("orders") == []

        tell(story)


class TestSettings:
    def test_stores_have_the_names_of_the_settings_after_the_store_itself(self, tmp_path: Path) -> None:
        (tmp_path / "redrive.toml").write_text(
            f'store = "sqlite:{tmp_path}/own.db"\n[queues]\nfast = "memory:"\nlarge = "sqlite:{tmp_path}/large.db"\n'
        )

        async def whole() -> None:
            settings = load(environ={}, folder=tmp_path).settings
            async with opening.of(settings) as queues:
                made = await queues.create("orders", lease_timeout=MINUTE, expire_timeout=HOUR, partitions=4)
                assert made.partitions == ("store", "fast", "large", "store")
                for number in range(4):
                    await queues.produce("orders", [item(str(number))])
                assert [one.ready for one in (await queues.stats("orders")).partitions] == [1, 1, 1, 1]
            line = load(environ={"REDRIVE_QUEUES": f"fast=memory: large=sqlite:{tmp_path}/large.db"}, folder=tmp_path).settings
            assert list(line.queues) == ["fast", "large"]
            async with opening.of(settings) as queues:
                # What was in memory is gone, all else is there.
                assert [one.ready for one in (await queues.stats("orders")).partitions] == [1, 0, 1, 1]

        asyncio.run(whole())

    def test_a_store_that_is_not_named_any_more_is_one_clear_sentence(self, tmp_path: Path) -> None:
        own = f"sqlite:{tmp_path}/own.db"
        flags = {"store": own, "queues": f"large=sqlite:{tmp_path}/large.db"}

        async def whole() -> None:
            async with opening.of(load(flags, environ={}, folder=tmp_path).settings) as queues:
                await queues.create("orders", lease_timeout=MINUTE, expire_timeout=HOUR, partitions=2)
            forgetful = opening.of(load({"store": own}, environ={}, folder=tmp_path).settings)
            with pytest.raises(BadSettings) as caught:
                await forgetful.__aenter__()
            await forgetful.close()
            assert str(caught.value) == "queue 'orders' has partitions in store 'large': name it under [queues] in the settings"

        asyncio.run(whole())

    def test_a_queue_in_a_store_that_is_unknown_here_leaves_the_others_served(self, tmp_path: Path) -> None:
        own = f"sqlite:{tmp_path}/own.db"

        async def whole() -> None:
            stores = {"store": queue_store(own)}
            async with Queues(stores, owns_stores=True) as here:
                await here.create("orders", lease_timeout=MINUTE, expire_timeout=HOUR)
                async with Queues({"store": queue_store(own), "large": queue_store("memory:")}, owns_stores=True) as there:
                    await there.create("wide", lease_timeout=MINUTE, expire_timeout=HOUR, partitions=2)
                for _ in range(2):
                    with pytest.raises(BadSettings, match="queue 'wide' has partitions in store 'large'"):
                        await here.info("wide")
                    await here.produce("orders", [item("a")])
                    leased = await here.lease("orders", client="worker")
                    assert len(leased.items) == 1
                    await here.complete("orders", leased.partition, [leased.items[0].id])

        asyncio.run(whole())

    def test_a_store_of_an_unknown_kind_is_one_clear_sentence(self, tmp_path: Path) -> None:
        settings = load({"store": "memory:", "queues": "large=sqlight:x.db"}, environ={}, folder=tmp_path).settings
        with pytest.raises(UnknownScheme, match="sqlight"):
            wiring.queue_stores(settings, None)

    def test_no_store_for_queues_at_all_is_one_clear_sentence(self, tmp_path: Path) -> None:
        settings = load({"store": "opensearch://search:9200"}, environ={}, folder=tmp_path).settings
        with pytest.raises(BadSettings, match=r"keeps no queues; name a store for them under \[queues\] in the settings"):
            wiring.queue_stores(settings, None)

    def test_the_name_of_the_store_itself_is_taken(self, tmp_path: Path) -> None:
        settings = load({"store": "memory:", "queues": "store=memory:"}, environ={}, folder=tmp_path).settings
        with pytest.raises(
            BadSettings, match=r"^'store' under \[queues\] is the store of the letters itself; give memory: another"
        ):
            wiring.queue_stores(settings, None)
