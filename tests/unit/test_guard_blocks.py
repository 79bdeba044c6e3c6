"""A guard around a block (`attempt`) and around a batch (`each`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import redrive
from redrive import BadSettings, Bury, Message, Policy, Retry, blocking
from redrive.engine.guard import Handled
from tests.unit.flaky import NO_RETRY, both, counted, fail_async, letters


@pytest.fixture
def dlq() -> Iterator[blocking.DeadLetters]:
    with blocking.open("memory:") as opened:
        yield opened


@contextmanager
def entered(trial: Any, *, is_async: bool) -> Iterator[Callable[[BaseException | None], Any]]:
    """Run a body that raises (or not) inside the context manager, either way."""

    def run(error: BaseException | None) -> Any:
        if not is_async:
            with trial:
                if error:
                    raise error
            return trial

        async def story() -> Any:
            async with trial:
                if error:
                    raise error
            return trial

        return asyncio.run(story())

    yield run


@both
def test_a_block_that_works_is_left_alone(dlq: blocking.DeadLetters, is_async: bool) -> None:
    with entered(dlq.guard(source="orders").attempt("a"), is_async=is_async) as run:
        trial = run(None)
    assert (trial.verdict, trial.letter) == (None, None)
    assert letters(dlq) == []


@both
def test_a_block_that_fails_is_held_at_once_and_swallowed(dlq: blocking.DeadLetters, is_async: bool) -> None:
    with entered(dlq.guard(source="orders", policy=Policy(max_attempts=9)).attempt({"id": 1}), is_async=is_async) as run:
        trial = run(ValueError("bad"))
    (letter,) = letters(dlq)
    assert trial.verdict == Bury()
    assert trial.letter == letter
    assert (letter.body, letter.attempts) == (b'{"id":1}', 1)


@both
def test_a_block_can_raise_what_was_held(dlq: blocking.DeadLetters, is_async: bool) -> None:
    with (
        entered(dlq.guard(source="orders", after="raise").attempt("a"), is_async=is_async) as run,
        pytest.raises(ValueError, match="bad"),
    ):
        run(ValueError("bad"))
    assert len(letters(dlq)) == 1


@both
def test_a_block_with_a_delivery_count_raises_what_is_to_come_again(dlq: blocking.DeadLetters, is_async: bool) -> None:
    guard = dlq.guard(source="orders", extract=counted)
    early = guard.attempt(1)
    with entered(early, is_async=is_async) as run, pytest.raises(ValueError, match="bad"):
        run(ValueError("bad"))
    assert isinstance(early.verdict, Retry)
    assert (early.letter, letters(dlq)) == (None, [])
    with entered(guard.attempt(3), is_async=is_async) as run:
        assert run(ValueError("bad")).verdict == Bury()
    assert len(letters(dlq)) == 1


@both
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
def test_a_block_lets_cancellation_through(dlq: blocking.DeadLetters, kind: type[BaseException], is_async: bool) -> None:
    trial = dlq.guard(source="orders").attempt("a")
    with entered(trial, is_async=is_async) as run, pytest.raises(kind):
        run(kind())
    assert (trial.verdict, letters(dlq)) == (None, [])


@both
def test_one_bad_item_does_not_fail_the_rest_of_a_batch(dlq: blocking.DeadLetters, is_async: bool) -> None:
    calls: list[int] = []

    def plain(n: int) -> float:
        calls.append(n)
        return 10 / n

    async def awaited(n: int) -> float:
        await asyncio.sleep(0)
        return plain(n)

    answers = dlq.guard(source="orders").each([1, 0, 5, 0], awaited if is_async else plain)
    assert answers == [Handled(10.0), Bury(), Handled(2.0), Bury()]
    assert calls.count(0) == 6
    assert [letter.attempts for letter in letters(dlq)] == [3, 3]


@both
def test_a_batch_with_delivery_counts_gives_each_its_verdict(dlq: blocking.DeadLetters, is_async: bool) -> None:
    def plain(order: int) -> None:
        raise ValueError("bad")

    async def awaited(order: int) -> None:
        raise ValueError("bad")

    guard = dlq.guard(source="orders", extract=lambda count: Message(body=b"x", id=str(count), delivery_count=count))
    assert guard.each([1, 3], awaited if is_async else plain) == [Retry(timedelta(0)), Bury()]
    assert [letter.source_id for letter in letters(dlq)] == ["3"]


def test_an_empty_batch_is_nothing(dlq: blocking.DeadLetters) -> None:
    assert dlq.guard(source="orders").each([], print) == []


def test_a_batch_works_on_as_many_at_a_time_as_it_is_told() -> None:
    async def story() -> None:
        async with redrive.open("memory:") as dlq:
            busy, most = 0, 0

            async def handle(order: int) -> None:
                nonlocal busy, most
                busy += 1
                most = max(most, busy)
                for _ in range(3):
                    await asyncio.sleep(0)
                busy -= 1

            await dlq.guard(source="orders").each(range(20), handle, concurrency=4)
            assert most == 4

    asyncio.run(story())


@pytest.mark.parametrize("concurrency", [0, -1])
def test_a_batch_refuses_to_work_on_none_at_a_time(concurrency: int) -> None:
    async def story() -> None:
        async with redrive.open("memory:") as dlq:
            with pytest.raises((BadSettings, ValueError)):
                await asyncio.wait_for(dlq.guard(source="orders").each(["a"], fail_async, concurrency=concurrency), 60)

    asyncio.run(story())


def test_a_batch_of_coroutines_from_blocking_code_is_held_on_disk(tmp_path: Path) -> None:
    with blocking.open(f"sqlite:{tmp_path}/redrive.db") as dlq:
        assert dlq.guard(source="orders", policy=NO_RETRY).each(range(50), fail_async) == [Bury()] * 50
        assert dlq.letters.count() == 50
