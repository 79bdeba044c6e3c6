"""The housekeeper: what it does behind, how it rests, what an outage does to it, and how it stops."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from redrive import EVERYTHING, BadSettings, StoreUnavailable, blocking
from redrive.backends.memory import MemoryDesk, MemoryLetters
from redrive.engine import housekeeper as module
from redrive.engine import metrics
from redrive.engine.dead_letters import DeadLetters
from redrive.engine.housekeeper import Housekeeper, tidied
from redrive.engine.metrics import Metric, NullMeter
from redrive.engine.telemetry import Telemetry
from redrive.model.census import Backlog
from redrive.model.query import Text
from redrive.model.texts import Where
from redrive.ports import LetterStore
from redrive.testing import START, Faulty, Moment, Outage, letter, raising, waiting
from tests.contract.backends import sqlite_letters
from tests.unit.test_blocking import public
from tests.unit.test_bulk import tell
from tests.unit.waiting import until

OFTEN = timedelta(milliseconds=20)


class Untidy(MemoryLetters):
    """Has much to do, and counts in how many steps it was done."""

    def __init__(self, texts: int, *, stuck_at: int = 0) -> None:
        super().__init__()
        self.left = texts
        self.stuck_at = stuck_at
        self.steps: list[int] = []

    async def tidy(self, most: int = 200) -> Backlog:
        self.steps.append(most)
        self.left = max(self.stuck_at, self.left - most)
        return Backlog(texts=self.left)


@pytest.fixture(autouse=True)
def a_short_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    assert timedelta(seconds=1) == module.IDLE
    assert timedelta(minutes=10) == module.INTERVAL
    monkeypatch.setattr(module, "IDLE", timedelta(milliseconds=10))


def house(store: LetterStore, meter: Any = None) -> DeadLetters:
    return DeadLetters(store, MemoryDesk(), telemetry=Telemetry(meters=(meter,) if meter else ()))


def test_it_does_what_was_put_off_in_small_steps() -> None:
    async def story() -> None:
        store = Untidy(3000)
        async with house(store) as dlq, dlq.housekeeper() as keeper:
            assert keeper.is_running
            await until(lambda: store.left == 0)
        assert not keeper.is_running
        assert max(store.steps) <= 1000
        assert store.steps[0] < 100

    tell(story())


def test_it_does_so_on_a_real_store(tmp_path: Path) -> None:
    async def story() -> None:
        store = sqlite_letters(tmp_path)
        async with house(store) as dlq:
            await store.put([letter(str(number), body=b"words to index") for number in range(50)])
            async with dlq.housekeeper(), asyncio.timeout(30):
                while await store.tidy(0):  # noqa: ASYNC110 - asks a store
                    await asyncio.sleep(0.01)
            assert await store.count(Text("words", Where.BODY)) == 50

    tell(story())


def test_rules_are_run_at_the_start_and_after_every_interval() -> None:
    async def story() -> None:
        store = MemoryLetters()
        async with house(store) as dlq:
            await store.put([letter("1")])
            async with dlq.housekeeper(retention=["purge: all"], interval=OFTEN), asyncio.timeout(30):
                while await store.count():  # noqa: ASYNC110 - asks a store
                    await asyncio.sleep(0.005)
                await store.put([letter("2", at=START + timedelta(hours=1))])
                while await store.count():  # noqa: ASYNC110 - asks a store
                    await asyncio.sleep(0.005)

    tell(story())


def test_without_rules_it_removes_nothing() -> None:
    async def story() -> None:
        store = Untidy(100)
        async with house(store) as dlq:
            await store.put([letter("old", at=START, expires_at=START)])
            async with dlq.housekeeper(interval=OFTEN):
                await until(lambda: len(store.steps) > 10)
            assert await store.count() == 1

    tell(story())


def test_what_cannot_be_done_does_not_keep_it_busy() -> None:
    async def story() -> None:
        store = Untidy(100, stuck_at=50)
        async with house(store) as dlq, dlq.housekeeper():
            await until(lambda: len(store.steps) > 5)
            before, began = len(store.steps), time.monotonic()
            await asyncio.sleep(0.2)
            assert len(store.steps) - before <= (time.monotonic() - began) / 0.01 + 2
        assert await tidied(store) == (Backlog(texts=50), Backlog(texts=50))

    tell(story())


@pytest.mark.parametrize("error", [StoreUnavailable("gone for lunch"), RuntimeError("a defect")], ids=["store", "defect"])
def test_an_outage_is_told_once_and_it_goes_on(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        store = Untidy(500)
        faulty = Faulty(store)
        faulty.lay("tidy", Moment.BEFORE, raising(error), times=4)
        async with house(faulty) as dlq, dlq.housekeeper():
            await until(lambda: store.left == 0)

    with caplog.at_level(logging.INFO, "redrive.housekeeper"):
        tell(story())
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        f"the housekeeper could not tidy the store; it goes on trying: {error}",
        "the housekeeper can tidy the store again",
    ]


def test_an_outage_of_the_rules_passes_too(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        store = MemoryLetters()
        outage = Outage(store)
        async with house(outage) as dlq:
            await store.put([letter("1")])
            outage.down()
            async with dlq.housekeeper(retention=["purge: all"]):
                await until(lambda: "could not run the retention rules" in caplog.text)
                outage.up()
                await until(lambda: not store._letters)

    tell(story())


def test_it_stops_promptly_in_the_middle_of_a_rule(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        store, gate = MemoryLetters(), asyncio.Event()
        faulty = Faulty(store)
        async with house(faulty) as dlq:
            await store.put([letter(str(number)) for number in range(300)])
            faulty.lay("purge", Moment.AFTER, waiting(gate))
            keeper = dlq.housekeeper(retention=["purge: all"])
            await keeper.start()
            await until(lambda: len(store._letters) < 300)
            stopping = asyncio.create_task(keeper.stop())
            await asyncio.sleep(0.02)
            gate.set()
            async with asyncio.timeout(5):
                await stopping
            assert not keeper.is_running
            assert 0 < await store.count() < 300
            assert (await dlq.desk.audit())[0].detail == f"cut short: {300 - await store.count()} removed"

    with caplog.at_level(logging.INFO, "redrive.retention"):
        tell(story())
    (said,) = [record.getMessage() for record in caplog.records]
    assert re.fullmatch(r"retention rule purge: all: 300 matched, \d+ removed, then it was cut short", said)


def test_starting_and_stopping_twice_is_fine() -> None:
    async def story() -> None:
        async with house(MemoryLetters()) as dlq:
            keeper = dlq.housekeeper()
            await keeper.stop()
            await keeper.start()
            await keeper.start()
            await keeper.stop()
            await keeper.stop()
            await keeper.start()
            assert keeper.is_running
            await keeper.stop()

    tell(story())


def test_several_keep_one_store(tmp_path: Path) -> None:
    async def story() -> None:
        first, second = sqlite_letters(tmp_path), sqlite_letters(tmp_path)
        async with house(first) as one, house(second) as other:
            await first.put([letter(str(number), at=START + timedelta(seconds=number)) for number in range(300)])
            rules = ["purge: not source_id:7"]
            async with one.housekeeper(retention=rules), other.housekeeper(retention=rules), asyncio.timeout(30):
                while await first.count() > 1:  # noqa: ASYNC110 - asks a store
                    await asyncio.sleep(0.01)
            assert [letter.source_id async for letter in one.find(EVERYTHING)] == ["7"]

    tell(story())


def test_mistakes_are_told_when_it_is_made() -> None:
    async def story() -> None:
        async with house(MemoryLetters()) as dlq:
            with pytest.raises(BadSettings, match="interval must be a timedelta longer than nothing, got 600"):
                dlq.housekeeper(interval=600)  # type: ignore[arg-type]  # the mistake
            with pytest.raises(BadSettings, match="interval must be a timedelta longer"):
                dlq.housekeeper(interval=timedelta())
            with pytest.raises(BadSettings, match="there is no field 'stauts'"):
                dlq.housekeeper(retention=["purge: stauts:completed"])

    tell(story())


def test_the_backlog_is_measured() -> None:
    class Seen(NullMeter):
        def __init__(self) -> None:
            self.values: list[float] = []

        def set(self, metric: Metric, value: float, /, **labels: str) -> None:
            if metric is metrics.BACKLOG and labels == {"what": "texts"}:
                self.values.append(value)

    async def story() -> None:
        seen, store = Seen(), Untidy(200)
        async with house(store, seen) as dlq, dlq.housekeeper():
            await until(lambda: store.left == 0 and 0 in seen.values)
        assert seen.values[0] > 0

    tell(story())


def test_all_that_was_put_off_is_done_and_told() -> None:
    async def story() -> None:
        store = Untidy(3000)
        heard: list[tuple[Backlog, Backlog]] = []
        assert await tidied(store, lambda first, left: heard.append((first, left))) == (Backlog(texts=3000), Backlog())
        assert [left.texts for _, left in heard] == sorted((left.texts for _, left in heard), reverse=True)
        assert await tidied(MemoryLetters()) == (Backlog(), Backlog())

    tell(story())


def test_blocking_code_has_one_too() -> None:
    assert public(blocking.Housekeeper) == public(Housekeeper)
    with blocking.open("memory:") as dlq:
        dlq.hold([letter("1")])
        with dlq.housekeeper(retention=["purge: all"]) as keeper:
            deadline = time.monotonic() + 30
            while dlq.count():
                assert time.monotonic() < deadline
                time.sleep(0.005)
            assert keeper.is_running
        assert not keeper.is_running
