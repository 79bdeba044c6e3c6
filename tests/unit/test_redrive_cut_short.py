"""A redrive that is cut short: no handler runs on behind a letter that was given back, and no answer is thrown away."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

import redrive
from redrive import Status, blocking
from redrive.model.message import Message
from redrive.model.operation import Delivered, Delivery, Entry

BAD = ValueError("bad")


def test_a_plain_handler_that_runs_out_of_an_iterator_has_failed() -> None:
    def handle(order: Any) -> None:
        next(iter([]))

    with blocking.open("memory:") as dlq:
        dlq.capture("a", BAD, source="orders")
        assert dlq.redrive(handle, source="orders").entries == {Entry.FAILED: 1}
        (letter,) = dlq.find()
    assert letter.failure.type == "builtins.StopIteration"


def test_a_handler_that_cancels_itself_has_failed_and_the_others_go_on() -> None:
    worked: list[str] = []

    async def handle(order: str) -> None:
        if order == "b":
            raise asyncio.CancelledError
        worked.append(order)

    with blocking.open("memory:") as dlq:
        for order in "abc":
            dlq.capture(order, BAD, source="orders")
        assert dlq.redrive(handle, source="orders").entries == {Entry.CONFIRMED: 2, Entry.FAILED: 1}
    assert sorted(worked) == ["a", "c"]


def test_a_letter_is_given_back_only_when_its_handler_is_done(tmp_path: Path) -> None:
    started, release, ended = threading.Event(), threading.Event(), threading.Event()

    def handle(order: str) -> None:
        started.set()
        assert release.wait(20)
        ended.set()

    async def story() -> None:
        async with redrive.open(f"sqlite:{tmp_path}/redrive.db") as dlq:
            id = (await dlq.capture("a", BAD, source="orders")).letter.id
            task = asyncio.create_task(dlq.redrive(handle, source="orders"))
            assert await asyncio.to_thread(started.wait, 20)
            task.cancel()
            await asyncio.wait([task], timeout=0.2)
            assert not task.done()
            assert (await dlq.get(id)).status is Status.RETRYING
            release.set()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert ended.is_set()
            assert (await dlq.get(id)).status is Status.PENDING

    asyncio.run(story())


def test_an_answer_that_came_is_recorded_although_the_caller_gave_up(tmp_path: Path) -> None:
    class Slow:
        """Answers, and is cancelled in the same instant."""

        name = "slow:"

        async def send(self, messages: list[Message]) -> list[Delivery]:
            task.cancel()
            return [Delivered(confirmed=True)] * len(messages)

    async def story() -> None:
        nonlocal task
        async with redrive.open(f"sqlite:{tmp_path}/redrive.db") as dlq:
            id = (await dlq.capture("a", BAD, source="orders")).letter.id
            target: Any = Slow()
            task = asyncio.create_task(dlq.redrive(target, source="orders"))
            with pytest.raises(asyncio.CancelledError):
                await task
            (operation,) = await dlq.desk.operations()
            assert [row.entry for row in await dlq.desk.ledger(operation.id)] == [Entry.CONFIRMED]
            assert (await dlq.get(id)).status is Status.COMPLETED

    task: asyncio.Task[Any]
    asyncio.run(story())
