"""Driving letters back to functions: which are called, with what, and what becomes of each letter."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

import redrive
from redrive import EVERYTHING, Failure, Message, Policy, RedriveError, RetryPlan, Status, blocking, where
from redrive.engine.dead_letters import DeadLetters
from redrive.model.operation import Delivered, Entry, OperationStatus, Refused
from tests.unit.targets import BAD, Tell, answering, captured, entries, teller


@pytest.fixture(params=["memory", "sqlite"])
def tell(request: pytest.FixtureRequest, tmp_path: Path) -> Tell:
    return teller("memory:" if request.param == "memory" else f"sqlite:{tmp_path}/redrive.db")


def test_a_function_that_works_completes_the_letter(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        received: list[Any] = []
        id = await captured(dlq, {"id": 7})
        report = await dlq.redrive(received.append, by="ann", query=EVERYTHING)
        letter = await dlq.get(id)
        assert received == [{"id": 7}]
        assert (report.entries, report.skipped, report.overtaken, report.stopped) == ({Entry.CONFIRMED: 1}, 0, 0, "")
        assert letter.status is Status.COMPLETED
        assert (letter.redrive.count, letter.redrive.operation) == (1, report.operation)
        operation = await dlq.desk.operation(report.operation)
        assert operation is not None
        assert (operation.status, operation.total, operation.by) == (OperationStatus.FINISHED, 1, "ann")
        assert operation.finished_at is not None
        assert await entries(dlq, report.operation) == {id: Entry.CONFIRMED}

    tell(story)


def test_an_async_function_is_awaited_on_the_callers_loop(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        loops: list[Any] = []

        async def handle(order: Any) -> None:
            await asyncio.sleep(0)
            loops.append(asyncio.get_running_loop())

        await captured(dlq, "a")
        assert (await dlq.redrive(handle, query=EVERYTHING)).entries == {Entry.CONFIRMED: 1}
        assert loops == [asyncio.get_running_loop()]

    tell(story)


async def work_async(log: list[Any], order: Any) -> None:
    await asyncio.sleep(0)
    log.append(order)


class AsyncHandler:
    def __init__(self, log: list[Any]) -> None:
        self.log = log

    async def __call__(self, order: Any) -> None:
        await work_async(self.log, order)


@pytest.mark.parametrize(
    "made",
    [
        lambda log: lambda order: work_async(log, order),
        AsyncHandler,
        lambda log: functools.partial(work_async, log),
        lambda log: AsyncHandler(log).__call__,
    ],
    ids=["lambda", "callable object", "partial", "bound method"],
)
def test_no_letter_is_completed_before_its_async_handler_ran(made: Callable[[list[Any]], Any]) -> None:
    """Whatever returns an awaitable is awaited: else the work is never done and the letter is closed all the same."""

    async def story() -> None:
        async with redrive.open("memory:") as dlq:
            log: list[Any] = []
            id = await captured(dlq, "a")
            await dlq.redrive(made(log), query=EVERYTHING)
            assert log == ["a"] or (await dlq.get(id)).status is Status.PENDING
            assert log == ["a"]

    asyncio.run(story())


def test_a_generator_function_is_not_taken_for_a_handler_that_worked() -> None:
    with blocking.open("memory:") as dlq:
        log: list[Any] = []

        def handle(order: Any) -> Any:
            log.append(order)
            yield order

        dlq.capture("a", BAD, source="orders")
        with suppress(RedriveError):
            dlq.redrive(handle, query=EVERYTHING)
        (letter,) = dlq.find()
        assert log or letter.status is not Status.COMPLETED


@pytest.mark.parametrize(
    "made",
    [
        lambda f: functools.partial(f, "extra"),
        lambda f: type("Handler", (), {"__call__": lambda self, order: f("extra", order)})(),
    ],
    ids=["partial", "callable object"],
)
def test_any_callable_can_be_the_target(made: Callable[[Any], Any]) -> None:
    with blocking.open("memory:") as dlq:
        log: list[Any] = []
        dlq.capture("a", BAD, source="orders")
        assert dlq.redrive(made(lambda *args: log.append(args)), query=EVERYTHING).entries == {Entry.CONFIRMED: 1}
        assert log == [("extra", "a")]


class Order(msgspec.Struct):
    id: int
    at: datetime


@dataclasses.dataclass
class Invoice:
    number: int
    lines: list[str]


NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize("value", [Order(id=7, at=NOON), Invoice(number=1, lines=["a"])], ids=["msgspec", "dataclass"])
def test_a_typed_handler_gets_its_type_again(value: Any) -> None:
    received: list[Any] = []

    def handle(order: Any) -> None:
        received.append(order)

    handle.__annotations__["order"] = type(value)
    with blocking.open("memory:") as dlq:
        dlq.capture(value, BAD, source="orders")
        assert dlq.redrive(handle, query=EVERYTHING).entries == {Entry.CONFIRMED: 1}
    assert received == [value]


def test_a_typed_handler_that_was_called_by_keyword_gets_its_type_again() -> None:
    received: list[Any] = []

    with blocking.open("memory:") as dlq:

        @dlq.guard(source="orders", policy=Policy(max_attempts=1))
        def handle(order: Order) -> None:
            received.append(order)
            if len(received) == 1:
                raise BAD

        handle(order=Order(id=7, at=NOON))
        assert dlq.redrive(handle, query=EVERYTHING).entries == {Entry.CONFIRMED: 1}
    assert received == [Order(id=7, at=NOON)] * 2


def test_a_handler_of_several_typed_arguments_gets_all_its_types_again() -> None:
    received: list[Any] = []

    with blocking.open("memory:") as dlq:

        @dlq.guard(source="orders", policy=Policy(max_attempts=1))
        def handle(order: Order, invoice: Invoice) -> None:
            received.append((order, invoice))
            if len(received) == 1:
                raise BAD

        handle(Order(id=7, at=NOON), Invoice(number=1, lines=[]))
        dlq.redrive(handle, query=EVERYTHING)
    assert received == [(Order(id=7, at=NOON), Invoice(number=1, lines=[]))] * 2


def test_a_body_that_does_not_fit_the_type_is_a_failure_with_its_reason() -> None:
    def handle(order: Order) -> None:
        raise AssertionError("never called")

    with blocking.open("memory:") as dlq:
        dlq.capture({"id": "seven"}, BAD, source="orders")
        report = dlq.redrive(handle, query=EVERYTHING)
        (letter,) = dlq.find()
        (row,) = dlq.desk.ledger(report.operation)
    assert report.entries == {Entry.FAILED: 1}
    assert "Expected `int`, got `str`" in row.detail
    assert (letter.status, letter.attempts) == (Status.PENDING, 1)


def test_a_handler_may_ask_for_the_message_itself() -> None:
    received: list[Message] = []

    def handle(message: Message) -> None:
        received.append(message)

    with blocking.open("memory:") as dlq:
        letter = dlq.capture(Message(body=b"\xff", id="7", key=b"k", headers=(("a", b"1"),)), BAD, source="orders").letter
        dlq.redrive(handle, query=EVERYTHING)
    (message,) = received
    assert (message.body, message.id, message.key) == (b"\xff", "7", b"k")
    assert dict(message.headers) == {
        "a": b"1",
        "redrive-id": str(letter.id).encode(),
        "redrive-generation": b"1",
        "redrive-source-id": b"7",
    }
    assert (message.redrive_id, message.generation) == (letter.id, 1)


def test_annotations_that_mean_nothing_to_python_are_no_obstacle() -> None:
    received: list[Any] = []

    def handle(order: "the order to ship") -> None:  # type: ignore[valid-type]  # noqa: F722 - some write prose there
        received.append(order)

    handle.__annotations__["order"] = "the order to ship"
    with blocking.open("memory:") as dlq:
        dlq.capture("a", BAD, source="orders")
        assert dlq.redrive(handle, query=EVERYTHING).entries == {Entry.CONFIRMED: 1}
    assert received == ["a"]


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_a_handler_that_fails_again_keeps_the_letter_open_with_one_more_line_of_history(tell: Tell, is_async: bool) -> None:
    def fail(order: Any) -> None:
        raise ConnectionError("still down")

    async def fail_async(order: Any) -> None:
        raise ConnectionError("still down")

    async def story(dlq: DeadLetters) -> None:
        id = await captured(dlq, "a")
        report = await dlq.redrive(fail_async if is_async else fail, query=EVERYTHING)
        letter = await dlq.get(id)
        assert report.entries == {Entry.FAILED: 1}
        assert (letter.status, letter.attempts, letter.generation) == (Status.PENDING, 2, 1)
        assert (letter.failure.type, letter.failure.message) == ("builtins.ConnectionError", "still down")
        assert (letter.retry.retry_count, letter.redrive.count) == (1, 0)
        assert letter.history[-1].took is not None
        (row,) = await dlq.desk.ledger(report.operation)
        assert (row.entry, row.detail) == (Entry.FAILED, "still down")

    tell(story)


@pytest.mark.parametrize(("policy", "minutes"), [("never", None), ("immediate", 0), ("linear", 10), ("exponential", 2)])
def test_a_failed_retry_is_planned_anew_as_its_policy_says(policy: str, minutes: int | None) -> None:
    with blocking.open("memory:") as dlq:
        id = dlq.capture("a", BAD, source="orders", retry=RetryPlan(policy=policy, max_retries=3)).letter.id
        dlq.redrive(answering(Refused(failure=Failure(type="x.Y"))), query=EVERYTHING)
        letter = dlq.get(id)
        if minutes is None:
            assert letter.retry.next_retry_at is None
        else:
            assert letter.retry.next_retry_at == letter.history[-1].at + timedelta(minutes=minutes)


def test_the_last_retry_exhausts_the_letter_and_a_person_can_still_drive_it_back(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        id = await captured(dlq, "a", retry=RetryPlan(policy="immediate", max_retries=2))
        refuse = answering(Refused(failure=Failure(type="x.Y")))
        await dlq.redrive(refuse, query=EVERYTHING)
        assert (await dlq.get(id)).status is Status.PENDING
        await dlq.redrive(refuse, query=EVERYTHING)
        letter = await dlq.get(id)
        assert (letter.status, letter.retry.next_retry_at) == (Status.EXHAUSTED, None)
        assert (await dlq.redrive(answering(Delivered(confirmed=True)), query=EVERYTHING)).entries == {Entry.CONFIRMED: 1}
        assert (await dlq.get(id)).status is Status.COMPLETED

    tell(story)


def test_a_guarded_handler_stands_aside_so_that_its_failure_is_not_held_twice(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        calls = []

        @dlq.guard(source="orders", extract=where(id="id"), policy=Policy(max_attempts=3))
        def handle(order: Any) -> None:
            calls.append(order)
            raise BAD

        await asyncio.to_thread(handle, {"id": 1})
        assert len(calls) == 3
        assert (await dlq.redrive(handle, query=EVERYTHING)).entries == {Entry.FAILED: 1}
        assert len(calls) == 4
        (letter,) = [letter async for letter in dlq.find()]
        assert (letter.attempts, letter.generation) == (4, 1)

    tell(story)
