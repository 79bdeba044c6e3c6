"""Work aside: in threads that are used again, that end when nobody needs them, and that nobody has to wait for."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time

import pytest

from redrive.ports.aside import aside, giving_way
from tests.unit.waiting import until


def _ours() -> set[int | None]:
    return {thread.ident for thread in threading.enumerate() if thread.name == "redrive-aside"}


def test_what_comes_one_after_another_is_done_in_one_thread() -> None:
    async def story() -> list[int]:
        return [await aside(threading.get_ident) for _ in range(20)]

    assert len(set(asyncio.run(story()))) == 1


def test_what_comes_at_once_is_done_at_once() -> None:
    meeting = threading.Barrier(5, timeout=10)

    async def story() -> list[int]:
        return await asyncio.gather(*[aside(meeting.wait) for _ in range(5)])

    assert sorted(asyncio.run(story())) == list(range(5))


def test_threads_that_nobody_needs_end() -> None:
    async def story() -> None:
        await asyncio.gather(*[aside(threading.get_ident) for _ in range(5)])

        async def are_gone() -> bool:
            return not _ours()

        await until(are_gone)

    asyncio.run(story())


def test_work_that_comes_while_a_thread_is_about_to_end_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redrive.ports.aside._IDLE_SECONDS", 0.001)

    async def story() -> int:
        done = 0
        for number in range(300):
            done += await asyncio.wait_for(aside(lambda: 1), 10)
            time.sleep(0.0005 + number % 7 * 0.0002)  # noqa: ASYNC251 - the instant at which it comes is what is tested
        return done

    assert asyncio.run(story()) == 300


def test_an_error_comes_to_who_asked_and_the_thread_works_on() -> None:
    def fail() -> None:
        raise ValueError("not today")

    async def story() -> None:
        for _ in range(3):
            with pytest.raises(ValueError, match="not today"):
                await aside(fail)
        with pytest.raises(RuntimeError, match="StopIteration"):
            await aside(lambda: next(iter(())))
        assert await aside(lambda: "fine") == "fine"

    asyncio.run(story())


def test_work_that_is_given_up_holds_up_nobody_else() -> None:
    is_begun, is_over = threading.Event(), threading.Event()

    def hang() -> None:
        is_begun.set()
        is_over.wait(60)

    async def story() -> str:
        hanging = asyncio.create_task(aside(hang))
        await asyncio.to_thread(is_begun.wait, 10)
        hanging.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hanging
        return await asyncio.wait_for(aside(lambda: "done"), 10)

    try:
        assert asyncio.run(story()) == "done"
    finally:
        is_over.set()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_process_that_was_forked_starts_threads_of_its_own() -> None:
    asyncio.run(aside(threading.get_ident))
    child = os.fork()
    if not child:
        is_done = asyncio.run(asyncio.wait_for(aside(lambda: True), 10))
        os._exit(0 if is_done else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_who_works_through_many_gives_way_to_others() -> None:
    turns: list[int] = []
    had_a_turn = False

    def work() -> None:
        # Again and again: on a busy machine whoever is given a turn may not be quick enough to take it.
        for _ in range(10_000):
            turns[:] = []
            turns.extend(giving_way(range(1000)))
            if had_a_turn:
                return

    assert list(giving_way([])) == []
    assert list(giving_way("abc")) == ["a", "b", "c"]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)  # whoever computes is not made to leave
    try:
        worker = threading.Thread(target=work)
        worker.start()
        while worker.is_alive():
            had_a_turn = had_a_turn or 0 < len(turns) < 1000
            time.sleep(0)
    finally:
        sys.setswitchinterval(interval)
        worker.join()
    assert turns == list(range(1000))
    assert had_a_turn, "nobody else had a turn"
