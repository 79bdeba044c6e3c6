"""What handlers do to a guard: exits and cancellations, waits, causes of their own, awaitables of every kind."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import pytest

import redrive
from redrive import BadSettings, Bury, Policy, blocking, custom
from tests.unit.flaky import NO_RETRY, Flaky, both, fail_async, guarded, letters


@pytest.fixture
def dlq() -> Iterator[blocking.DeadLetters]:
    with blocking.open("memory:") as opened:
        yield opened


@both
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError])
def test_cancellation_and_exit_go_through_untouched(dlq: blocking.DeadLetters, kind: type[BaseException], is_async: bool) -> None:
    ended = kind("stop")
    flaky = Flaky(99, ended)

    def call() -> None:
        if not is_async:
            guarded(dlq.guard(source="orders"), flaky, is_async=False)("a")
            return

        async def body(order: Any) -> str:
            return flaky(order)

        one = dlq.guard(source="orders")(body)("a")
        # By hand: an event loop has ways of its own with these.
        one.send(None)  # type: ignore[attr-defined]  # it is a coroutine

    with pytest.raises(kind) as raised:
        call()
    assert raised.value is ended
    assert len(flaky.calls) == 1
    assert letters(dlq) == []


def test_a_task_that_is_cancelled_in_its_handler_leaves_no_letter() -> None:
    async def story() -> None:
        async with redrive.open("memory:") as dlq:
            started = asyncio.Event()

            @dlq.guard(source="orders")
            async def handle(order: str) -> None:
                started.set()
                await asyncio.Event().wait()

            task = asyncio.ensure_future(handle("a"))
            await started.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await dlq.letters.count() == 0

    asyncio.run(story())


def test_a_task_that_is_cancelled_while_it_waits_for_a_retry_leaves_no_letter() -> None:
    async def story() -> None:
        async with redrive.open("memory:") as dlq:
            waits = asyncio.Event()

            def hour(count: int) -> timedelta:
                waits.set()
                return timedelta(hours=1)

            @dlq.guard(source="orders", policy=Policy(backoff=custom(hour)))
            async def handle(order: str) -> None:
                raise ValueError("bad")

            task = asyncio.ensure_future(handle("a"))
            await waits.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await dlq.letters.count() == 0

    asyncio.run(story())


def test_a_timeout_around_the_handler_is_a_cancellation_but_one_inside_is_a_failure() -> None:
    async def story() -> None:
        async with redrive.open("memory:") as dlq:

            @dlq.guard(source="outside")
            async def outside() -> None:
                await asyncio.Event().wait()

            @dlq.guard(source="inside", policy=NO_RETRY)
            async def inside() -> None:
                async with asyncio.timeout(0):
                    await asyncio.Event().wait()

            with pytest.raises(TimeoutError):
                await asyncio.wait_for(outside(), 0.01)
            await inside()
            (letter,) = [letter async for letter in dlq.find()]
            assert (letter.source, letter.failure.type) == ("inside", "builtins.TimeoutError")

    asyncio.run(story())


@both
def test_the_backoff_is_really_waited_for_and_asked_for_each_retry(dlq: blocking.DeadLetters, is_async: bool) -> None:
    asked: list[int] = []
    pause = timedelta(milliseconds=30)

    def tiny(count: int) -> timedelta:
        asked.append(count)
        return pause

    handle = guarded(dlq.guard(source="orders", policy=Policy(max_attempts=3, backoff=custom(tiny))), Flaky(9), is_async=is_async)
    started = time.monotonic()
    handle("a")
    assert time.monotonic() - started >= 2 * pause.total_seconds()
    assert asked == [0, 1]
    first, second, third = letters(dlq)[0].history
    assert second.at - first.at >= pause
    assert third.at - second.at >= pause


def test_an_async_wait_does_not_block_the_loop() -> None:
    async def story() -> None:
        async with redrive.open("memory:") as dlq:
            tried: list[int] = []

            @dlq.guard(source="orders", policy=Policy(max_attempts=2, backoff=custom(lambda _: timedelta(milliseconds=10))))
            async def handle(order: int) -> None:
                tried.append(order)
                raise ValueError("bad")

            await asyncio.gather(*(handle(number) for number in range(20)))
            # While the first waits, all others have their first try.
            assert tried[:20] == list(range(20))
            assert sorted(tried[20:]) == list(range(20))
            assert await dlq.letters.count() == 20

    asyncio.run(story())


@both
@pytest.mark.parametrize(
    "function", [lambda _: timedelta(seconds=-5), lambda _: 1 / 0, lambda _: 5], ids=["negative", "raises", "no timedelta"]
)
def test_a_broken_backoff_does_not_cost_the_message(dlq: blocking.DeadLetters, function: Any, is_async: bool) -> None:
    """As a broken extractor does not."""
    policy = Policy(max_attempts=2, backoff=custom(function))
    guarded(dlq.guard(source="orders", policy=policy), Flaky(9), is_async=is_async)("a")
    (letter,) = letters(dlq)
    assert letter.body == b"a"


@both
def test_an_errors_context_is_not_polluted_by_earlier_tries(dlq: blocking.DeadLetters, is_async: bool) -> None:
    handle = guarded(dlq.guard(source="orders", after="raise"), Flaky(9), is_async=is_async)
    with pytest.raises(ValueError, match="failure 3") as raised:
        handle("a")
    assert raised.value.__context__ is None
    assert letters(dlq)[0].failure.causes == ()


@both
def test_an_errors_context_is_not_polluted_in_a_batch_either(dlq: blocking.DeadLetters, is_async: bool) -> None:
    flaky = Flaky(9)

    async def awaited(order: Any) -> str:
        return flaky(order)

    def plain(order: Any) -> str:
        return flaky(order)

    dlq.guard(source="orders").each(["a"], awaited if is_async else plain)
    (letter,) = letters(dlq)
    assert letter.failure.message == "failure 3"
    assert [cause.message for cause in letter.failure.causes] == []


@both
def test_a_cause_of_its_own_is_kept(dlq: blocking.DeadLetters, is_async: bool) -> None:
    def fail(order: Any) -> None:
        try:
            raise KeyError("street")
        except KeyError as error:
            raise ValueError("no address") from error

    async def fail_async(order: Any) -> None:
        fail(order)

    if is_async:
        asyncio.run(dlq.guard(source="orders")(fail_async)("a"))  # type: ignore[arg-type]  # a coroutine
    else:
        dlq.guard(source="orders")(fail)("a")
    (letter,) = letters(dlq)
    assert [cause.type for cause in letter.failure.causes] == ["builtins.KeyError"]


def test_a_handler_that_runs_out_of_an_iterator_fails_under_its_own_name(dlq: blocking.DeadLetters) -> None:
    @dlq.guard(source="orders")
    def handle(order: Any) -> Any:
        return next(iter(()))

    handle("a")
    (letter,) = letters(dlq)
    assert {attempt.error for attempt in letter.history} == {"builtins.StopIteration"}
    with pytest.raises(StopIteration):
        dlq.guard(source="orders", after="raise")(lambda order: next(iter(())))("a")


class AsyncHandler:
    async def __call__(self, order: Any) -> None:
        raise ValueError("bad")


@pytest.mark.parametrize(
    "handler",
    [AsyncHandler(), functools.partial(fail_async), lambda order: fail_async(order), AsyncHandler().__call__],
    ids=["callable object", "partial", "lambda", "bound method"],
)
def test_whatever_returns_an_awaitable_is_guarded(handler: Any) -> None:
    """The type says `Callable[P, Awaitable[R]]`; a failure that slips past the guard would be lost."""

    async def story() -> None:
        async with redrive.open("memory:") as dlq:
            assert await dlq.guard(source="orders", policy=NO_RETRY)(handler)("a") is None
            assert await dlq.letters.count() == 1

    asyncio.run(story())


@pytest.mark.parametrize("handler", [AsyncHandler(), lambda order: fail_async(order)], ids=["callable object", "lambda"])
def test_whatever_returns_an_awaitable_is_awaited_in_a_batch(handler: Any) -> None:
    async def story() -> None:
        async with redrive.open("memory:") as dlq:
            assert await dlq.guard(source="orders", policy=NO_RETRY).each(["a"], handler) == [Bury()]

    asyncio.run(story())


def test_a_generator_is_refused_because_it_fails_where_no_guard_stands() -> None:
    def plain(order: Any) -> Iterator[Any]:
        yield order

    async def awaited(order: Any) -> AsyncIterator[Any]:
        yield order

    with blocking.open("memory:") as dlq:
        for generator in (plain, awaited):
            with pytest.raises(BadSettings, match="is a generator"):
                dlq.guard(source="orders")(generator)
