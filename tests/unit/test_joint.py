"""Puts that meet share a call, and each is answered as if it had gone alone."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import datetime, timedelta
from typing import Any
from unittest.mock import ANY

import pytest

from redrive.backends.remote.joint import InTheWay, Joint, Load
from redrive.model.errors import AnswerLost, StoreFull, StoreUnavailable
from redrive.testing import START
from tests.unit.waiting import until


class Ferry:
    """Carries names over; the first one goes alone, and everybody else waits until it is let go."""

    def __init__(self, most: int = 1000) -> None:
        self.joint: Joint[str, str] = Joint(self._together, most_letters=most)
        self.may_go = asyncio.Event()
        self.alone: list[str] = []
        self.trips: list[Sequence[str]] = []
        self.error: Exception | None = None
        self.leaders_errors: dict[str, Exception] = {}
        self.in_the_way: list[str] = []
        """One after another, by each call."""
        self.may_land = asyncio.Event()
        self.may_land.set()

    async def carried(self, name: str, *, ids: str = "", size: int = 1, now: datetime | None = None) -> str:
        async with self.joint.turn(Load(name, ids or name, size, now)) as together:
            if together is not None:
                return together
            self.alone.append(name)
            await self.may_go.wait()
            if name in self.leaders_errors:
                raise self.leaders_errors[name]
            return f"{name} alone"

    async def _together(self, names: Sequence[str], now: datetime | None) -> tuple[str | None, InTheWay]:
        self.trips.append(names)
        await asyncio.sleep(0)
        await self.may_land.wait()
        if self.error is not None:
            raise self.error
        if self.in_the_way:
            return f"{self.in_the_way[0]} is there", self.in_the_way.pop(0)
        return "+".join(names), ()


def played(scene: Callable[[Ferry], Coroutine[Any, Any, None]], most: int = 1000) -> None:
    async def whole() -> None:
        async with asyncio.timeout(30):
            await scene(Ferry(most))

    asyncio.run(whole())


async def gathered(ferry: Ferry, *rides: Awaitable[str]) -> list[Any]:
    """All of them behind one that is under way already, which is then let go; what each was answered, or why not."""
    first = asyncio.create_task(ferry.carried("z"))
    await until(lambda: ferry.alone)
    tasks = [asyncio.ensure_future(ride) for ride in rides]
    for _ in range(5):
        await asyncio.sleep(0)
    ferry.may_go.set()
    assert await first == "z alone"
    return await asyncio.gather(*tasks, return_exceptions=True)


def test_who_meets_nobody_goes_alone_at_once() -> None:
    async def scene(ferry: Ferry) -> None:
        ferry.may_go.set()
        assert [await ferry.carried(name) for name in "ab"] == ["a alone", "b alone"]
        assert not ferry.trips

    played(scene)


def test_those_who_come_meanwhile_go_together() -> None:
    async def scene(ferry: Ferry) -> None:
        assert await gathered(ferry, *(ferry.carried(name) for name in "abc")) == ["a+b+c"] * 3
        assert ferry.trips == [["a", "b", "c"]]
        # And then there is nobody to wait for.
        assert await ferry.carried("d") == "d alone"

    played(scene)


def test_the_same_letter_is_never_twice_in_one_call() -> None:
    async def scene(ferry: Ferry) -> None:
        rides = ferry.carried("a", ids="12"), ferry.carried("b", ids="23"), ferry.carried("c", ids="4")
        assert await gathered(ferry, *rides) == ["a+c", "b", "a+c"]

    played(scene)


def test_a_call_has_one_instant_and_is_not_too_large() -> None:
    async def scene(ferry: Ferry) -> None:
        later = START + timedelta(seconds=1)
        rides = (
            ferry.carried("a", ids="12", now=START),
            ferry.carried("b", now=later),
            ferry.carried("c", ids="3", now=START),
            ferry.carried("d", ids="456", now=later),
        )
        await gathered(ferry, *rides)
        assert ferry.trips == [["a", "c"], ["b"], ["d"]]

    played(scene, most=3)


def test_what_is_left_behind_for_its_size_leaves_room_for_others() -> None:
    async def scene(ferry: Ferry) -> None:
        await gathered(ferry, *(ferry.carried(name, size=1_000_000) for name in "abcdefghi"), ferry.carried("j"))
        assert ferry.trips == [[*"abcdefgh", "j"], ["i"]]

    played(scene)


def test_who_brings_much_keeps_nobody_waiting_and_is_nobodys_outage() -> None:
    async def scene(ferry: Ferry) -> None:
        ferry.leaders_errors["large"] = AnswerLost("it took too long")
        large = asyncio.create_task(ferry.carried("large", size=9_000_000))
        a, b = (asyncio.create_task(ferry.carried(name)) for name in "ab")
        larger = asyncio.create_task(ferry.carried("larger", size=90_000_000))
        await until(lambda: ferry.alone == ["large", "a", "larger"])
        ferry.may_go.set()
        assert await asyncio.gather(a, b, larger) == ["a alone", "b", "larger alone"]
        with pytest.raises(AnswerLost):
            await large

    played(scene)


def test_who_gives_up_waiting_is_not_carried() -> None:
    async def scene(ferry: Ferry) -> None:
        async def impatient() -> str:
            async with asyncio.timeout(0):
                return await ferry.carried("b")

        answers = await gathered(ferry, ferry.carried("a"), impatient(), ferry.carried("c"))
        assert answers[0] == answers[2] == "a+c"
        assert isinstance(answers[1], TimeoutError)

    played(scene)


def test_a_letter_that_is_in_the_way_does_not_keep_others_from_going_together() -> None:
    async def scene(ferry: Ferry) -> None:
        ferry.in_the_way = ["b"]
        assert await gathered(ferry, *(ferry.carried(name) for name in "abc")) == ["a+c", "b is there", "a+c"]
        assert ferry.trips == [["a", "b", "c"], ["a", "c"]]

    played(scene)


def test_those_without_whom_the_others_go_are_tried_no_more() -> None:
    async def scene(ferry: Ferry) -> None:
        ferry.in_the_way = ["ab"]
        assert await gathered(ferry, *(ferry.carried(name) for name in "ab")) == ["ab is there"] * 2
        assert ferry.trips == [["a", "b"]]

    played(scene)


def test_who_goes_without_others_hears_of_what_came_meanwhile() -> None:
    async def scene(ferry: Ferry) -> None:
        ferry.in_the_way = ["b", "c"]
        assert await gathered(ferry, *(ferry.carried(name) for name in "abc")) == ["c is there", "b is there", "c is there"]

    played(scene)


def test_nobody_is_refused_for_anothers_letters() -> None:
    async def scene(ferry: Ferry) -> None:
        ferry.error = StoreFull("one of them is too large")
        assert await gathered(ferry, ferry.carried("a"), ferry.carried("b")) == ["a alone", "b alone"]

    played(scene)


@pytest.mark.parametrize("kind", [StoreUnavailable, AnswerLost])
def test_an_outage_is_told_to_each_by_an_error_of_its_own(kind: type[StoreUnavailable]) -> None:
    async def scene(ferry: Ferry) -> None:
        ferry.error = kind("nobody answers")
        answers = await gathered(ferry, ferry.carried("a"), ferry.carried("b"))
        assert [(type(one), str(one)) for one in answers] == [(kind, "nobody answers")] * 2
        assert answers[0] is not answers[1]
        assert ferry.alone == ["z"], "what may have been done is not done again"
        ferry.error = None
        assert await ferry.carried("c") == "c alone"

    played(scene)


def test_who_waits_hears_of_an_outage_at_once_and_that_nothing_was_sent() -> None:
    """However many wait: nobody sits through one call after another that gets no answer."""

    async def scene(ferry: Ferry) -> None:
        ferry.error = AnswerLost("no answer in time")
        answers = await gathered(ferry, *(ferry.carried(name) for name in "abcdef"))
        assert ferry.trips == [["a", "b"]]
        assert [type(one) for one in answers] == [AnswerLost] * 2 + [StoreUnavailable] * 4
        assert {str(one) for one in answers[2:]} == {"not sent, for what was sent before failed: no answer in time"}
        ferry.error = None
        assert await ferry.carried("g") == "g alone"

    played(scene, most=2)


def test_who_waits_for_one_that_goes_alone_into_an_outage_hears_of_it() -> None:
    async def scene(ferry: Ferry) -> None:
        ferry.leaders_errors["a"] = AnswerLost("no answer in time")
        first, *others = [asyncio.create_task(ferry.carried(name)) for name in "abc"]
        await until(lambda: ferry.alone)
        ferry.may_go.set()
        answers = await asyncio.gather(first, *others, return_exceptions=True)
        assert [type(one) for one in answers] == [AnswerLost, StoreUnavailable, StoreUnavailable]
        assert ferry.trips == []
        assert await ferry.carried("d") == "d alone"

    played(scene)


def test_what_is_wrong_with_one_that_goes_alone_does_not_concern_those_who_wait() -> None:
    async def scene(ferry: Ferry) -> None:
        ferry.leaders_errors["a"] = StoreFull("it is too large")
        first, *others = [asyncio.create_task(ferry.carried(name)) for name in "abc"]
        await until(lambda: ferry.alone)
        ferry.may_go.set()
        with pytest.raises(StoreFull):
            await first
        assert await asyncio.gather(*others) == ["b+c"] * 2

    played(scene)


def test_who_gives_up_while_aboard_leaves_the_others_there() -> None:
    async def scene(ferry: Ferry) -> None:
        ferry.may_land.clear()
        first = asyncio.create_task(ferry.carried("z"))
        await until(lambda: ferry.alone)
        staying, leaving = (asyncio.create_task(ferry.carried(name)) for name in "ab")
        await asyncio.sleep(0)
        ferry.may_go.set()
        await until(lambda: ferry.trips)
        leaving.cancel()
        ferry.may_land.set()
        assert await asyncio.gather(first, staying, leaving, return_exceptions=True) == ["z alone", "a+b", ANY]
        assert leaving.cancelled()

    played(scene)


def test_an_event_loop_that_ends_leaves_nobody_waiting() -> None:
    ferry: list[Ferry] = []
    rides: list[asyncio.Task[str]] = []

    async def scene() -> None:
        ferry.append(Ferry(most=1))
        ferry[0].may_land.clear()
        rides.extend(asyncio.create_task(ferry[0].carried(name)) for name in "zabc")
        await until(lambda: ferry[0].alone)
        ferry[0].may_go.set()
        await until(lambda: ferry[0].trips)

    asyncio.run(scene())
    assert [ride.cancelled() for ride in rides] == [False, True, True, True]
    assert ferry[0].trips == [["a"]]


def test_no_event_loop_is_kept_alive() -> None:
    async def together(names: Sequence[str], now: datetime | None) -> tuple[str, InTheWay]:
        return "+".join(names), ()

    joint: Joint[str, str] = Joint(together)

    async def ride(name: str) -> str:
        async with joint.turn(Load(name, name, 1)) as answer:
            await asyncio.sleep(0)
            return answer or f"{name} alone"

    async def scene() -> weakref.ref[asyncio.AbstractEventLoop]:
        assert await asyncio.gather(*(ride(name) for name in "abc")) == ["a alone", "b+c", "b+c"]
        return weakref.ref(asyncio.get_running_loop())

    loop = asyncio.run(scene())
    gc.collect()
    assert loop() is None
