"""A guarded consumer that works on what redrive sent back: its letter is done, and the operation sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import redrive
from redrive import EVERYTHING, Message, Policy, Status, StoreUnavailable, blocking
from redrive.engine.dead_letters import DeadLetters
from redrive.model.lease import Claim
from redrive.model.operation import Delivered, Entry
from tests.unit.targets import BAD, Target, Tell, captured, teller


@pytest.fixture(params=["memory", "sqlite"])
def tell(request: pytest.FixtureRequest, tmp_path: Path) -> Tell:
    return teller("memory:" if request.param == "memory" else f"sqlite:{tmp_path}/redrive.db")


async def sent_back(dlq: DeadLetters, count: int = 1) -> tuple[list[Message], Any]:
    """Letters that were sent to a broker: what a consumer receives, and the operation."""
    for number in range(count):
        await captured(dlq, Message(body=b"x", id=str(number)), source="orders")

    async def take(messages: Sequence[Message]) -> list[Any]:
        return [Delivered()] * len(messages)

    broker = Target(take)
    report = await dlq.redrive(broker, query=EVERYTHING)
    assert report.entries == {Entry.SENT: count}
    return broker.sent, report.operation


def test_a_guarded_handler_that_works_confirms_the_letter(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        (message,), operation = await sent_back(dlq)

        @dlq.guard(source="orders")
        async def handle(message: Message) -> str:
            return "done"

        assert await handle(message) == "done"
        (letter,) = [letter async for letter in dlq.find()]
        assert letter.status is Status.COMPLETED
        assert (await dlq.operations.observe(operation)).entries == {Entry.CONFIRMED: 1}
        (row,) = [row async for row in dlq.operations.ledger(operation)]
        assert row.detail == "its handler said so"

    tell(story)


def test_one_that_fails_again_reopens_it(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        (message,), operation = await sent_back(dlq)

        class Consumer:
            @dlq.guard(source="orders", policy=Policy(max_attempts=1))
            async def handle(self, message: Message) -> None:
                raise ConnectionError("still down")

        await Consumer().handle(message)
        (letter,) = [letter async for letter in dlq.find()]
        assert (letter.status, letter.generation) == (Status.PENDING, 2)
        assert (await dlq.operations.observe(operation)).entries == {Entry.FAILED: 1}

    tell(story)


def test_a_block_that_works_confirms_the_letter_and_one_that_fails_does_not(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        messages, operation = await sent_back(dlq, 2)
        guard = dlq.guard(source="orders", policy=Policy(max_attempts=1))
        for message in messages:
            async with guard.attempt(message):
                if message.id == "1":
                    raise ConnectionError("still down")
        by_id = {letter.source_id: letter.status async for letter in dlq.find()}
        assert by_id == {"0": Status.COMPLETED, "1": Status.PENDING}
        assert (await dlq.operations.observe(operation)).entries == {Entry.CONFIRMED: 1, Entry.FAILED: 1}

    tell(story)


def test_a_batch_confirms_those_that_worked(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        messages, operation = await sent_back(dlq, 4)

        async def handle(message: Message) -> None:
            if message.id == "2":
                raise BAD

        guard = dlq.guard(source="orders", policy=Policy(max_attempts=1))
        await guard.each([*messages, Message(body=b"new", id="new")], handle)
        assert (await dlq.operations.observe(operation)).entries == {Entry.CONFIRMED: 3, Entry.FAILED: 1}

    tell(story)


def test_messages_of_another_form_are_confirmed_by_hand(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        messages, operation = await sent_back(dlq, 2)
        assert await dlq.confirm([*messages, Message(body=b"never sent back")]) == 2
        assert await dlq.confirm(messages) == 0, "they are done already"
        assert (await dlq.operations.observe(operation)).entries == {Entry.CONFIRMED: 2}

    tell(story)


def test_a_late_message_of_an_older_generation_confirms_nothing(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        (message,), _ = await sent_back(dlq)
        await dlq.capture(message, BAD, source="orders")
        assert await dlq.confirm([message]) == 0
        (letter,) = [letter async for letter in dlq.find()]
        assert (letter.status, letter.generation) == (Status.PENDING, 2)

    tell(story)


def test_a_consumer_that_is_quicker_than_the_sender_waits_for_it(tell: Tell) -> None:
    """The letter is still leased by whoever sent it when its message has worked already."""

    async def story(dlq: DeadLetters) -> None:
        await captured(dlq, Message(body=b"x", id="1"), source="orders")
        consumers: list[asyncio.Task[int]] = []

        async def take(messages: Sequence[Message]) -> list[Any]:
            consumers.append(asyncio.create_task(dlq.confirm(messages)))
            await asyncio.sleep(0)
            return [Delivered()] * len(messages)

        report = await dlq.redrive(Target(take), query=EVERYTHING)
        assert await consumers[0] == 1
        assert (await dlq.operations.observe(report.operation)).entries == {Entry.CONFIRMED: 1}

    tell(story)


def test_blocking_handlers_confirm_too(tmp_path: Path) -> None:
    with blocking.open(f"sqlite:{tmp_path}/redrive.db") as dlq:
        dlq.capture(Message(body=b"x", id="1"), BAD, source="orders")

        async def take(messages: Sequence[Message]) -> list[Any]:
            return [Delivered()] * len(messages)

        broker = Target(take)
        operation = dlq.redrive(broker, query=EVERYTHING).operation

        @dlq.guard(source="orders")
        def handle(message: Message) -> int:
            return len(message.body)

        assert handle(broker.sent[0]) == 1
        assert dlq.operations.observe(operation).entries == {Entry.CONFIRMED: 1}


def test_a_handler_that_redrive_calls_itself_is_settled_once(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        @dlq.guard(source="orders")
        async def handle(message: Message) -> None:
            return None

        await captured(dlq, Message(body=b"x", id="1"), source="orders")
        assert (await dlq.redrive(handle, query=EVERYTHING)).entries == {Entry.CONFIRMED: 1}

    tell(story)


def test_a_store_that_is_down_does_not_make_a_failure_of_success(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with redrive.open("memory:") as dlq:
            (message,), _ = await sent_back(dlq)

            async def down(*args: Any, **more: Any) -> Any:
                raise StoreUnavailable("the store is down")

            dlq.letters.amend = down  # type: ignore[method-assign]
            assert await dlq.confirm([message]) == 0

    asyncio.run(story())
    assert "1 messages have worked, and their letters could not be told: the store is down" in caplog.text


def test_a_letter_that_somebody_holds_for_long_is_left_alone(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        id = await captured(dlq, Message(body=b"x", id="1"), source="orders")
        message = Message(body=b"x", headers=(("redrive-id", str(id).encode()), ("redrive-generation", b"1")))
        await dlq.letters.claim(Claim(owner="other", lease=timedelta(hours=1), what=(id,)))
        assert await dlq.confirm([message]) == 0
        assert (await dlq.get(id)).status is Status.RETRYING

    tell(story)
