"""Dead letters as bodies of a mailbox: what they hold, and that they are the letters of everybody else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from msgspec.structs import replace

from redrive import EVERYTHING, Category, Message, Origin, Policy, Route, wiring
from redrive.engine.dead_letters import DeadLetters
from redrive.mailboxes import DeadLetter, SerializationError, dead_letter_of
from redrive.mailboxes.aio import Mailboxes
from redrive.model.operation import Entry
from redrive.queues import Queues
from redrive.queues.collect import collect, peeked
from redrive.queues.opening import beside
from redrive.settings import Settings
from tests.unit.mailbox_use import Order, one_of
from tests.unit.queue_use import STORES, Place

Story = Callable[[DeadLetters, Queues, Mailboxes], Awaitable[None]]
Tell = Callable[[Story], None]
NOW = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)

DEAD = DeadLetter(
    message_id="m-7",
    body=Order(7),
    source_mailbox="orders",
    delivery_count=5,
    last_error="no such price",
    last_error_type="builtins.ValueError",
    dead_lettered_at=NOW,
    first_received_at=NOW - timedelta(hours=1),
    request_id=uuid4(),
    reply_to="answers",
    trace_id="4bf92f3577b34da6a3ce929d0e0e4736",
)


@pytest.fixture(params=STORES)
def tell(request: pytest.FixtureRequest, tmp_path: Path, namespace: str) -> Tell:
    place: Place = request.param
    settings = Settings(store=place(tmp_path, namespace), desk=f"sqlite:{tmp_path}/desk.db", telemetry=False)

    def told(story: Story) -> None:
        async def whole() -> None:
            async with wiring.connect(settings) as dlq:
                queues = beside(dlq, settings)
                async with Mailboxes(queues) as place:
                    await story(dlq, queues, place)

        asyncio.run(whole())

    return told


def test_a_dead_letter_is_received_with_all_that_was_sent(tell: Tell) -> None:
    async def story(dlq: DeadLetters, queues: Queues, place: Mailboxes) -> None:
        dead = place.mailbox("orders-dlq", DeadLetter[Order])
        assert await dead.send(DEAD) == "m-7"
        message = await one_of(dead)
        assert replace(message.body, failure=None) == DEAD
        failure = message.body.failure
        assert (failure.type, failure.message, failure.category) == ("builtins.ValueError", "no such price", Category.VALIDATION)
        assert (message.id, message.delivery_count, message.raw.delivery_count) == ("m-7", 1, 1)
        await message.nack()
        again = await one_of(dead)
        assert (again.raw.delivery_count, again.body.delivery_count) == (2, 5), "its own deliveries, and those it died of"

    tell(story)


def test_the_same_death_is_there_once_and_a_later_one_beside_it(tell: Tell) -> None:
    async def story(dlq: DeadLetters, queues: Queues, place: Mailboxes) -> None:
        dead = place.mailbox("orders-dlq", DeadLetter[Order])
        await dead.send(DEAD)
        await dead.send(DEAD)
        assert await dead.approximate_count() == 1
        # Sent home it is delivered from 1 again, and may die after as many deliveries as before.
        await dead.send(replace(DEAD, dead_lettered_at=NOW + timedelta(seconds=1)))
        assert await dead.approximate_count() == 2

    tell(story)


def test_a_dead_letter_in_a_mailbox_is_looked_at_collected_and_goes_home(tell: Tell) -> None:
    async def story(dlq: DeadLetters, queues: Queues, place: Mailboxes) -> None:
        orders = place.mailbox("orders", Order)
        assert await orders.approximate_count() == 0
        await place.mailbox("orders-dlq", DeadLetter[Order]).send(DEAD)
        (seen,) = [letter async for letter in peeked(dlq, queues, "orders-dlq")]
        assert await collect(dlq, queues, "orders-dlq") == 1
        (letter,) = [letter async for letter in dlq.find()]
        assert seen.id == letter.id
        assert (letter.source, letter.source_id, letter.body) == ("mailbox:orders", "m-7", b'{"number":7,"note":""}')
        assert (letter.origin.reply_to, letter.origin.request_id) == ("answers", str(DEAD.request_id))
        assert (letter.first_received_at, letter.dead_lettered_at) == (DEAD.first_received_at, DEAD.dead_lettered_at)
        assert letter.failure.fingerprint
        assert dead_letter_of(letter, DEAD.body, attempts=5) == replace(DEAD, failure=letter.failure)

        report = await dlq.redrive("source", query=EVERYTHING)
        assert report.entries == {Entry.SENT: 1}
        message = await one_of(orders)
        assert (message.id, message.body, message.reply_to_name, message.delivery_count) == ("m-7", Order(7), "answers", 1)
        assert message.raw.redrive_id == letter.id

    tell(story)


def test_letters_are_sent_to_a_mailbox_that_is_there(tell: Tell) -> None:
    async def story(dlq: DeadLetters, queues: Queues, place: Mailboxes) -> None:
        await dlq.capture(Message(body=b'{"number": 7}', id="7", content_type="application/json"), KeyError("x"), source="shop")
        report = await dlq.redrive("mailbox:nowhere", query=EVERYTHING)
        assert (report.entries, report.stopped) == ({}, "queue does not exist; no such queue named 'nowhere'")
        orders = place.mailbox("orders", Order)
        assert await orders.approximate_count() == 0
        assert (await dlq.redrive("mailbox:orders", query=EVERYTHING)).entries == {Entry.SENT: 1}
        assert (await one_of(orders)).body == Order(7)

    tell(story)


def test_a_letter_of_any_source_is_a_dead_letter() -> None:
    async def whole() -> None:
        async with wiring.connect(Settings(store="memory:", telemetry=False)) as dlq:
            trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
            origin = Origin(topic="orders", partition=3, offset=9, request_id="no uuid", trace=trace)
            message = Message(body=b"x", id="7", origin=origin)
            letter = (await dlq.capture(message, KeyError("price"), source="kafka:orders")).letter
            dead = dead_letter_of(letter, b"x")
            assert (dead.message_id, dead.body, dead.source_mailbox) == ("7", b"x", "kafka:orders")
            assert (dead.last_error, dead.last_error_type, dead.delivery_count) == ("'price'", "builtins.KeyError", 1)
            assert (dead.request_id, dead.reply_to, dead.trace_id) == (None, None, "4bf92f3577b34da6a3ce929d0e0e4736")
            assert dead.failure == letter.failure

    asyncio.run(whole())


def test_where_a_letter_came_from_is_not_lost_on_its_way_through_a_mailbox(tell: Tell) -> None:
    async def story(dlq: DeadLetters, queues: Queues, place: Mailboxes) -> None:
        origin = Origin(topic="orders", partition=3, offset=9, node="a", request_id="r-1", reply_to="answers")
        policy = Policy(max_attempts=1, routes=(Route(errors=("KeyError",), to="mailbox:dlq"),))

        @dlq.guard(source="kafka:orders", policy=policy)
        async def handle(message: Message) -> None:
            raise KeyError("price")

        await handle(Message(body=b"x", id="7", origin=origin))
        message = await one_of(place.mailbox("dlq", DeadLetter[bytes]))
        assert (message.body.source_mailbox, message.body.reply_to) == ("kafka:orders", "answers")
        await message.nack()
        assert await collect(dlq, queues, "dlq") == 1
        (letter,) = [letter async for letter in dlq.find()]
        assert (letter.source, letter.origin) == ("kafka:orders", origin)

    tell(story)


@pytest.mark.parametrize("body", [Order(7), {"message_id": "7"}])
def test_a_mailbox_of_dead_letters_takes_nothing_else(body: Any) -> None:
    async def whole() -> None:
        settings = Settings(store="memory:", telemetry=False)
        async with wiring.connect(settings) as dlq, Mailboxes(beside(dlq, settings)) as place:
            with pytest.raises(SerializationError, match=r"^a mailbox of dead letters takes no (Order|dict)$"):
                await place.mailbox("dlq", DeadLetter).send(body)

    asyncio.run(whole())
