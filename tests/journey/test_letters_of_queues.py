"""Letters and queues: a policy's route leads to a queue, a dead queue is looked at and collected, and letters go back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from redrive import EVERYTHING, Message, Policy, Route, Status, wiring
from redrive.engine.dead_letters import DeadLetters
from redrive.model.message import outgoing
from redrive.model.operation import Entry
from redrive.queues import Queues, again, item
from redrive.queues.collect import collect, peeked
from redrive.queues.letters import message_of
from redrive.queues.opening import beside
from redrive.queues.transport import QueueTransport
from redrive.settings import Settings
from tests.unit.queue_use import HOUR, MINUTE, SOON, STORES, Place

Story = Callable[[DeadLetters, Queues], Awaitable[None]]


@pytest.fixture(params=STORES)
def tell(request: pytest.FixtureRequest, tmp_path: Path, namespace: str) -> Callable[[Story], None]:
    place: Place = request.param
    settings = Settings(store=place(tmp_path, namespace), desk=f"sqlite:{tmp_path}/desk.db", telemetry=False)

    def told(story: Story) -> None:
        async def whole() -> None:
            async with wiring.connect(settings) as dlq, beside(dlq, settings) as queues:
                await defined(queues)
                await story(dlq, queues)

        asyncio.run(whole())

    return told


async def defined(queues: Queues) -> None:
    await queues.create("orders-dead", lease_timeout=MINUTE, expire_timeout=HOUR)
    await queues.create("orders", lease_timeout=MINUTE, expire_timeout=HOUR, dead_queue="orders-dead")


async def die(queues: Queues, error: Exception | None = None) -> None:
    """One item of orders is leased and given up."""
    leased = await queues.lease("orders", 1, client="worker", timeout=SOON)
    await queues.retry("orders", leased.partition, [again(leased.items[0], error, dead=True)])


def test_a_dead_item_is_looked_at_collected_sent_back_and_reopened_when_it_dies_again(tell: Callable[[Story], None]) -> None:
    async def story(dlq: DeadLetters, queues: Queues) -> None:
        await queues.produce(
            "orders", [item('{"id": 7}', reference="o-7", kind="order", encoding="application/json", headers={"trace": "t1"})]
        )
        await die(queues, KeyError("price"))

        (seen,) = [letter async for letter in peeked(dlq, queues, "orders-dead")]
        assert await dlq.letters.count() == 0
        assert await collect(dlq, queues, "orders-dead") == 1
        assert await collect(dlq, queues, "orders-dead") == 0
        assert [stored async for stored in peeked(dlq, queues, "orders-dead")] == []

        (letter,) = [letter async for letter in dlq.find()]
        assert letter.id == seen.id
        assert (letter.source, letter.body, letter.content_type) == ("queue:orders", b'{"id": 7}', "application/json")
        assert (letter.kind, letter.reference, dict(letter.headers)["trace"]) == ("order", "o-7", b"t1")
        assert (letter.failure.type, letter.failure.message) == ("builtins.KeyError", "'price'")
        assert (letter.origin.topic, letter.metadata["why"], letter.metadata["attempts"]) == ("orders", "dead", 1)

        report = await dlq.redrive("source", query=EVERYTHING)
        assert report.entries == {Entry.SENT: 1}
        assert (await dlq.letters.get([letter.id]))[0].status is Status.REDRIVEN  # type: ignore[union-attr]  # it is there
        leased = await queues.lease("orders", 1, client="worker", timeout=SOON)
        message = message_of(leased.items[0], "orders", leased.partition)
        assert (message.body, message.redrive_id, message.generation) == (b'{"id": 7}', letter.id, 1)

        await queues.retry("orders", leased.partition, [again(leased.items[0], KeyError("stock"), dead=True)])
        assert await collect(dlq, queues, "orders-dead") == 1
        (again_,) = [letter async for letter in dlq.find()]
        assert (again_.id, again_.generation, again_.status) == (letter.id, 2, Status.PENDING)
        assert again_.failure.message == "'stock'"

    tell(story)


def test_what_nobody_told_of_still_has_a_failure(tell: Callable[[Story], None]) -> None:
    async def story(dlq: DeadLetters, queues: Queues) -> None:
        await queues.produce("orders", [item("x")])
        await die(queues)
        assert await collect(dlq, queues, "orders-dead") == 1
        (letter,) = [letter async for letter in dlq.find()]
        assert (letter.failure.type, letter.failure.message) == ("redrive.queues.GivenUp", "its consumer gave it up")

    tell(story)


def test_a_letter_sent_twice_to_a_queue_is_there_once(tell: Callable[[Story], None]) -> None:
    async def story(dlq: DeadLetters, queues: Queues) -> None:
        await dlq.capture(Message(body=b"x", id="7"), ValueError("bad"), source="shop")
        plan = await dlq.operations.plan("queue:orders", query=EVERYTHING)
        await dlq.operations.run(plan.operation.id)
        (letter,) = [letter async for letter in dlq.find()]
        await QueueTransport(queues, "orders").send([outgoing(letter, b"x")])
        assert sum(one.total for one in (await queues.stats("orders")).partitions) == 1

    tell(story)


def test_a_letter_of_another_source_that_dies_in_a_queue_is_the_same_letter(tell: Callable[[Story], None]) -> None:
    async def story(dlq: DeadLetters, queues: Queues) -> None:
        first = (await dlq.capture(Message(body=b"x", id="7"), ValueError("bad"), source="shop")).letter
        await dlq.redrive("queue:orders", query=EVERYTHING)
        await die(queues, KeyError("again"))
        assert await collect(dlq, queues, "orders-dead") == 1
        (letter,) = [letter async for letter in dlq.find()]
        assert (letter.id, letter.source, letter.generation) == (first.id, "shop", 2)
        assert (letter.status, letter.failure.message) == (Status.PENDING, "'again'")

    tell(story)


def test_a_policys_route_leads_to_a_queue(tell: Callable[[Story], None]) -> None:
    async def story(dlq: DeadLetters, queues: Queues) -> None:
        policy = Policy(max_attempts=1, routes=(Route(errors=("ValueError",), to="queue:orders-dead"),))

        @dlq.guard(source="shop", policy=policy)
        async def handle(message: Message) -> None:
            raise ValueError("no such price")

        await handle(Message(body=b"order", id="o-1"))
        assert await dlq.letters.count() == 0
        (letter,) = [letter async for letter in peeked(dlq, queues, "orders-dead")]
        assert (letter.source, letter.source_id, letter.body) == ("shop", "o-1", b"order")
        assert letter.failure.message == "no such price"
        assert await collect(dlq, queues, "orders-dead") == 1
        (held,) = [letter async for letter in dlq.find()]
        assert (held.source, held.source_id, held.failure.type) == ("shop", "o-1", "builtins.ValueError")

    tell(story)


def test_a_queue_that_is_not_there_takes_nothing(tell: Callable[[Story], None]) -> None:
    async def story(dlq: DeadLetters, queues: Queues) -> None:
        await dlq.capture(Message(body=b"x", id="7"), ValueError("bad"), source="shop")
        report = await dlq.redrive("queue:nope", query=EVERYTHING)
        assert (report.entries, report.stopped) == ({}, "queue does not exist; no such queue named 'nope'")
        assert [letter.status async for letter in dlq.find()] == [Status.PENDING]

    tell(story)
