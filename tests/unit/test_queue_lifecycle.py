"""Who looks after queues: it wakes when something is due and at no other time, and those who wait are served in their order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, cast

import pytest

from redrive.backends.memory.queues import MemoryQueues
from redrive.model.errors import QueueClosing, QueueEmpty
from redrive.model.instant import micros
from redrive.model.item import Again, Leased
from redrive.ports.queues import QueueStore
from redrive.queues import Queues, item
from redrive.queues.line import Burials, WaitingRoom
from redrive.testing.clock import ManualClock
from tests.unit.queue_use import AT_ONCE, HOUR, MINUTE, SOON, WOKEN_SECONDS, Troubled, Use
from tests.unit.waiting import until

SECOND = timedelta(seconds=1)


class Looked(Use):
    """Queues on a store in memory whose calls are counted."""

    store: Troubled = cast("Troubled", None)

    async def at_rest(self) -> None:
        """Wait until nobody asks the store anything."""
        before = -1
        while (now := self.store.calls.total()) != before:
            before = now
            for _ in range(20):
                await asyncio.sleep(0)

    async def asked(self, *verbs: str, during: Callable[[], Awaitable[None]] | None = None) -> int:
        """How often these verbs are called while something is done, and afterwards until nothing happens any more."""
        await self.at_rest()
        before = [self.store.calls[verb] for verb in verbs]
        if during:
            await during()
        await self.at_rest()
        return sum(self.store.calls[verb] for verb in verbs) - sum(before)


@asynccontextmanager
async def looked() -> AsyncIterator[Looked]:
    clock = ManualClock()
    store = Troubled(MemoryQueues())
    async with Queues({"store": cast("QueueStore", store)}, clock=clock) as queues:
        yield Looked(queues, queues, clock, store=store)


def told(story: Callable[[Looked], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with looked() as use:
            await story(use)

    asyncio.run(whole())


class TestTheLifecycle:
    def test_nothing_is_asked_while_nothing_is_due(self) -> None:
        async def story(use: Looked) -> None:
            await use.define()
            await use.client.produce("orders", [item("a")])
            await use.client.lease("orders", client="worker")
            await use.at_rest()
            before = use.store.calls.copy()
            await asyncio.sleep(0.2)  # Several of the shortest rests: whoever polls would show.
            assert use.store.calls == before

        told(story)

    def test_it_wakes_at_the_instant_that_is_due_and_sweeps_once(self) -> None:
        async def story(use: Looked) -> None:
            await use.define()
            await use.client.produce("orders", [item("a")])
            await use.client.lease("orders", client="worker")

            async def almost() -> None:
                use.clock.advance(MINUTE - SECOND)

            assert await use.asked("sweep", during=almost) == 0

            async def on_time() -> None:
                use.clock.advance(SECOND)

            assert await use.asked("sweep", during=on_time) == 1
            assert [stored.attempts for stored in await use.stored()] == [1]
            assert (await use.client.stats("orders")).partitions[0].ready == 1

        told(story)

    def test_what_is_due_earlier_than_all_else_is_not_slept_through(self) -> None:
        async def story(use: Looked) -> None:
            await use.define()
            for hours in (3, 1, 2):
                await use.client.produce("orders", [item(f"in {hours} h", at=use.clock.now() + hours * HOUR)])
            for expected in ("in 1 h", "in 2 h", "in 3 h"):
                use.clock.advance(HOUR)
                partition, items = await use.take()
                assert [one.payload.decode() for one in items] == [expected]
                await use.client.complete("orders", partition, [one.id for one in items])

        told(story)

    def test_a_real_instant_is_waited_for_and_not_polled(self) -> None:
        async def whole() -> None:
            store = Troubled(MemoryQueues())
            async with Queues({"store": cast("QueueStore", store)}) as queues:
                await queues.create("orders", lease_timeout=timedelta(milliseconds=300), expire_timeout=HOUR)
                await queues.produce("orders", [item("a")])
                first = await queues.lease("orders", client="one")
                second = await queues.lease("orders", client="two", timeout=SOON)
                assert [one.attempts for one in first.items + second.items] == [1, 2]
                assert store.calls["sweep"] <= 2
                assert store.calls["next_due"] <= 10

        asyncio.run(whole())

    @pytest.mark.parametrize("behind", [timedelta(seconds=30), timedelta(hours=-1)], ids=["behind", "ahead"])
    def test_a_store_whose_clock_is_wrong_does_not_make_it_spin(self, behind: timedelta) -> None:
        class Skewed(Troubled):
            def __getattr__(self, verb: str) -> Any:
                call = super().__getattr__(verb)
                if verb not in ("put", "lease", "sweep", "retry"):
                    return call

                async def skewed(*args: Any, **kwargs: Any) -> Any:
                    return await call(*args, **{**kwargs, "now": clock.now() - behind})

                return skewed

        clock = ManualClock()

        async def whole() -> None:
            store = Skewed(MemoryQueues())
            async with Queues({"store": cast("QueueStore", store)}, clock=clock) as queues:
                await queues.create("orders", lease_timeout=SECOND, expire_timeout=24 * HOUR)
                await queues.produce("orders", [item("a")])
                await queues.lease("orders", client="worker")
                clock.advance(SECOND)
                await asyncio.sleep(0.5)
                # Rests of 0.1, 0.2 and 0.4 s: a handful of looks, where one that spins makes thousands.
                assert store.calls["sweep"] <= 6

                async def is_ready() -> bool:
                    return (await queues.stats("orders")).partitions[0].ready == 1

                clock.advance(abs(behind))
                await until(is_ready)

        asyncio.run(whole())

    def test_what_cannot_be_moved_is_tried_again_with_growing_rests_and_delays_nobody(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def story(use: Looked) -> None:
            await use.define("dead")
            await use.define("stuck", dead_queue="dead")
            await use.define("lively")
            use.store.fails = {"move"}
            await use.client.produce("stuck", [item("a")])
            leased = await use.client.lease("stuck", client="worker")
            begun = time.monotonic()
            await use.client.retry("stuck", 0, [Again(id=leased.items[0].id, dead=True)])
            await until(lambda: use.store.calls["move"] >= 5)
            # At once by `retry`, at once by the lifecycle, then after 0.1, 0.3 and 0.7 s; later on a busy machine, and never sooner.
            assert time.monotonic() - begun > 0.65
            assert "failed to produce to dead_queue 'dead': gone for lunch" in caplog.text

            await use.client.produce("lively", [item("b")])
            await use.client.lease("lively", client="worker")
            use.clock.advance(MINUTE)
            # Without any time that passes: it waits for no rest.
            await use.at_rest()
            assert (await use.client.stats("lively")).partitions[0].ready == 1
            assert [one.attempts for one in (await use.take("lively"))[1]] == [2]

            use.store.fails = set()

            async def is_moved() -> bool:
                return len(await use.stored("dead")) == 1

            await until(is_moved)
            assert await use.stored("stuck") == []
            await asyncio.sleep(0.15)  # It was not yet known to be done when it was.
            assert await use.asked("move", "sweep", "next_due") == 0

        told(story)

    def test_more_stuck_queues_than_are_named_at_a_time_hide_no_other(self) -> None:
        async def story(use: Looked) -> None:
            await use.define("dead")
            for number in range(105):
                await use.define(f"stuck{number}", dead_queue="dead")
            await use.define("lively")
            await use.client.delete("dead", force=True)
            for number in range(105):
                await use.client.produce(f"stuck{number}", [item("a")])
                leased = await use.client.lease(f"stuck{number}", client="worker")
                await use.client.retry(f"stuck{number}", 0, [Again(id=leased.items[0].id, dead=True)])
            await use.client.produce("lively", [item("b")])
            await use.client.lease("lively", client="worker")
            use.clock.advance(MINUTE)
            async with asyncio.timeout(WOKEN_SECONDS):
                assert [one.attempts for one in (await use.take("lively"))[1]] == [2]

        told(story)

    def test_a_change_that_could_not_be_treated_is_treated_later(self) -> None:
        async def story(use: Looked) -> None:
            await use.define("dead", expire_timeout=HOUR)
            await use.client.produce("dead", [item("a")])
            await use.define("orders", dead_queue="dead")
            use.clock.advance(2 * HOUR)
            await use.at_rest()
            assert len(await use.stored("dead")) == 1
            use.store.fails = {"sweep"}
            # From now on it is a queue like others, and its items expire.
            await use.client.update("orders", dead_queue="")
            await use.at_rest()
            use.store.fails = set()

            async def is_expired() -> bool:
                return await use.stored("dead") == []

            await until(is_expired)

        told(story)


class TestBurials:
    def test_those_who_come_while_one_is_under_way_share_the_next(self) -> None:
        async def whole() -> None:
            burials, begun, gate = Burials(), list[int](), asyncio.Event()

            async def bury() -> bool:
                begun.append(len(begun))
                await gate.wait()
                return len(begun) > 1

            tasks = [asyncio.create_task(burials.share(bury)) for _ in range(10)]
            await _settled()
            assert begun == [0]
            gate.set()
            assert await asyncio.gather(*tasks) == [False] + [True] * 9
            assert begun == [0, 1]

        asyncio.run(whole())

    def test_one_that_is_broken_off_is_no_answer_for_the_others(self) -> None:
        async def whole() -> None:
            burials, gate = Burials(), asyncio.Event()

            async def bury() -> bool:
                await gate.wait()
                return True

            first, second, third = (asyncio.create_task(burials.share(bury)) for _ in range(3))
            await _settled()
            first.cancel()
            await _settled()
            second.cancel()
            await _settled()
            gate.set()
            # The one that it shared came to no end: it is told to come again.
            assert await third is False
            assert await burials.share(bury) is True

        asyncio.run(whole())


async def _waiting(room: WaitingRoom, name: str, heard: list[str], ticket: int | None = None) -> None:
    await room.wait(room.arrivals, 10, room.ticket() if ticket is None else ticket)
    heard.append(name)


async def _settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class TestTheWaitingRoom:
    def test_who_came_first_is_woken_first_and_alone(self) -> None:
        async def whole() -> None:
            room, heard = WaitingRoom(), list[str]()
            tasks = [asyncio.create_task(_waiting(room, name, heard)) for name in "abc"]
            await _settled()
            assert len(room) == 3
            for expected in ("a", "ab", "abc"):
                room.wake()
                await _settled()
                assert "".join(heard) == expected
            await asyncio.gather(*tasks)
            assert len(room) == 0

        asyncio.run(whole())

    def test_a_cancelled_waiter_passes_its_wake_on(self) -> None:
        async def whole() -> None:
            room, heard = WaitingRoom(), list[str]()
            first, second = (asyncio.create_task(_waiting(room, name, heard)) for name in "ab")
            await _settled()
            room.wake()
            first.cancel()
            await asyncio.wait([first, second])
            assert first.cancelled()
            assert heard == ["b"]

        asyncio.run(whole())

    def test_who_was_cancelled_before_is_passed_over(self) -> None:
        async def whole() -> None:
            room, heard = WaitingRoom(), list[str]()
            first, second = (asyncio.create_task(_waiting(room, name, heard)) for name in "ab")
            await _settled()
            first.cancel()
            await _settled()
            assert len(room) == 1
            room.wake()
            await second
            assert heard == ["b"]

        asyncio.run(whole())

    def test_who_was_woken_for_nothing_keeps_the_place(self) -> None:
        async def whole() -> None:
            room, heard = WaitingRoom(), list[str]()
            tickets = {name: room.ticket() for name in "abcd"}
            tasks = [asyncio.create_task(_waiting(room, name, heard, tickets[name])) for name in "abcd"]
            await _settled()
            room.wake()
            room.wake()
            await _settled()
            assert heard == ["a", "b"]
            # They found nothing and wait again, the second before the first; another has come meanwhile.
            tasks += [asyncio.create_task(_waiting(room, "e", heard))]
            tasks += [asyncio.create_task(_waiting(room, name, heard, tickets[name])) for name in "ba"]
            await _settled()
            heard.clear()
            for _ in range(5):
                room.wake()
            await asyncio.gather(*tasks)
            assert heard == ["a", "b", "c", "d", "e"]

        asyncio.run(whole())

    def test_what_came_after_a_look_is_not_waited_for(self) -> None:
        async def whole() -> None:
            room = WaitingRoom()
            seen = room.arrivals
            room.wake()
            await asyncio.wait_for(room.wait(seen, 10, room.ticket()), 1)
            seen = room.arrivals
            room.wake_all()
            await asyncio.wait_for(room.wait(seen, 10, room.ticket()), 1)

        asyncio.run(whole())

    def test_nobody_waits_in_a_closed_room(self) -> None:
        async def whole() -> None:
            room = WaitingRoom()
            waiting = asyncio.create_task(room.wait(room.arrivals, 10, room.ticket()))
            await _settled()
            room.close()
            for wait in (waiting, room.wait(room.arrivals, 10, room.ticket())):
                with pytest.raises(QueueClosing):
                    await wait

        asyncio.run(whole())


class TestThoseWhoWait:
    def test_a_thousand_are_served_in_the_order_they_came_and_few_more_looks_are_made(self) -> None:
        async def story(use: Looked) -> None:
            await use.define()
            order: list[int] = []

            async def wait(number: int) -> None:
                leased = await use.client.lease("orders", 1, client=str(number), timeout=SOON)
                assert len(leased.items) == 1
                order.append(number)

            tasks = []
            for number in range(1000):
                tasks.append(asyncio.create_task(wait(number)))
                await asyncio.sleep(0)
            assert (await use.client.stats("orders")).leasing == 1000
            before = use.store.calls["lease"]
            for start in range(0, 1000, 100):
                await use.client.produce("orders", [item(str(start + number)) for number in range(100)])
            await asyncio.gather(*tasks)
            assert order == list(range(1000))
            # Each looks once, and of each hundred one more that finds nothing.
            assert use.store.calls["lease"] - before <= 1020

        told(story)

    def test_who_leaves_leaves_the_item_to_the_next(self) -> None:
        async def story(use: Looked) -> None:
            await use.define()
            first = asyncio.create_task(use.take(client="first"))
            await use.at_rest()
            second = asyncio.create_task(use.take(client="second"))
            await use.at_rest()
            await use.client.produce("orders", [item("a")])
            first.cancel()
            async with asyncio.timeout(WOKEN_SECONDS):
                assert [one.payload for one in (await second)[1]] == [b"a"]

        told(story)

    @pytest.mark.parametrize("how", ["deleted and created", "created while one looks"])
    def test_who_waits_at_a_queue_that_is_made_again_is_served_by_the_new_one(self, how: str) -> None:
        async def story(use: Looked) -> None:
            await use.define()
            waiting = asyncio.create_task(use.take())
            if how == "deleted and created":
                await use.at_rest()
            await use.client.delete("orders")
            await use.define()
            await use.at_rest()
            await use.client.produce("orders", [item("of the new one")])
            async with asyncio.timeout(WOKEN_SECONDS):
                assert [one.payload for one in (await waiting)[1]] == [b"of the new one"]

        told(story)


class TestRates:
    def test_a_waiting_lease_is_woken_when_the_rate_allows(self) -> None:
        async def whole() -> None:
            async with Queues({"store": MemoryQueues()}) as queues:
                await queues.create("orders", lease_timeout=MINUTE, expire_timeout=HOUR, rate=4)
                await queues.produce("orders", [item(str(number)) for number in range(6)])
                loop = asyncio.get_running_loop()
                begun = loop.time()
                taken: list[Leased] = []
                while sum(len(leased.items) for leased in taken) < 6:
                    taken.append(await queues.lease("orders", 10, client="worker", timeout=SOON))
                assert [one.payload.decode() for leased in taken for one in leased.items] == [str(number) for number in range(6)]
                assert len(taken[0].items) == 4
                assert 0.4 <= loop.time() - begun < WOKEN_SECONDS

        asyncio.run(whole())

    @pytest.mark.parametrize("leaves", ["cancelled", "out of time"])
    def test_when_the_first_who_waits_leaves_the_next_watches_for_the_rate(self, leaves: str) -> None:
        # By a clock that stands still while they come and go: on a busy machine the first might get what the rate allows meanwhile.
        async def story(use: Looked) -> None:
            await use.define(rate=2)
            await use.client.produce("orders", [item(str(number)) for number in range(3)])
            assert len((await use.client.lease("orders", 10, client="greedy")).items) == 2
            patience = SOON if leaves == "cancelled" else timedelta(milliseconds=100)
            first = asyncio.create_task(use.client.lease("orders", client="first", timeout=patience))
            await use.at_rest()
            second = asyncio.create_task(use.client.lease("orders", client="second", timeout=SOON))
            await use.at_rest()
            if leaves == "cancelled":
                first.cancel()
            with pytest.raises(asyncio.CancelledError if leaves == "cancelled" else QueueEmpty):
                await first
            use.clock.advance(SECOND)
            async with asyncio.timeout(WOKEN_SECONDS):
                assert [one.payload for one in (await second).items] == [b"2"]

        told(story)


class TestWhatCountsAmongItems:
    def test_items_of_a_key_come_one_at_a_time_and_in_order(self) -> None:
        async def story(use: Looked) -> None:
            await use.define(ordered=True, partitions=3)
            keys = [f"key{number}" for number in range(7)]
            for number in range(4):
                await use.client.produce("orders", [item(f"{key}/{number}", key=key) for key in keys])
            worked: dict[str, list[str]] = {key: [] for key in keys}
            while sum(map(len, worked.values())) < 4 * len(keys):
                partition, items = await use.take(limit=100)
                assert len({one.key for one in items}) == len(items)
                for one in items:
                    worked[one.key].append(one.payload.decode())
                await use.client.complete("orders", partition, [one.id for one in items])
            assert worked == {key: [f"{key}/{number}" for number in range(4)] for key in keys}

        told(story)

    def test_a_lease_that_waits_for_the_next_of_a_key_gets_it_when_the_one_before_is_done(self) -> None:
        async def story(use: Looked) -> None:
            await use.define(ordered=True)
            await use.client.produce("orders", [item("first", key="k"), item("second", key="k")])
            partition, (first,) = await use.take()
            waiting = asyncio.create_task(use.take(client="other"))
            await use.at_rest()
            assert not waiting.done()
            await use.client.complete("orders", partition, [first.id])
            async with asyncio.timeout(WOKEN_SECONDS):
                assert [one.payload for one in (await waiting)[1]] == [b"second"]

        told(story)

    def test_a_reference_is_taken_once_within_its_time_whatever_the_partition(self) -> None:
        async def story(use: Looked) -> None:
            await use.define(dedupe=MINUTE, partitions=3)

            async def total() -> int:
                return sum(one.total for one in (await use.client.stats("orders")).partitions)

            for _ in range(3):
                await use.client.produce("orders", [item("x", reference=f"r{number}") for number in range(8)])
            assert await total() == 8
            await use.client.produce("orders", [item("x"), item("x")])
            assert await total() == 10
            use.clock.advance(MINUTE + SECOND)
            await use.client.produce("orders", [item("x", reference="r0")])
            assert await total() == 11

        told(story)

    def test_a_higher_priority_goes_first_and_of_equals_the_older(self) -> None:
        async def story(use: Looked) -> None:
            await use.define()
            for name, priority in (("a", 0), ("b", 9), ("c", 3), ("d", 9), ("e", 0)):
                await use.client.produce("orders", [item(name, priority=priority)])
            taken = [(await use.take(limit=1))[1][0].payload.decode() for _ in range(5)]
            assert taken == ["b", "d", "c", "a", "e"]
            with pytest.raises(QueueEmpty):
                await use.client.lease("orders", client="late", timeout=AT_ONCE)

        told(story)

    def test_the_dead_keep_their_story_and_their_position(self) -> None:
        async def story(use: Looked) -> None:
            await use.define("dead")
            await use.define(dead_queue="dead", max_attempts=1)
            await use.client.produce("orders", [item("a")])
            for _ in range(2):
                _, (leased,) = await use.take()
                use.clock.advance(MINUTE)
                await use.at_rest()
            (dead,) = await use.stored("dead")
            assert (dead.source_id, dead.message_id) == (leased.id, leased.message_id)
            assert dead.created_us == micros(use.clock.now())
            assert await use.stored() == []

        told(story)
