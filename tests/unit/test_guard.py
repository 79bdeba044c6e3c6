"""The guard around a consumer: what its caller sees, what is held, and what is never touched."""

from __future__ import annotations

import asyncio
import functools
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import redrive
from redrive import (
    BadSettings,
    Bury,
    Discard,
    Letter,
    Message,
    NotHeld,
    Policy,
    RedriveError,
    Retry,
    RetryPlan,
    Status,
    blocking,
    custom,
    where,
)
from redrive.engine.guard import Handled
from redrive.model.lease import Claim

NO_RETRY = Policy(max_attempts=1)


@pytest.fixture
def dlq() -> Iterator[blocking.DeadLetters]:
    with blocking.open("memory:") as opened:
        yield opened


def letters(dlq: blocking.DeadLetters) -> list[Letter]:
    return list(dlq.find())


class Flaky:
    """Fails as often as it is told, then answers; knows how often it was called."""

    def __init__(self, failures: int, error: BaseException | None = None) -> None:
        self.failures = failures
        self.calls: list[Any] = []
        self.error = error

    def __call__(self, order: Any) -> str:
        self.calls.append(order)
        if len(self.calls) <= self.failures:
            raise self.error or ValueError(f"failure {len(self.calls)}")
        return f"done {order}"


def guarded(guard: Any, flaky: Flaky, *, is_async: bool) -> Callable[[Any], Any]:
    """The flaky handler as a plain or a coroutine function under the guard, callable from here."""
    if not is_async:

        @guard
        def plain(order: Any) -> str:
            return flaky(order)

        return plain  # type: ignore[no-any-return]

    @guard
    async def awaited(order: Any) -> str:
        await asyncio.sleep(0)
        return flaky(order)

    return lambda order: asyncio.run(awaited(order))


both = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])


@both
def test_a_handler_that_works_is_left_alone(dlq: blocking.DeadLetters, is_async: bool) -> None:
    flaky = Flaky(0)
    assert guarded(dlq.guard(source="orders"), flaky, is_async=is_async)("a") == "done a"
    assert flaky.calls == ["a"]
    assert letters(dlq) == []


@both
def test_a_retry_that_works_gives_its_result_and_leaves_no_letter(dlq: blocking.DeadLetters, is_async: bool) -> None:
    flaky = Flaky(2)
    assert guarded(dlq.guard(source="orders"), flaky, is_async=is_async)("a") == "done a"
    assert len(flaky.calls) == 3
    assert letters(dlq) == []


@both
def test_max_attempts_failures_make_one_letter_with_the_whole_story(dlq: blocking.DeadLetters, is_async: bool) -> None:
    flaky = Flaky(99)
    guard = dlq.guard(source="orders", policy=Policy(max_attempts=3), tags=["a", "b"], metadata={"team": "shop"})
    assert guarded(guard, flaky, is_async=is_async)({"id": 7}) is None
    (letter,) = letters(dlq)
    assert len(flaky.calls) == 3
    assert (letter.source, letter.namespace, letter.status, letter.generation) == ("orders", "default", Status.PENDING, 1)
    assert (letter.body, letter.content_type) == (b'{"id":7}', "application/json")
    assert [attempt.message for attempt in letter.history] == ["failure 1", "failure 2", "failure 3"]
    assert all(attempt.took is not None and attempt.took >= timedelta(0) for attempt in letter.history)
    assert letter.failure.message == "failure 3"
    assert (letter.tags, letter.metadata) == (("a", "b"), {"team": "shop"})
    assert letter.first_received_at <= letter.history[0].at <= letter.history[-1].at <= letter.dead_lettered_at


@both
def test_swallow_is_the_default_and_answers_none(dlq: blocking.DeadLetters, is_async: bool) -> None:
    for after in (None, "swallow"):
        assert guarded(dlq.guard(source="orders", policy=NO_RETRY, after=after), Flaky(9), is_async=is_async)("a") is None
    assert len(letters(dlq)) == 2


@both
def test_raise_gives_the_last_error_with_a_note_that_names_the_letter(dlq: blocking.DeadLetters, is_async: bool) -> None:
    handle = guarded(dlq.guard(source="orders", after="raise"), Flaky(9), is_async=is_async)
    with pytest.raises(ValueError, match="failure 3") as raised:
        handle("a")
    (letter,) = letters(dlq)
    assert raised.value.__notes__ == [f"redrive: held as letter {letter.id}"]


@both
def test_verdict_gives_the_bury(dlq: blocking.DeadLetters, is_async: bool) -> None:
    handle = guarded(dlq.guard(source="orders", after="verdict"), Flaky(9), is_async=is_async)
    assert handle("a") == Bury()
    assert len(letters(dlq)) == 1


def counted(order: Any) -> Message:
    return Message(body=b"x", id="1", delivery_count=order)


@both
def test_with_a_delivery_count_there_is_one_try_and_the_verdict_goes_back(dlq: blocking.DeadLetters, is_async: bool) -> None:
    flaky = Flaky(99)
    policy = Policy(max_attempts=3, backoff=custom(lambda count: timedelta(hours=1 + count)))
    handle = guarded(dlq.guard(source="orders", policy=policy, extract=counted), flaky, is_async=is_async)
    assert handle(1) == Retry(timedelta(hours=1))
    assert handle(2) == Retry(timedelta(hours=2))
    assert (len(flaky.calls), letters(dlq)) == (2, [])
    assert handle(3) == Bury()
    assert handle(4) == Bury()
    (letter,) = letters(dlq)
    assert letter.attempts == 2


@both
def test_swallow_cannot_swallow_what_the_source_must_deliver_again(dlq: blocking.DeadLetters, is_async: bool) -> None:
    handle = guarded(dlq.guard(source="orders", extract=counted, after="swallow"), Flaky(99), is_async=is_async)
    with pytest.raises(ValueError, match="failure 1"):
        handle(1)
    assert letters(dlq) == []
    assert handle(3) is None
    assert len(letters(dlq)) == 1


@both
def test_raise_raises_with_a_delivery_count_too(dlq: blocking.DeadLetters, is_async: bool) -> None:
    handle = guarded(dlq.guard(source="orders", extract=counted, after="raise"), Flaky(99), is_async=is_async)
    for count, held in ((1, 0), (3, 1)):
        with pytest.raises(ValueError, match="failure"):
            handle(count)
        assert len(letters(dlq)) == held


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

            @dlq.guard(source="orders", policy=Policy(max_attempts=2, backoff=custom(lambda _: timedelta(milliseconds=100))))
            async def handle(order: int) -> None:
                raise ValueError("bad")

            started = time.monotonic()
            await asyncio.gather(*(handle(number) for number in range(20)))
            assert time.monotonic() - started < 20 * 0.1
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


async def fail_async(order: Any) -> None:
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


def test_the_wrapped_handler_keeps_its_name_and_signature(dlq: blocking.DeadLetters) -> None:
    @dlq.guard(source="orders")
    def handle(order: int, *, fast: bool = False) -> int:
        """Ships an order."""
        return order

    assert (handle.__name__, handle.__doc__) == ("handle", "Ships an order.")
    assert handle(3, fast=True) == 3


def test_methods_can_be_guarded_and_their_arguments_are_kept(dlq: blocking.DeadLetters) -> None:
    guard = dlq.guard(source="orders", extract=lambda self, order: Message(body=order.encode()))

    class Shop:
        @guard
        def ship(self, order: str) -> None:
            raise ValueError("bad")

    Shop().ship("a")
    assert letters(dlq)[0].body == b"a"


def test_a_guard_within_a_guard_holds_once(dlq: blocking.DeadLetters) -> None:
    @dlq.guard(source="inner", policy=NO_RETRY)
    def inner(order: str) -> None:
        raise ValueError("bad")

    @dlq.guard(source="outer", policy=NO_RETRY)
    def outer(order: str) -> None:
        inner(order)

    outer("a")
    assert [letter.source for letter in letters(dlq)] == ["inner"]


def test_a_message_without_an_id_is_a_letter_of_its_own_each_time(dlq: blocking.DeadLetters) -> None:
    handle = guarded(dlq.guard(source="orders"), Flaky(99), is_async=False)
    handle("same")
    handle("same")
    assert len(letters(dlq)) == 2


def test_a_message_with_an_id_is_one_letter_however_often_it_fails(dlq: blocking.DeadLetters) -> None:
    handle = guarded(dlq.guard(source="orders", extract=where(id="id"), policy=NO_RETRY), Flaky(99), is_async=False)
    for _ in range(3):
        handle({"id": 5})
    (letter,) = letters(dlq)
    assert (letter.source_id, letter.attempts) == ("5", 3)


def test_a_policy_of_ones_own_can_let_a_message_go(dlq: blocking.DeadLetters, caplog: pytest.LogCaptureFixture) -> None:
    class Careless(Policy, frozen=True, kw_only=True):
        def judge(self, error: BaseException, attempts: int, *, roll: float = 0.5) -> Discard:
            return Discard("nobody wants it")

    assert guarded(dlq.guard(source="orders", policy=Careless()), Flaky(9), is_async=False)("a") is None
    assert guarded(dlq.guard(source="orders", policy=Careless(), after="verdict"), Flaky(9), is_async=False)("a") == Discard(
        "nobody wants it"
    )
    assert letters(dlq) == []
    assert [(record.name, record.message) for record in caplog.records] == [("redrive.guard", "message discarded")] * 2


@pytest.mark.parametrize(("policy", "minutes"), [("immediate", 0), ("linear", 5), ("exponential", 1)])
def test_a_letter_under_a_retry_plan_comes_due(dlq: blocking.DeadLetters, policy: str, minutes: int) -> None:
    """A plan is when redrive itself tries again; only without one (`never`) does a letter wait for a person."""
    guard = dlq.guard(source="orders", policy=NO_RETRY, retry=RetryPlan(policy=policy, max_retries=3))
    guarded(guard, Flaky(9), is_async=False)("a")
    (letter,) = letters(dlq)
    assert letter.retry.next_retry_at == letter.dead_lettered_at + timedelta(minutes=minutes)
    due = dlq.letters.claim(
        Claim(owner="me", lease=timedelta(seconds=30)), now=letter.dead_lettered_at + timedelta(minutes=minutes)
    )
    assert [one.letter.id for one in due] == [letter.id]


def test_what_a_letter_cannot_carry_is_refused_as_not_held_or_when_the_guard_is_made(tmp_path: Path) -> None:
    """Whatever the reason that a letter cannot be held, the consumer hears `NotHeld`, as it is told to rely on."""
    with blocking.open(f"sqlite:{tmp_path}/redrive.db") as dlq:
        for odd in ({"metadata": {"a": object()}}, {"metadata": {"a": 2**70}}, {"tags": ["\ud800"]}, {"source": "\ud800"}):
            try:
                handle = guarded(dlq.guard(**({"source": "orders", "policy": NO_RETRY} | odd)), Flaky(9), is_async=False)
            except (RedriveError, TypeError, ValueError):
                continue
            with pytest.raises(NotHeld):
                handle("a")


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
                await asyncio.wait_for(dlq.guard(source="orders").each(["a"], fail_async, concurrency=concurrency), 1)

    asyncio.run(story())


def test_a_batch_of_coroutines_from_blocking_code_is_held_on_disk(tmp_path: Path) -> None:
    with blocking.open(f"sqlite:{tmp_path}/redrive.db") as dlq:
        assert dlq.guard(source="orders", policy=NO_RETRY).each(range(50), fail_async) == [Bury()] * 50
        assert dlq.letters.count() == 50


FULL_DISK = """
import asyncio, resource, sys
from redrive import Policy, blocking

after, form = sys.argv[1], sys.argv[2]
url = "sqlite:redrive.db"
with blocking.open(url) as dlq:
    dlq.capture("before", ValueError("bad"), source="orders")
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

def outcome():
    dlq = blocking.open(url)
    guard = dlq.guard(source="orders", policy=Policy(max_attempts=2), after=after)
    tries = []
    def fail(order):
        tries.append(order)
        raise ValueError("bad")
    async def fail_async(order):
        fail(order)
    dlq.letters.check()
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        match form:
            case "sync": guard(fail)("x" * 100_000)
            case "async": asyncio.run(guard(fail_async)("x" * 100_000))
            case "with":
                with guard.attempt("x" * 100_000): fail("x")
            case "each": guard.each(["x" * 100_000], fail)
    except BaseException as error:
        return error
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        with blocking.open(url) as again:
            print([letter.body for letter in again.find()])
            again.capture("after", ValueError("bad"), source="orders")
            print(again.letters.count())
        dlq.close()

error = outcome()
print(type(error).__name__)
print(error)
"""


@pytest.mark.parametrize(
    ("after", "form"),
    [("swallow", "sync"), ("raise", "sync"), ("verdict", "sync"), ("swallow", "async"), ("swallow", "with"), ("swallow", "each")],
)
def test_when_the_disk_is_full_the_caller_hears_not_held_whatever_was_chosen(after: str, form: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, after, form], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    before, count, kind, sentence, *rest = done.stdout.splitlines()
    assert before == "[b'before']"
    assert count == "2"
    assert kind == "NotHeld"
    assert "do not acknowledge the source" in sentence
    assert (rest, done.stderr) == ([], "")


def test_a_store_that_was_closed_holds_nothing_and_says_so() -> None:
    dlq = blocking.open("sqlite:never-made.db")
    handle = guarded(dlq.guard(source="orders"), Flaky(9), is_async=False)
    dlq.close()
    with pytest.raises(NotHeld, match=r"closed.*do not acknowledge the source"):
        handle("a")
    assert not Path("never-made.db").exists()


def test_a_guard_serves_many_threads_at_once(tmp_path: Path) -> None:
    with blocking.open(f"sqlite:{tmp_path}/redrive.db") as dlq:

        @dlq.guard(source="orders", extract=where(id="id"), policy=Policy(max_attempts=2))
        def handle(order: dict[str, int]) -> int:
            if order["id"] % 2:
                raise ValueError(f"odd {order['id']}")
            return order["id"]

        answers: list[Any] = []
        errors: list[BaseException] = []

        def work(start: int) -> None:
            try:
                answers.extend(handle({"id": number}) for number in range(start, start + 20))
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=[20 * number]) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert errors == []
        assert sorted(answer for answer in answers if answer is not None) == list(range(0, 160, 2))
        assert sorted(int(letter.source_id) for letter in dlq.find()) == list(range(1, 160, 2))


def test_a_plain_handler_can_be_guarded_inside_a_running_loop(tmp_path: Path) -> None:
    async def story() -> None:
        async with redrive.open(f"sqlite:{tmp_path}/redrive.db") as dlq:

            @dlq.guard(source="orders", policy=NO_RETRY)
            def handle(order: str) -> None:
                raise ValueError("bad")

            assert handle("a") is None
            await asyncio.to_thread(handle, "b")
            assert await dlq.letters.count() == 2

    asyncio.run(story())


def test_a_retried_plain_handler_may_run_a_loop_of_its_own(dlq: blocking.DeadLetters) -> None:
    calls = []

    @dlq.guard(source="orders")
    def handle(order: str) -> str:
        async def inner() -> str:
            async with redrive.open("memory:") as other:
                await other.capture("x", ValueError("y"), source="inner")
                await asyncio.sleep(0)
                return str(await other.letters.count())

        calls.append(order)
        if len(calls) < 3:
            raise ValueError("bad")
        return asyncio.run(inner())

    assert handle("a") == "1"


def test_a_guard_keeps_nothing_alive_once_its_call_is_over(dlq: blocking.DeadLetters) -> None:
    """The body of a failed message may be large: it must not wait for the garbage collector."""
    import gc
    import weakref

    class Order:
        pass

    @dlq.guard(source="orders", policy=NO_RETRY, extract=lambda order: Message(body=b"x"))
    def handle(order: Order) -> None:
        raise ValueError("bad")

    order = Order()
    gone = weakref.ref(order)
    gc.disable()
    try:
        handle(order)
        del order
        assert gone() is None
    finally:
        gc.enable()
