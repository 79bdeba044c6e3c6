"""Driving letters back: to functions and queues, and what becomes of each letter."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest

import redrive
from redrive import (
    BadSettings,
    Bury,
    Failure,
    Held,
    Message,
    Policy,
    RedriveError,
    Retry,
    RetryPlan,
    Status,
    StoreUnavailable,
    Unsupported,
    blocking,
    where,
)
from redrive.backends.memory import MemoryDesk, MemoryLetters, MemoryTransport
from redrive.engine.dead_letters import DeadLetters, Limits
from redrive.model.lease import Claim
from redrive.model.operation import Delivered, Delivery, Entry, OperationStatus, Refused, Unknown
from redrive.model.query import Field, Is
from redrive.model.settlement import Completed, Settled, Settlement
from redrive.wiring import transport

BAD = ValueError("bad")
Story = Callable[[DeadLetters], Awaitable[None]]


@pytest.fixture(params=["memory", "sqlite"])
def tell(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Story], None]:
    """Run a story on each embedded store."""

    def run(story: Story) -> None:
        async def whole() -> None:
            async with redrive.open("memory:" if request.param == "memory" else f"sqlite:{tmp_path}/redrive.db") as dlq:
                await story(dlq)

        asyncio.run(whole())

    return run


Tell = Callable[[Story], None]


async def captured(dlq: DeadLetters, message: Any, **more: Any) -> UUID:
    return (await dlq.capture(message, BAD, **({"source": "orders"} | more))).letter.id


async def entries(dlq: DeadLetters, operation: UUID) -> dict[UUID, Entry]:
    return {row.letter: row.entry for row in await dlq.desk.ledger(operation)}


class Target:
    """A transport that does as it is told and remembers what it was sent."""

    name = "test:"

    def __init__(self, answer: Callable[[Sequence[Message]], Awaitable[list[Delivery]]]) -> None:
        self.answer = answer
        self.sent: list[Message] = []

    async def send(self, messages: Sequence[Message]) -> list[Delivery]:
        self.sent += messages
        return await self.answer(messages)

    async def receive(self, *, limit: int = 10, lease: timedelta = timedelta(seconds=30)) -> list[Any]:
        raise Unsupported("not here")

    async def settle(self, handles: Sequence[str], *, done: bool) -> list[bool]:
        raise Unsupported("not here")

    async def peek(self, *, limit: int = 10) -> list[Message]:
        raise Unsupported("not here")


def answering(*deliveries: Delivery) -> Target:
    async def answer(messages: Sequence[Message]) -> list[Delivery]:
        return list(deliveries)

    return Target(answer)


def test_a_function_that_works_completes_the_letter(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        received: list[Any] = []
        id = await captured(dlq, {"id": 7})
        report = await dlq.redrive(received.append, by="ann")
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
        assert (await dlq.redrive(handle)).entries == {Entry.CONFIRMED: 1}
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
            await dlq.redrive(made(log))
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
            dlq.redrive(handle)
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
        assert dlq.redrive(made(lambda *args: log.append(args))).entries == {Entry.CONFIRMED: 1}
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
        assert dlq.redrive(handle).entries == {Entry.CONFIRMED: 1}
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
        assert dlq.redrive(handle).entries == {Entry.CONFIRMED: 1}
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
        dlq.redrive(handle)
    assert received == [(Order(id=7, at=NOON), Invoice(number=1, lines=[]))] * 2


def test_a_body_that_does_not_fit_the_type_is_a_failure_with_its_reason() -> None:
    def handle(order: Order) -> None:
        raise AssertionError("never called")

    with blocking.open("memory:") as dlq:
        dlq.capture({"id": "seven"}, BAD, source="orders")
        assert dlq.redrive(handle).entries == {Entry.FAILED: 1}
        (letter,) = dlq.find()
    assert letter.failure.type == "msgspec.ValidationError"
    assert letter.status is Status.PENDING


def test_a_handler_may_ask_for_the_message_itself() -> None:
    received: list[Message] = []

    def handle(message: Message) -> None:
        received.append(message)

    with blocking.open("memory:") as dlq:
        letter = dlq.capture(Message(body=b"\xff", id="7", key=b"k", headers=(("a", b"1"),)), BAD, source="orders").letter
        dlq.redrive(handle)
    (message,) = received
    assert (message.body, message.id, message.key) == (b"\xff", "7", b"k")
    assert dict(message.headers) == {"a": b"1", "redrive-id": str(letter.id).encode(), "redrive-generation": b"1"}
    assert (message.redrive_id, message.generation) == (letter.id, 1)


def test_annotations_that_mean_nothing_to_python_are_no_obstacle() -> None:
    received: list[Any] = []

    def handle(order: "the order to ship") -> None:  # type: ignore[valid-type]  # noqa: F722 - some write prose there
        received.append(order)

    handle.__annotations__["order"] = "the order to ship"
    with blocking.open("memory:") as dlq:
        dlq.capture("a", BAD, source="orders")
        assert dlq.redrive(handle).entries == {Entry.CONFIRMED: 1}
    assert received == ["a"]


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_a_handler_that_fails_again_keeps_the_letter_open_with_one_more_line_of_history(tell: Tell, is_async: bool) -> None:
    def fail(order: Any) -> None:
        raise ConnectionError("still down")

    async def fail_async(order: Any) -> None:
        raise ConnectionError("still down")

    async def story(dlq: DeadLetters) -> None:
        id = await captured(dlq, "a")
        report = await dlq.redrive(fail_async if is_async else fail)
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
        dlq.redrive(answering(Refused(failure=Failure(type="x.Y"))))
        letter = dlq.get(id)
        if minutes is None:
            assert letter.retry.next_retry_at is None
        else:
            assert letter.retry.next_retry_at == letter.history[-1].at + timedelta(minutes=minutes)


def test_the_last_retry_exhausts_the_letter_and_a_person_can_still_drive_it_back(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        id = await captured(dlq, "a", retry=RetryPlan(policy="immediate", max_retries=2))
        refuse = answering(Refused(failure=Failure(type="x.Y")))
        await dlq.redrive(refuse)
        assert (await dlq.get(id)).status is Status.PENDING
        await dlq.redrive(refuse)
        letter = await dlq.get(id)
        assert (letter.status, letter.retry.next_retry_at) == (Status.EXHAUSTED, None)
        assert (await dlq.redrive(answering(Delivered(confirmed=True)))).entries == {Entry.CONFIRMED: 1}
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
        assert (await dlq.redrive(handle)).entries == {Entry.FAILED: 1}
        assert len(calls) == 4
        (letter,) = [letter async for letter in dlq.find()]
        assert (letter.attempts, letter.generation) == (4, 1)

    tell(story)


def test_a_queue_takes_the_message_and_the_letter_waits_for_its_outcome(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        queue = MemoryTransport("orders")
        id = await captured(dlq, Message(body=b"raw", id="7", headers=(("a", b"1"), ("Redrive-Id", b"old"))))
        report = await dlq.redrive(queue)
        letter = await dlq.get(id)
        assert report.entries == {Entry.SENT: 1}
        assert await entries(dlq, report.operation) == {id: Entry.SENT}
        assert (letter.status, letter.redrive.count) == (Status.REDRIVEN, 1)
        (parcel,) = await queue.receive()
        assert parcel.message.body == b"raw"
        assert parcel.message.headers == (("a", b"1"), ("redrive-id", str(id).encode()), ("redrive-generation", b"1"))

    tell(story)


def test_a_redriven_message_that_fails_again_reopens_the_same_letter_and_voids_its_leases(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        queue = MemoryTransport()
        id = await captured(dlq, Message(body=b"raw", id="7"))
        await dlq.redrive(queue)
        (parcel,) = await queue.receive()

        @dlq.guard(source="orders", policy=Policy(max_attempts=1))
        async def consume(message: Message) -> None:
            raise ConnectionError("down again")

        assert await consume(parcel.message) == Bury()
        letter = await dlq.get(id)
        assert (letter.generation, letter.status, letter.attempts) == (2, Status.PENDING, 2)
        assert letter.failure.message == "down again"
        assert await dlq.letters.count() == 1

        (claimed,) = await dlq.letters.claim(Claim(owner="slow", lease=timedelta(hours=1), ids=(id,)))
        late = Message(body=b"raw", id="7", headers=(("redrive-id", str(id).encode()), ("redrive-generation", b"2")))
        assert (await dlq.capture(late, BAD, source="orders")).held is Held.REOPENED
        assert await dlq.letters.settle([Settlement.of(claimed.lease, Completed())]) == [Settled.LEASE_LOST]
        letter = await dlq.get(id)
        assert (letter.generation, letter.status) == (3, Status.PENDING)

    tell(story)


def test_a_letter_that_is_reopened_while_it_is_sent_is_overtaken_and_only_the_ledger_knows(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        id = await captured(dlq, Message(body=b"raw", id="7"))

        async def fails_meanwhile(messages: Sequence[Message]) -> list[Delivery]:
            assert (await dlq.capture(messages[0], BAD, source="orders")).held is Held.REOPENED
            return [Delivered()]

        report = await dlq.redrive(Target(fails_meanwhile))
        letter = await dlq.get(id)
        assert (report.entries, report.overtaken) == ({Entry.SENT: 1}, 1)
        assert (letter.generation, letter.status) == (2, Status.PENDING)
        (row,) = await dlq.desk.ledger(report.operation)
        assert (row.entry, row.generation) == (Entry.SENT, 1)

    tell(story)


def test_an_answer_that_was_lost_is_unknown_neither_success_nor_failure(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        id = await captured(dlq, "a")
        report = await dlq.redrive(answering(Unknown(reason="connection cut")))
        letter = await dlq.get(id)
        assert report.entries == {Entry.UNKNOWN: 1}
        assert letter.status is Status.REDRIVEN
        assert (letter.history[-1].outcome_unknown, letter.history[-1].message) == (True, "connection cut")
        assert letter.retry.retry_count == 0

    tell(story)


def test_each_letter_of_a_batch_is_settled_by_its_own_answer(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        ids = [await captured(dlq, str(number)) for number in range(4)]
        report = await dlq.redrive(
            answering(
                Delivered(confirmed=True), Refused(failure=Failure(type="x.Y", message="no")), Unknown(reason="?"), Delivered()
            ),
            ids=ids,
        )
        assert report.entries == {Entry.CONFIRMED: 1, Entry.FAILED: 1, Entry.UNKNOWN: 1, Entry.SENT: 1}
        assert [(await dlq.get(id)).status for id in ids] == [Status.COMPLETED, Status.PENDING, Status.REDRIVEN, Status.REDRIVEN]

    tell(story)


@pytest.mark.parametrize(
    "error",
    [StoreUnavailable("broker is down"), OSError("no route"), RuntimeError("bug")],
    ids=lambda error: type(error).__name__,
)
def test_when_a_transport_raises_the_letters_are_given_back(tell: Tell, error: Exception) -> None:
    async def story(dlq: DeadLetters) -> None:
        async def fail(messages: Sequence[Message]) -> list[Delivery]:
            raise error

        ids = [await captured(dlq, str(number)) for number in range(3)]
        before = [await dlq.get(id) for id in ids]
        if isinstance(error, RedriveError):
            report = await dlq.redrive(Target(fail), ids=ids, batch=2)
            assert (report.entries, report.stopped) == ({}, "broker is down")
        else:
            with pytest.raises(type(error)):
                await dlq.redrive(Target(fail), ids=ids, batch=2)
        assert [await dlq.get(id) for id in ids] == before
        (operation,) = await dlq.desk.operations()
        assert operation.status is OperationStatus.STOPPED
        assert list((await entries(dlq, operation.id)).values()) == [Entry.INTENDED] * 2
        assert (await dlq.redrive(answering(Delivered(), Delivered(), Delivered()), ids=ids)).entries == {Entry.SENT: 3}

    tell(story)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_transport_that_answers_for_too_few_or_too_many_is_not_believed(count: int) -> None:
    async def story() -> None:
        async with redrive.open("memory:") as dlq:
            ids = [await captured(dlq, str(number)) for number in range(2)]
            with pytest.raises(Exception, match=r".+"):
                await dlq.redrive(answering(*[Delivered(confirmed=True)] * count), ids=ids)
            assert {(await dlq.get(id)).status for id in ids} == {Status.PENDING}

    asyncio.run(story())


def test_a_redrive_that_is_cancelled_in_the_middle_gives_the_letters_back(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        sending = asyncio.Event()

        async def hang(messages: Sequence[Message]) -> list[Delivery]:
            sending.set()
            await asyncio.Event().wait()
            raise AssertionError

        ids = [await captured(dlq, str(number)) for number in range(3)]
        task = asyncio.create_task(dlq.redrive(Target(hang), ids=ids))
        await sending.wait()
        assert {(await dlq.get(id)).status for id in ids} == {Status.RETRYING}
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert {(await dlq.get(id)).status for id in ids} == {Status.PENDING}
        (operation,) = await dlq.desk.operations()
        assert (operation.status, operation.total) == (OperationStatus.STOPPED, 3)
        assert set((await entries(dlq, operation.id)).values()) == {Entry.INTENDED}

    tell(story)


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_a_handler_that_exits_does_not_hang_the_caller(is_async: bool, tmp_path: Path) -> None:
    """Scripts that serve as handlers call `sys.exit()`. In a process of its own, since an exit ends what it reaches."""
    program = f"""
import sys
from redrive import blocking
{"async " if is_async else ""}def handle(order):
    sys.exit(3)
dlq = blocking.open("sqlite:redrive.db")
dlq.capture("a", ValueError("bad"), source="orders")
try:
    dlq.redrive(handle)
except BaseException as error:
    print("raised", type(error).__name__)
print([letter.status.value for letter in dlq.find()])
"""
    try:
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=5, check=False
        )
    except subprocess.TimeoutExpired:
        pytest.fail("the call never came back")
    assert done.stdout.splitlines()[-1] == "['pending']"


@asynccontextmanager
async def short_leases(lease: timedelta) -> AsyncIterator[DeadLetters]:
    dlq = DeadLetters(MemoryLetters(), MemoryDesk(), limits=Limits(lease=lease))
    try:
        yield dlq
    finally:
        await dlq.close()


def test_heartbeats_keep_the_leases_of_a_long_send_alive() -> None:
    async def story() -> None:
        lease = timedelta(milliseconds=90)
        async with short_leases(lease) as dlq:
            id = await captured(dlq, "a")
            thieves: list[Any] = []

            async def slow(messages: Sequence[Message]) -> list[Delivery]:
                deadline = asyncio.get_running_loop().time() + 5 * lease.total_seconds()
                while asyncio.get_running_loop().time() < deadline:
                    thieves.extend(await dlq.letters.claim(Claim(owner="thief", lease=lease, ids=(id,))))
                    await asyncio.sleep(lease.total_seconds() / 10)
                return [Delivered()]

            report = await dlq.redrive(Target(slow))
            assert thieves == []
            assert (report.entries, report.overtaken) == ({Entry.SENT: 1}, 0)
            assert (await dlq.get(id)).status is Status.REDRIVEN

    asyncio.run(story())


def test_heartbeats_go_on_while_a_plain_function_works() -> None:
    async def story() -> None:
        lease = timedelta(milliseconds=90)
        async with short_leases(lease) as dlq:
            id = await captured(dlq, "a")
            started, release = threading.Event(), threading.Event()

            def slow(order: Any) -> None:
                started.set()
                assert release.wait(10)

            task = asyncio.create_task(dlq.redrive(slow))
            assert await asyncio.to_thread(started.wait, 10)
            deadline = asyncio.get_running_loop().time() + 4 * lease.total_seconds()
            while asyncio.get_running_loop().time() < deadline:
                assert await dlq.letters.claim(Claim(owner="thief", lease=lease, ids=(id,))) == []
                await asyncio.sleep(lease.total_seconds() / 10)
            release.set()
            assert (await task).overtaken == 0

    asyncio.run(story())


def test_an_owner_that_lost_its_lease_settles_nothing() -> None:
    async def story() -> None:
        async with short_leases(timedelta(milliseconds=30)) as dlq:
            id = await captured(dlq, "a")

            async def blocks_the_loop(messages: Sequence[Message]) -> list[Delivery]:
                stolen: list[Any] = []
                while not stolen:
                    # No await that lets a heartbeat run: the loop is blocked, as a busy handler would.
                    stolen = await dlq.letters.claim(Claim(owner="other", lease=timedelta(hours=1), ids=(id,)))
                return [Delivered(confirmed=True)]

            report = await dlq.redrive(Target(blocks_the_loop))
            assert (report.entries, report.overtaken) == ({Entry.CONFIRMED: 1}, 1)
            assert (await dlq.get(id)).status is Status.RETRYING

    asyncio.run(story())


def test_what_is_not_open_is_skipped_and_what_is_unknown_too(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        done, held, free = [await captured(dlq, text) for text in ("done", "held", "free")]
        await dlq.redrive(answering(Delivered(confirmed=True)), ids=[done])
        await dlq.letters.claim(Claim(owner="other", lease=timedelta(hours=1), ids=(held,)))
        target = answering(Delivered())
        report = await dlq.redrive(target, ids=[done, held, free, free, uuid4()])
        assert (report.entries, report.skipped) == ({Entry.SENT: 1}, 3)
        assert [message.body for message in target.sent] == [b"free"]

    tell(story)


def test_a_query_chooses_and_the_choice_is_frozen_when_it_begins(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        for number in range(5):
            await captured(dlq, str(number), source="orders" if number % 2 else "others")
        received: list[Any] = []

        async def handle(order: str) -> None:
            received.append(order)
            await captured(dlq, f"again {order}")

        report = await dlq.redrive(handle, query=Is(Field.SOURCE, "orders"), batch=1)
        assert received == ["1", "3"]
        assert report.entries == {Entry.CONFIRMED: 2}

    tell(story)


def test_nothing_to_send_is_an_operation_all_the_same(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        target = answering()
        report = await dlq.redrive(target)
        assert (report.entries, target.sent) == ({}, [])
        assert [operation.status for operation in await dlq.desk.operations()] == [OperationStatus.FINISHED]

    tell(story)


@pytest.mark.parametrize("batch", [0, -1])
def test_a_batch_of_none_is_refused(batch: int) -> None:
    with blocking.open("memory:") as dlq:
        dlq.capture("a", BAD, source="orders")
        with pytest.raises((BadSettings, ValueError)):
            dlq.redrive(print, batch=batch)


def test_the_intent_is_written_before_anything_is_sent(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        seen: list[Any] = []

        async def look(messages: Sequence[Message]) -> list[Delivery]:
            (operation,) = await dlq.desk.operations()
            seen.append((operation.status, list((await entries(dlq, operation.id)).values())))
            return [Delivered()]

        await captured(dlq, "a")
        await dlq.redrive(Target(look))
        assert seen == [(OperationStatus.RUNNING, [Entry.INTENDED])]

    tell(story)


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("py:", "does not name a function; write module:function"),
        ("py:json", "does not name a function; write module:function"),
        ("py:no_such_module:f", "cannot import 'no_such_module'"),
        ("py:json:no_such_function", "'json' has no 'no_such_function'"),
        ("py:json:__doc__", "is a str, not a function"),
        ("py:.relative:f", "cannot import '.relative'"),
        ("smtp:x", "no target answers to 'smtp:'; known are py:, command:"),
        ("comand:", "did you mean command:?"),
        ("handle", "'handle' has no scheme; a target's URL begins with one of py:, command:"),
        ("", "has no scheme"),
    ],
)
def test_a_target_that_is_not_there_gets_one_clear_sentence(url: str, sentence: str) -> None:
    with pytest.raises(BadSettings) as refused:
        transport(url)
    assert sentence in str(refused.value)


def test_a_target_whose_module_is_broken_gets_one_clear_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    for name, text in (
        ("broken_syntax", "def f(:"),
        ("broken_name", "undefined_name"),
        ("broken_attribute", "import json; json.nothing"),
    ):
        (tmp_path / f"{name}.py").write_text(text)
        with pytest.raises(BadSettings, match=f"cannot import '{name}'"):
            transport(f"py:{name}:f")


def test_a_function_can_only_be_sent_to() -> None:
    target = transport("py:json:dumps")
    assert target.name == "py:json:dumps"
    for verb in (target.receive(), target.peek(), target.settle([], done=True)):
        with pytest.raises(Unsupported, match="a function can be sent to, but not"):
            asyncio.run(verb)  # type: ignore[arg-type]  # a coroutine


def test_the_queue_in_memory_gives_out_again_what_was_not_acknowledged() -> None:
    async def story() -> None:
        queue = MemoryTransport()
        assert await queue.send([Message(body=b"a"), Message(body=b"b")]) == [Delivered(), Delivered()]
        first, second = await queue.receive(limit=5)
        assert (first.message.body, first.message.delivery_count) == (b"a", 1)
        assert await queue.receive() == []
        assert await queue.settle([first.handle, second.handle], done=True) == [True, True]
        assert await queue.settle([first.handle], done=True) == [False]
        assert await queue.peek() == []
        await queue.send([Message(body=b"c")])
        (given,) = await queue.receive(lease=timedelta(0))
        (again,) = await queue.receive()
        assert again.message.delivery_count == 2
        assert await queue.settle([given.handle], done=True) == [False]
        assert await queue.settle([again.handle], done=False) == [True]
        assert [parcel.message.delivery_count for parcel in await queue.receive()] == [3]

    asyncio.run(story())


def test_a_consumer_of_that_queue_settles_by_verdict(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        queue = MemoryTransport()
        await queue.send([Message(body=b"a", id="1")])

        @dlq.guard(source="orders", policy=Policy(max_attempts=2))
        async def consume(message: Message) -> None:
            raise BAD

        (parcel,) = await queue.receive()
        assert isinstance(await consume(parcel.message), Retry)
        await queue.settle([parcel.handle], done=False)
        (parcel,) = await queue.receive()
        assert isinstance(await consume(parcel.message), Bury)
        await queue.settle([parcel.handle], done=True)
        assert (await queue.peek(), await dlq.letters.count()) == ([], 1)

    tell(story)
