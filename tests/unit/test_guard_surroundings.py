"""A guard where things are rough: a full disk, a closed store, many threads, loops within loops."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import redrive
from redrive import Message, NotHeld, Policy, blocking, where
from tests.unit.flaky import NO_RETRY, Flaky, guarded


@pytest.fixture
def dlq() -> Iterator[blocking.DeadLetters]:
    with blocking.open("memory:") as opened:
        yield opened


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
            case "each":
                (answer,) = guard.each(["x" * 100_000], fail)
                raise answer
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
            thread.join(60)
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
