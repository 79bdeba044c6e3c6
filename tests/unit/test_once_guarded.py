"""A handler that works once, under a guard: what it did is not done again, and what was sent back is confirmed all the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import redrive
from redrive import EVERYTHING, Bury, Category, Message, Policy, Status, StoreUnavailable, blocking
from redrive.engine.course import Handled
from redrive.engine.dead_letters import DeadLetters
from redrive.model.operation import Delivered, Entry
from redrive.model.receipt import ReceiptState, Which
from tests.unit.databases import Shop, message
from tests.unit.targets import Target, Tell, teller
from tests.unit.test_confirm import sent_back
from tests.unit.test_once_apart import died

ALL = Which(namespace="default")
ONE = Policy(max_attempts=1)


@pytest.fixture
def tell(tmp_path: Path) -> Tell:
    return teller(f"sqlite:{tmp_path}/redrive.db")


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop("sqlite", tmp_path)


Once = Callable[[DeadLetters, Shop], Callable[[Callable[..., Any]], Callable[..., Any]]]


def apart(dlq: DeadLetters, shop: Shop) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return dlq.once(name="ship")


def exact(dlq: DeadLetters, shop: Shop) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def once(handler: Callable[..., Any]) -> Callable[..., Any]:
        async def with_connection(message: Message, db: Any) -> Any:
            return await handler(message)

        return redrive.once(shop.opened, name="ship")(with_connection)

    return once


both = pytest.mark.parametrize("once", [apart, exact])


@both
def test_a_second_delivery_of_what_was_sent_back_confirms_it_without_working_again(tell: Tell, shop: Shop, once: Once) -> None:
    async def story(dlq: DeadLetters) -> None:
        (delivery,), operation = await sent_back(dlq)
        worked: list[str] = []

        @dlq.guard(source="orders", policy=ONE)
        @once(dlq, shop)
        async def ship(message: Message) -> str:
            worked.append(str(message.id))
            return "shipped"

        amend = dlq.letters.amend

        async def down(*args: Any, **more: Any) -> Any:
            raise StoreUnavailable("down")

        # The first worked, and died before its letter was told.
        dlq.letters.amend = down  # type: ignore[method-assign]
        assert await ship(delivery) == "shipped"
        dlq.letters.amend = amend  # type: ignore[method-assign]
        (letter,) = [letter async for letter in dlq.find()]
        assert letter.status is Status.REDRIVEN
        assert await ship(delivery) is None
        (letter,) = [letter async for letter in dlq.find()]
        assert letter.status is Status.COMPLETED
        assert (await dlq.operations.observe(operation)).entries == {Entry.CONFIRMED: 1}
        assert worked == ["0"]

    tell(story)


@both
def test_what_failed_first_works_when_it_is_sent_back_and_then_no_more(tell: Tell, shop: Shop, once: Once) -> None:
    async def story(dlq: DeadLetters) -> None:
        errors = [ConnectionError("down")]
        worked: list[str] = []

        @dlq.guard(source="orders", policy=ONE)
        @once(dlq, shop)
        async def ship(message: Message) -> None:
            if errors:
                raise errors.pop()
            worked.append(str(message.id))

        await ship(message("1"))
        assert worked == []
        assert (await dlq.redrive(ship, query=EVERYTHING)).entries == {Entry.CONFIRMED: 1}
        # The broker delivers the first one once more, and what was sent back under an id of its own.
        await ship(message("1"))
        (letter,) = [letter async for letter in dlq.find()]
        marks = {"redrive-id": str(letter.id), "redrive-generation": "1", "redrive-source-id": "1"}
        await ship(message("broker-77", headers=tuple((name, value.encode()) for name, value in marks.items())))
        assert worked == ["1"]

    tell(story)


def test_of_two_handlers_only_the_one_that_failed_works_again(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        done: list[str] = []
        is_down = True

        @dlq.once()
        async def bill(message: Message) -> None:
            done.append("billed")

        @dlq.once()
        async def ship(message: Message) -> None:
            if is_down:
                raise ConnectionError("down")
            done.append("shipped")

        @dlq.guard(source="orders", policy=ONE)
        async def handle(message: Message) -> None:
            await bill(message)
            await ship(message)

        await handle(message("1"))
        is_down = False
        assert (await dlq.redrive(handle, query=EVERYTHING)).entries == {Entry.CONFIRMED: 1}
        assert done == ["billed", "shipped"]

    tell(story)


def test_a_mark_that_a_consumer_passed_on_to_other_messages_makes_them_not_one(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        (order,), _ = await sent_back(dlq)
        worked: list[str] = []

        @dlq.guard(source="parcels")
        @dlq.once()
        async def pack(message: Message) -> None:
            worked.append(str(message.id))

        for number in range(3):
            await pack(replace(order, id=f"parcel-{number}"))
        assert worked == ["parcel-0", "parcel-1", "parcel-2"]

    tell(story)


def test_under_two_guards_ids_of_two_sources_are_not_confused(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        worked: list[str] = []

        @dlq.once(name="note")
        async def note(message: Message) -> None:
            worked.append("noted")

        orders, stock = dlq.guard(source="orders")(note), dlq.guard(source="stock")(note)
        for handle in (orders, stock, orders, stock):
            await handle(message("1"))
        assert worked == ["noted", "noted"]
        assert {one.key for one in await dlq.desk.receipts(ALL)} == {"orders/1", "stock/1"}

    tell(story)


def test_a_guards_extractor_says_which_delivery_it_is(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        worked: list[str] = []

        class Consumer:
            @dlq.guard(source="sqs", extract=redrive.where(id="MessageId", body="Body"))
            @dlq.once()
            async def on_message(self, message: dict[str, Any]) -> None:
                worked.append(message["MessageId"])

        for id in ("m-1", "m-1", "m-2"):
            await Consumer().on_message({"MessageId": id, "Body": b"{}"})
        assert worked == ["m-1", "m-2"]

    tell(story)


def test_a_batch_works_each_once(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        worked: list[str] = []

        @dlq.once()
        async def ship(message: Message) -> str:
            if message.id == "bad":
                raise ValueError("bad")
            worked.append(str(message.id))
            return "shipped"

        guard = dlq.guard(source="orders", policy=ONE)
        for expected in ("shipped", None):
            first, bad, second = await guard.each([message("1"), message("bad"), message("2")], ship)
            assert (first, second) == (Handled(expected), Handled(expected))
            assert isinstance(bad, Bury)
        assert sorted(worked) == ["1", "2"]
        assert {one.key for one in await dlq.desk.receipts(ALL)} == {"orders/1", "orders/2"}

    tell(story)


def test_another_decorator_in_between_is_not_passed_over(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        heard: list[str] = []

        def loud(handler: Callable[..., Any]) -> Callable[..., Any]:
            @wraps(handler)
            async def louder(message: Message) -> Any:
                heard.append(str(message.id))
                return await handler(message)

            return louder

        @dlq.guard(source="orders")
        @loud
        @dlq.once()
        async def ship(message: Message) -> str:
            return "shipped"

        assert [await ship(message("1")), await ship(message("1"))] == ["shipped", None]
        assert heard == ["1", "1"]

    tell(story)


def test_work_of_which_nobody_knows_becomes_a_letter_that_says_so(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        await died(dlq, "orders/1")

        @dlq.guard(source="orders", policy=Policy(include_errors=("category:permanent",)))
        @dlq.once(name="ship")
        async def ship(message: Message) -> str:
            return "shipped"

        assert await ship(message("1")) is None
        (letter,) = [letter async for letter in dlq.find()]
        assert letter.failure.type == "redrive.model.errors.OutcomeUnknown"
        assert "redrive receipts forget ship orders/1" in letter.failure.message
        assert (letter.failure.category, letter.attempts) == (Category.PERMANENT, 1)
        # To send it back changes nothing; whoever has looked forgets the receipt first.
        assert (await dlq.redrive(ship, query=EVERYTHING)).entries == {Entry.FAILED: 1}
        await dlq.desk.forget(Which(namespace="default", handler="ship", key="orders/1"))
        assert (await dlq.redrive(ship, query=EVERYTHING)).entries == {Entry.CONFIRMED: 1}
        assert [one.state for one in await dlq.desk.receipts(ALL)] == [ReceiptState.DONE]

    tell(story)


def test_blocking_handlers_confirm_too(tmp_path: Path, shop: Shop) -> None:
    with blocking.open(f"sqlite:{tmp_path}/redrive.db") as dlq:
        dlq.capture(message("1"), ValueError("bad"), source="orders")

        async def take(messages: Sequence[Message]) -> list[Any]:
            return [Delivered()] * len(messages)

        broker = Target(take)
        operation = dlq.redrive(broker, query=EVERYTHING).operation
        (delivery,) = broker.sent

        def work(message: Message, db: Any) -> None:
            shop.write(db, str(message.id))

        ship = dlq.guard(source="orders")(redrive.once(lambda: closing(shop.connection()), name="ship")(work))
        shop.do("CREATE TABLE redrive_receipts (handler, key, at, PRIMARY KEY (handler, key))")
        shop.do("INSERT INTO redrive_receipts VALUES ('ship', 'orders/1', '2999')")
        assert ship(delivery) is None
        assert shop.rows() == []
        assert dlq.operations.observe(operation).entries == {Entry.CONFIRMED: 1}


def test_retries_of_a_guard_in_blocking_code_work_once(tmp_path: Path, shop: Shop) -> None:
    with blocking.open(f"sqlite:{tmp_path}/redrive.db") as dlq:
        errors = [TimeoutError("slow"), TimeoutError("slow")]

        @dlq.guard(source="orders", policy=Policy(max_attempts=3, backoff=redrive.immediate()))
        @redrive.once(shop.opened)
        def ship(message: Message, db: Any) -> str:
            shop.write(db, str(message.id))
            if errors:
                raise errors.pop()
            return "shipped"

        assert ship(message("1")) == "shipped"
        assert ship(message("1")) is None
        assert shop.rows() == ["1"]
        assert list(dlq.find()) == []


def test_a_coroutine_function_that_blocking_code_retries_works_once(tmp_path: Path, shop: Shop) -> None:
    """A plain function around it gives a coroutine, which the guard runs on a loop of its own."""
    with blocking.open(f"sqlite:{tmp_path}/redrive.db") as dlq:

        @redrive.once(shop.opened)
        async def ship(message: Message, db: Any) -> str:
            shop.write(db, str(message.id))
            return "shipped"

        guard = dlq.guard(source="orders")
        assert guard.each([message("1"), message("1")], ship) == [Handled("shipped"), Handled(None)]
        assert asyncio.run(ship(message("2"))) == "shipped"
    assert shop.rows() == ["1", "2"]
