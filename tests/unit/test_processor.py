"""The retry processor: what it claims, how many at a time, and when it looks. Here is also what its other tests stand on."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

import redrive
from redrive import BadSettings, Letter, Pace, RetryPlan, Status
from redrive.backends.memory import MemoryDesk, MemoryLetters
from redrive.engine.dead_letters import DeadLetters, Limits
from redrive.engine.observed import ObservedLetters
from redrive.ports import LetterStore
from redrive.testing import START, Faulty, letter
from tests.contract.backends import LETTERS, sqlite_letters
from tests.unit.waiting import until

SHARED = [one for one in LETTERS if one.id in {"sqlite", "postgres", "redis", "opensearch"}]
"""Stores that several may share: a name each."""

QUICK = Pace(interval=timedelta(milliseconds=50), grace=timedelta(seconds=0.2))
PATIENCE_SECONDS = 30.0


def due(name: str, *, policy: str = "exponential", max_retries: int | None = 3, **changes: Any) -> Letter:
    """A letter whose retry is due. Handlers get its name."""
    plan = RetryPlan(policy=policy, max_retries=max_retries, next_retry_at=START)
    values: dict[str, Any] = {"body": msgspec.json.encode(name), "content_type": "application/json", "retry": plan}
    return letter(name, **(values | changes))


@asynccontextmanager
async def opened(store: LetterStore, **limits: Any) -> AsyncIterator[DeadLetters]:
    dlq = DeadLetters(ObservedLetters(store), MemoryDesk(), limits=Limits(**limits))
    try:
        yield dlq
    finally:
        await dlq.close()


def tell(story: Coroutine[Any, Any, None]) -> None:
    """Run a story, which must come to its end."""

    async def bounded() -> None:
        async with asyncio.timeout(2 * PATIENCE_SECONDS):
            await story

    asyncio.run(bounded())


async def settled(dlq: DeadLetters, *letters: Letter, status: Status = Status.COMPLETED) -> None:
    """Return when all of them have this status."""

    async def are_settled() -> bool:
        found = await dlq.letters.get([one.id for one in letters])
        return all(one is not None and one.status is status for one in found)

    await until(are_settled)


async def seen(dlq: DeadLetters, one: Letter) -> Letter:
    return await dlq.get(one.id)


class Handler:
    """Notes what it is called with, and how many calls there are at once; each waits for the gate, if there is one."""

    def __init__(self, gate: asyncio.Event | None = None, *, fails: Callable[[str], bool] = lambda name: False) -> None:
        self.calls: list[str] = []
        self.done: list[str] = []
        self.now = self.most = 0
        self._gate = gate
        self._fails = fails

    @property
    def counts(self) -> Counter[str]:
        return Counter(self.calls)

    async def work(self, name: str) -> None:
        self.calls.append(name)
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            if self._gate is not None:
                await self._gate.wait()
            if self._fails(name):
                raise ConnectionError(f"{name} is down")
            self.done.append(name)
        finally:
            self.now -= 1


@pytest.fixture
def store(tmp_path: Path) -> LetterStore:
    return sqlite_letters(tmp_path)


def test_due_letters_are_tried_at_once_and_completed(store: LetterStore) -> None:
    async def story() -> None:
        async with opened(store) as dlq:
            letters = [due(str(number)) for number in range(25)]
            await dlq.letters.put(letters)
            handler = Handler()
            # With an interval that no test outlives: the first look does not wait for it.
            async with dlq.processor({"orders": handler.work}, pace=Pace(interval=timedelta(hours=1))):
                await settled(dlq, *letters)
            assert handler.counts == {str(number): 1 for number in range(25)}
            assert (await seen(dlq, letters[0])).retry.next_retry_at is None

    tell(story())


def test_only_letters_of_its_own_sources_and_namespace_are_claimed(store: LetterStore) -> None:
    async def story() -> None:
        async with opened(store) as dlq:
            ours = [due("a"), due("b", source="mails")]
            others = [due("c", source="invoices"), due("d", namespace="elsewhere")]
            await dlq.letters.put([*others, *ours])
            before = await dlq.letters.get([one.id for one in others])
            orders, mails = Handler(), Handler()
            async with dlq.processor({"orders": orders.work, "mails": mails.work}, pace=QUICK):
                await settled(dlq, *ours)
            assert (orders.calls, mails.calls) == (["a"], ["b"])
            assert await dlq.letters.get([one.id for one in others]) == before

    tell(story())


def test_what_is_not_due_or_not_open_is_left_alone(store: LetterStore) -> None:
    async def story() -> None:
        async with opened(store) as dlq:
            tomorrow = RetryPlan(policy="exponential", next_retry_at=datetime.now(UTC) + timedelta(days=1))
            rest = [
                due("later", retry=tomorrow),
                due("a person's", retry=RetryPlan()),
                due("gone", status=Status.DISCARDED),
                due("kept away", status=Status.QUARANTINED),
            ]
            await dlq.letters.put([*rest, one := due("now")])
            handler = Handler()
            async with dlq.processor({"orders": handler.work}, pace=QUICK):
                await settled(dlq, one)
            assert handler.calls == ["now"]

    tell(story())


@pytest.mark.parametrize(("concurrency", "batch"), [(1, 1), (3, 1), (10, 1), (7, 3), (3, 5), (4, 2)])
def test_letters_are_tried_side_by_side_and_never_more_than_the_bound(store: LetterStore, concurrency: int, batch: int) -> None:
    async def story() -> None:
        async with opened(store) as dlq:
            letters = [due(str(number)) for number in range(5 * concurrency)]
            await dlq.letters.put(letters)
            gate = asyncio.Event()
            handler = Handler(gate)
            at_once = concurrency // min(batch, concurrency) * min(batch, concurrency)
            pace = Pace(concurrency=concurrency, batch=batch, interval=timedelta(milliseconds=20))
            async with dlq.processor({"orders": handler.work}, pace=pace):
                await until(lambda: handler.now == at_once)
                gate.set()
                await settled(dlq, *letters)
            assert handler.most == at_once <= concurrency
            assert set(handler.counts.values()) == {1}

    tell(story())


def test_no_more_are_held_than_can_be_worked_on_while_handlers_are_slow(store: LetterStore) -> None:
    async def story() -> None:
        async with opened(store) as dlq:
            letters = [due(str(number)) for number in range(50)]
            await dlq.letters.put(letters)
            gate = asyncio.Event()
            handler, other = Handler(gate), Handler()
            async with dlq.processor({"orders": handler.work}, pace=Pace(concurrency=3), by="slow"):
                await until(lambda: handler.now == 3)
                async with dlq.processor({"orders": other.work}, pace=QUICK, by="quick"):
                    await until(lambda: len(other.done) == 47)
                gate.set()
                await settled(dlq, *letters)
            assert handler.counts + other.counts == {str(number): 1 for number in range(50)}

    tell(story())


def test_a_huge_concurrency_costs_nothing_before_it_is_used() -> None:
    async def story() -> None:
        async with opened(MemoryLetters()) as dlq:
            letters = [due(str(number)) for number in range(600)]
            await dlq.letters.put(letters)
            handler = Handler(gate := asyncio.Event())
            before = len(asyncio.all_tasks())
            async with dlq.processor({"orders": handler.work}, pace=Pace(concurrency=10_000_000, interval=timedelta(seconds=1))):
                await until(lambda: handler.now == 600)
                assert len(asyncio.all_tasks()) < before + 650
                gate.set()
                await settled(dlq, *letters)

    tell(story())


def test_an_empty_store_is_waited_at_and_what_another_puts_there_is_found(tmp_path: Path) -> None:
    async def story() -> None:
        faulty = Faulty(sqlite_letters(tmp_path))
        async with opened(faulty) as dlq, opened(sqlite_letters(tmp_path)) as other:
            handler = Handler()
            async with dlq.processor({"orders": handler.work}, pace=Pace(interval=timedelta(hours=1))):
                await until(lambda: "wait" in faulty.calls)
                await other.letters.put([one := due("a")])
                await settled(dlq, one)
            assert handler.calls == ["a"]

    tell(story())


def test_it_wakes_when_the_next_letter_is_due_not_when_the_interval_is_over(store: LetterStore) -> None:
    async def story() -> None:
        async with opened(store) as dlq:
            soon = RetryPlan(policy="exponential", next_retry_at=datetime.now(UTC) + timedelta(seconds=0.4))
            await dlq.letters.put([one := due("a", retry=soon)])
            handler = Handler()
            async with dlq.processor({"orders": handler.work}, pace=Pace(interval=timedelta(hours=1))):
                await settled(dlq, one)
            assert handler.calls == ["a"]

    tell(story())


def test_it_looks_again_after_the_interval_although_nothing_is_said_to_be_due(store: LetterStore) -> None:
    class Mute(Faulty):
        """A store that never says that something is due."""

        async def wait(self, lanes: Any, patience: timedelta) -> None:
            self.calls.append("wait")
            await asyncio.sleep(patience.total_seconds())

    async def story() -> None:
        mute = Mute(store)
        async with opened(mute) as dlq:
            handler = Handler()
            async with dlq.processor({"orders": handler.work}, pace=Pace(interval=timedelta(milliseconds=50))):
                await until(lambda: "wait" in mute.calls)
                await dlq.letters.put([one := due("a")])
                await settled(dlq, one)
            assert handler.calls == ["a"]

    tell(story())


def test_two_processors_in_one_process_share_what_is_due(store: LetterStore) -> None:
    async def story() -> None:
        async with opened(store) as dlq:
            letters = [due(str(number)) for number in range(200)]
            await dlq.letters.put(letters)
            gate = asyncio.Event()
            first, second = Handler(gate), Handler(gate)
            async with (
                dlq.processor({"orders": first.work}, pace=QUICK, by="first"),
                dlq.processor({"orders": second.work}, pace=QUICK, by="second"),
            ):
                await until(lambda: first.now > 0 and second.now > 0)
                gate.set()
                await settled(dlq, *letters)
            assert first.counts + second.counts == {str(number): 1 for number in range(200)}

    tell(story())


def test_a_processor_without_handlers_is_refused() -> None:
    async def story() -> None:
        async with redrive.open("memory:") as dlq:
            with pytest.raises(BadSettings, match="give it a handler for each source"):
                dlq.processor({})

    tell(story())


@pytest.mark.parametrize(
    ("mistake", "sentence"),
    [
        ({"concurrency": 0}, "concurrency must be a number from 1, got 0"),
        ({"concurrency": 2.5}, "concurrency must be a number from 1, got 2.5"),
        ({"batch": -1}, "batch must be a number from 1, got -1"),
        ({"interval": timedelta()}, "interval must be longer than nothing"),
        ({"interval": 60}, "interval must be a timedelta, got 60"),
        ({"lease": timedelta(seconds=-1)}, "lease must be longer than nothing"),
        ({"grace": timedelta(seconds=-1)}, "grace must be longer than nothing"),
    ],
)
def test_a_pace_that_cannot_be_kept_is_refused(mistake: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadSettings, match=sentence):
        Pace(**mistake)
    assert Pace(grace=timedelta()).grace == timedelta()
