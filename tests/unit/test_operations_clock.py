"""The wall clock is set, by hours or days, while operations wait, run, are paused, or their letters are leased."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from redrive import Message, Status, StoreUnavailable, Tempo
from redrive.engine.dead_letters import DeadLetters
from redrive.engine.dispatcher import Dispatcher
from redrive.model.operation import Entry, OperationStatus
from redrive.model.query import EVERYTHING
from redrive.ports.inline import drive
from redrive.wiring import store
from tests.unit.mortal import LEASE, Door, Endpoint, Life, Watched, living
from tests.unit.virtual_time import VirtualLoop, VirtualTime, told

HOUR = timedelta(hours=1)
JUMPS = [3 * HOUR, -3 * HOUR, 120 * HOUR, -120 * HOUR]
LETTERS = 12


class Scene:
    """Some letters, a target that takes a second for each call, and redrive on a clock that can be set."""

    def __init__(self, time: VirtualTime, url: str) -> None:
        self.time = time
        self.opened = store(url)
        self.is_steady = not url.startswith("memory")
        """Does the store's clock run on when the wall clock is put back?"""
        self.watched = Watched(self.opened.letters, self.opened.desk, time.steady if self.is_steady else time.now)
        self.endpoint = Endpoint(self.watched)
        self.endpoint.is_strict = False
        self.endpoint.seconds = 1.0
        self.life = Life(0)
        self.dlq = self.another(self.life)
        self.ids: list[UUID] = []

    def another(self, life: Life) -> DeadLetters:
        return living(self.watched.letters, self.watched.desk, life)

    async def filled(self) -> None:
        for number in range(LETTERS):
            message = Message(body=b"x", id=str(number), key=b"ab"[number % 2 : number % 2 + 1])
            self.ids.append((await self.dlq.capture(message, ValueError("bad"), source="orders")).letter.id)

    def door(self, operation: UUID, life: Life | None = None) -> Door:
        return Door(self.endpoint, life or self.life, operation)

    async def planned(self, **tempo: Any) -> UUID:
        plan = await self.dlq.operations.plan(self.door(UUID(int=0)), query=EVERYTHING, tempo=Tempo(**tempo))
        assert plan.total == LETTERS
        return plan.operation.id

    async def planned_again(self, **tempo: Any) -> UUID:
        """What was left."""
        plan = await self.dlq.operations.plan(self.door(UUID(int=0)), query=EVERYTHING, tempo=Tempo(**tempo))
        return plan.operation.id

    async def run(self, id: UUID) -> None:
        await self.dlq.operations.run(id, to=self.door(id))

    async def entries(self, id: UUID) -> dict[Entry, int]:
        operation = await self.dlq.operations.get(id)
        assert operation.status is OperationStatus.FINISHED, operation.why
        assert operation.entries == await self.dlq.desk.tally(id)
        return operation.entries

    async def ensure_nothing_is_lost(self) -> None:
        """Each letter is there; what is done has worked, and what is not can be sent."""
        for letter in await self.dlq.letters.get(self.ids):
            assert letter is not None
            if letter.status is Status.COMPLETED:
                assert (letter.id, letter.generation) in self.endpoint.worked
            else:
                assert letter.status is Status.PENDING


Story = Callable[[Scene], Awaitable[None]]
Tell = Callable[[Story], None]


@pytest.fixture(params=["memory", "sqlite"])
def tell(request: pytest.FixtureRequest, tmp_path: Path) -> Tell:
    def telling(story: Story) -> None:
        time = VirtualTime()
        with told(time):
            scene = Scene(time, "memory:" if request.param == "memory" else f"sqlite:{tmp_path}/redrive.db")
            loop = VirtualLoop(time)
            try:
                loop.run_until_complete(_whole(scene, story))
            finally:
                drive(scene.opened.letters.close())
                loop.close()

    return telling


async def _whole(scene: Scene, story: Story) -> None:
    await scene.filled()
    await story(scene)


@pytest.mark.parametrize("jump", JUMPS, ids=str)
@pytest.mark.parametrize("tempo", [{"batch": 4}, {"rate": 3.0}, {"batch": 60}], ids=str)
def test_an_operation_ends_although_the_clock_is_set_while_it_runs(tell: Tell, jump: timedelta, tempo: dict[str, Any]) -> None:
    async def story(scene: Scene) -> None:
        id = await scene.planned(**tempo)
        running = asyncio.create_task(scene.run(id))
        await asyncio.sleep(0.5)
        scene.time.jump(jump)
        await running
        assert await scene.entries(id) == {Entry.CONFIRMED: LETTERS}
        assert set(scene.endpoint.arrived.values()) == {1}
        await asyncio.sleep(2 * LEASE.total_seconds())
        await scene.ensure_nothing_is_lost()
        assert {letter.status for letter in await scene.dlq.letters.get(scene.ids) if letter} == {Status.COMPLETED}

    tell(story)


@pytest.mark.parametrize("jump", JUMPS, ids=str)
def test_what_waits_for_its_key_is_not_sent_after_its_claim_ran_out(tell: Tell, jump: timedelta) -> None:
    async def story(scene: Scene) -> None:
        id = await scene.planned(batch=60, keeps_order=True)
        running = asyncio.create_task(scene.run(id))
        await asyncio.sleep(0.5)
        scene.time.jump(jump)
        await running
        entries = await scene.entries(id)
        assert sum(entries.values()) == LETTERS
        assert set(entries) <= {Entry.CONFIRMED, Entry.SKIPPED}
        assert set(scene.endpoint.arrived.values()) == {1}
        await asyncio.sleep(2 * LEASE.total_seconds())
        await scene.ensure_nothing_is_lost()
        again = await scene.planned_again(keeps_order=True)
        await scene.run(again)
        assert {letter.status for letter in await scene.dlq.letters.get(scene.ids) if letter} == {Status.COMPLETED}

    tell(story)


@pytest.mark.parametrize("jump", JUMPS, ids=str)
def test_what_is_paused_is_gone_on_with_on_another_day(tell: Tell, jump: timedelta) -> None:
    async def story(scene: Scene) -> None:
        id = await scene.planned(rate=3.0)
        running = asyncio.create_task(scene.run(id))
        await asyncio.sleep(2)
        await scene.dlq.operations.pause(id)
        await running
        assert 0 < len(scene.endpoint.arrived) < LETTERS
        scene.time.jump(jump)
        await scene.run(id)
        assert await scene.entries(id) == {Entry.CONFIRMED: LETTERS}
        await scene.ensure_nothing_is_lost()

    tell(story)


@pytest.mark.parametrize("jump", JUMPS, ids=str)
def test_what_is_scheduled_begins_when_the_clock_says_so(tell: Tell, jump: timedelta) -> None:
    async def story(scene: Scene) -> None:
        id = await scene.planned()
        await scene.dlq.operations.schedule(id, scene.time.now() + HOUR)
        begun: list[float] = []

        class Here(Dispatcher):
            async def _begin(self, operation: Any, stopping: asyncio.Event, rule: Any = None) -> None:
                begun.append(scene.time.passed)
                await scene.run(operation.id)

        async with Here(scene.dlq.operations, interval=timedelta(minutes=5)):
            await asyncio.sleep(600)
            scene.time.jump(jump)
            await asyncio.sleep(600)
            assert len(begun) == (jump > timedelta())
            if not begun:
                await asyncio.sleep((HOUR - jump).total_seconds())
        assert len(begun) == 1
        assert await scene.entries(id) == {Entry.CONFIRMED: LETTERS}
        await scene.ensure_nothing_is_lost()

    tell(story)


@pytest.mark.parametrize("jump", JUMPS, ids=str)
def test_what_somebody_died_over_is_gone_on_with_whatever_the_clock_says(tell: Tell, jump: timedelta) -> None:
    async def story(scene: Scene) -> None:
        id = await scene.planned(batch=4)
        dead = Life(1)
        dying = scene.another(dead)
        running = asyncio.create_task(dying.operations.run(id, to=scene.door(id, dead)))
        await asyncio.sleep(1.5)
        dead.is_dead = True
        with pytest.raises(StoreUnavailable, match="life 1 is over"):
            await running
        assert Entry.INTENDED in await scene.dlq.desk.tally(id)
        scene.time.jump(jump)
        began = scene.time.passed
        await scene.run(id)
        assert scene.time.passed - began < 2 * LEASE.total_seconds() + 30
        entries = await scene.entries(id)
        if jump > timedelta() or scene.is_steady:
            assert entries == {Entry.CONFIRMED: LETTERS}
        else:
            # Leases end by a clock that was put back: what the dead held stays held, and whether it arrived, nobody knows.
            assert entries == {Entry.CONFIRMED: LETTERS - 4, Entry.UNKNOWN: 4}
        assert sum(scene.endpoint.arrived.values()) >= LETTERS
        await asyncio.sleep(abs(jump).total_seconds() + 3600)
        for letter in await scene.dlq.letters.get(scene.ids):
            assert letter is not None
            assert letter.status in (Status.COMPLETED, Status.REDRIVEN, Status.PENDING)

    tell(story)
