"""What a processor holds, and what becomes of it: leases that are kept, lost and taken anew, by the store's clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from redrive import Completed, Pace, Released, Status, StoreUnavailable
from redrive.backends.memory import MemoryLetters
from redrive.engine import processor as module
from redrive.engine.heartbeat import Heartbeat
from redrive.engine.retry import Retried
from redrive.model.lease import Claim, Claimed
from redrive.model.letter import Letter
from redrive.model.settlement import Settled, Settlement
from redrive.ports import LetterStore
from redrive.ports.inline import drive
from redrive.testing import Faulty, Moment, raising
from tests.contract.backends import sqlite_letters
from tests.unit.beats import Beats, OnBeats
from tests.unit.test_processor import QUICK, Handler, due, opened, seen, settled, tell
from tests.unit.waiting import until

DOWN = StoreUnavailable("gone for lunch")


@pytest.fixture
def store(tmp_path: Path) -> LetterStore:
    return sqlite_letters(tmp_path)


@pytest.fixture(autouse=True)
def a_short_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    assert timedelta(seconds=10) == module.AFTER_ERROR
    monkeypatch.setattr(module, "AFTER_ERROR", timedelta(milliseconds=50))


class SettlesAfterSomeBeats(OnBeats):
    async def settle(self, settlements: Sequence[Settlement], *, now: datetime | None = None) -> list[Settled]:
        if self.beats.count <= 4:
            raise RuntimeError("a defect")
        return await super().settle(settlements, now=now)


def test_leases_are_kept_alive_while_the_store_cannot_settle(tmp_path: Path) -> None:
    async def story() -> None:
        lease = timedelta(seconds=0.9)
        beats = Beats(lease)
        store, other = SettlesAfterSomeBeats(sqlite_letters(tmp_path), beats), OnBeats(sqlite_letters(tmp_path), beats)
        async with opened(store) as dlq, opened(other) as elsewhere:
            await dlq.letters.put([one := due("a")])
            handler, thief = Handler(), Handler()
            async with dlq.processor({"orders": handler.work}, pace=Pace(lease=lease)):
                await until(lambda: bool(handler.done))
                async with elsewhere.processor({"orders": thief.work}, pace=QUICK):
                    await settled(dlq, one)
            assert (handler.calls, thief.calls) == (["a"], [])

    tell(story())


def test_a_process_that_had_no_turn_for_longer_than_its_leases_goes_on(store: LetterStore) -> None:
    async def story() -> None:
        done = set[str]()

        async def work(name: str) -> None:
            await asyncio.sleep(0.05)
            done.add(name)

        letters = [due(str(number)) for number in range(300)]
        async with opened(store) as dlq:
            await dlq.letters.put(letters)
            pace = Pace(lease=timedelta(seconds=0.5), interval=timedelta(milliseconds=50))
            async with dlq.processor({"orders": work}, pace=pace):
                # By then some are claimed ahead, and all of these leases run out.
                await until(lambda: len(done) >= 60)
                time.sleep(1.0)  # noqa: ASYNC251 - nothing of this process goes on
                await until(lambda: len(done) == len(letters))
            assert done == {str(number) for number in range(300)}

    tell(story())


def test_a_lease_that_is_lost_while_its_letter_is_tried_settles_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        faulty, gate = Faulty(sqlite_letters(tmp_path)), asyncio.Event()
        lease = timedelta(seconds=0.3)
        async with opened(faulty) as dlq, opened(sqlite_letters(tmp_path)) as elsewhere:
            await dlq.letters.put([one := due("a")])
            faulty.lay("extend", Moment.BEFORE, raising(RuntimeError("a defect")), times=1000)
            heard = list[Retried]()

            async def listen(retried: Sequence[Retried]) -> None:
                heard.extend(retried)

            slow, other = Handler(gate, fails=lambda name: True), Handler()
            async with dlq.processor({"orders": slow.work}, pace=Pace(lease=lease), listener=listen):
                await until(lambda: slow.now == 1)
                async with elsewhere.processor({"orders": other.work}, pace=QUICK):
                    await settled(elsewhere, one)
                gate.set()
                await until(lambda: bool(heard))
            letter = await seen(dlq, one)
            assert (letter.status, letter.retry.retry_count, letter.attempts) == (Status.COMPLETED, 0, 1)
            assert heard[0].answer is Settled.LEASE_LOST

    tell(story())


def test_a_letter_whose_lease_is_lost_before_its_turn_is_not_begun(tmp_path: Path) -> None:
    async def story() -> None:
        thief, lease = sqlite_letters(tmp_path), timedelta(seconds=0.3)
        letters = [due(str(number)) for number in range(60)]
        stolen: list[Claimed] = []
        begun_after: list[str] = []

        async def handler(name: str) -> None:
            if stolen:
                begun_after.append(name)
            if len(worked := [*calls, name]) == 30:
                # The event loop is blocked, as by a handler that computes: no heart can beat.
                claim = Claim(owner="thief", lease=timedelta(hours=1), what=tuple(one.id for one in letters))
                while len(stolen) <= 5:
                    # Once more when a beat that was on its way came through late.
                    time.sleep(1.5 * lease.total_seconds())  # noqa: ASYNC251
                    stolen.extend(drive(thief.claim(claim)))
            calls[:] = worked

        calls: list[str] = []
        async with opened(sqlite_letters(tmp_path)) as dlq:
            await dlq.letters.put(letters)
            async with dlq.processor({"orders": handler}, pace=Pace(concurrency=1, lease=lease)):
                await until(lambda: bool(stolen))
                free = [one for one in letters if one.id not in {claimed.letter.id for claimed in stolen}]
                await settled(dlq, *(one for one in free if one.source_id not in begun_after))
            names = {claimed.letter.source_id for claimed in stolen}
            assert len(names) > 5
            assert not names.intersection(begun_after)
            await thief.settle([Settlement.of(one.lease, Completed()) for one in stolen])
        await thief.close()

    tell(story())


def test_a_letter_that_is_claimed_anew_while_the_last_is_told_of_is_worked_on(store: LetterStore) -> None:
    """A lease that ends must not take the next one on the same letter with it."""

    async def story() -> None:
        async with opened(store) as dlq:
            await dlq.letters.put([one := due("a", policy="immediate", max_retries=None)])
            handler = Handler(fails=lambda name: len(handler.calls) < 4)

            async def listen(retried: Sequence[Retried]) -> None:
                # Long enough for the letter to come due and be claimed again meanwhile.
                await asyncio.sleep(0.05)

            pace = Pace(interval=timedelta(microseconds=1), lease=timedelta(hours=1))
            async with dlq.processor({"orders": handler.work}, pace=pace, listener=listen):
                await settled(dlq, one)
            assert len(handler.calls) == 4

    tell(story())


def test_a_lease_that_is_over_takes_no_newer_one_on_the_same_letter_with_it() -> None:
    async def story() -> None:
        store = MemoryLetters()
        await store.put([one := due("a")])
        claim = Claim(owner="us", lease=timedelta(hours=1), what=(one.id,))
        (old,) = await store.claim(claim)
        await store.settle([Settlement.of(old.lease, Released())])
        (new,) = await store.claim(claim)
        heartbeat = Heartbeat(store, [old.lease], timedelta(hours=1))
        heartbeat.hold([new.lease], time.monotonic())
        heartbeat.let_go([old.lease])
        assert (heartbeat.holds(new.lease), heartbeat.holds(old.lease), one.id in heartbeat) == (True, False, True)
        await heartbeat.beat()
        assert heartbeat.holds(new.lease)
        await store.settle([Settlement.of(new.lease, Released())])
        await heartbeat.beat()
        assert one.id not in heartbeat

    tell(story())


class Elsewhen(Faulty):
    """A store whose clock is not the host's."""

    def __init__(self, store: LetterStore, ahead: timedelta) -> None:
        super().__init__(store)
        self.ahead = ahead

    def time(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    async def claim(self, claim: Claim, *, now: datetime | None = None) -> list[Claimed]:
        return await super().claim(claim, now=self.time())

    async def extend(self, leases: Any, by: timedelta, *, now: datetime | None = None) -> Any:
        return await super().extend(leases, by, now=self.time())

    async def settle(self, settlements: Sequence[Settlement], *, now: datetime | None = None) -> list[Settled]:
        return await super().settle(settlements, now=self.time())

    async def get(self, ids: Any, *, now: datetime | None = None) -> list[Letter | None]:
        return await super().get(ids, now=self.time())

    async def wait(self, lanes: Any, patience: timedelta) -> None:
        self.calls.append("wait")
        await asyncio.sleep(min(0.01, patience.total_seconds()))


@pytest.mark.parametrize("ahead", [timedelta(days=-2), timedelta(days=2)], ids=["host ahead", "host behind"])
def test_the_stores_clock_says_when_the_next_retry_is_not_the_hosts(ahead: timedelta) -> None:
    async def story() -> None:
        store = Elsewhen(MemoryLetters(), ahead)
        async with opened(store) as dlq:
            failing = [due("a"), due("b", policy="immediate"), due("c", policy="of tomorrow")]
            await dlq.letters.put(failing)
            handler, heard = Handler(fails=lambda name: True), list[Retried]()

            async def listen(retried: Sequence[Retried]) -> None:
                heard.extend(retried)

            pace = Pace(interval=timedelta(minutes=10))
            async with dlq.processor({"orders": handler.work}, pace=pace, listener=listen):
                await until(lambda: len(heard) == 3)
                looks = len(store.calls)
                await until(lambda: len(store.calls) > looks + 20)
            assert sorted(handler.calls) == ["a", "b"], "hammered"
            for one, minutes in zip(failing, (2, 10, 10), strict=True):
                at = (await seen(dlq, one)).retry.next_retry_at
                assert at is not None
                assert timedelta(minutes=minutes - 1) < at - store.time() <= timedelta(minutes=minutes)

    tell(story())
