"""Mailboxes in several processes, receivers that are killed, and a message's whole way: it fails, lies dead, and goes home."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from msgspec import Struct

from redrive import EVERYTHING, Bury, NotHeld, Policy, Retry, Route, Status, linear, mailboxes, wiring
from redrive.engine.dead_letters import DeadLetters
from redrive.mailboxes import DeadLetter, MailboxFullError, ReceiptHandleExpiredError, aio, message_of
from redrive.model.operation import Entry
from redrive.queues.collect import collect, peeked
from redrive.settings import Settings
from tests.unit import queue_use
from tests.unit.mailbox_use import SOON, Order, one_of
from tests.unit.queue_use import STORES, Place

SHARED = [one for one in STORES if one.id != "memory"]
"""Stores that processes share."""
HEAD = """
import sys
from msgspec import Struct
from redrive import mailboxes
class Order(Struct, frozen=True):
    number: int
    note: str = ""
def say(*words):
    print(*words, flush=True)
with mailboxes.open(sys.argv[1]) as place:
    orders = place.mailbox("orders", Order)
"""
RECEIVE_AND_WAIT = """
    (message,) = orders.receive(visibility_timeout=float(sys.argv[2]), wait_time_seconds=30)
    say(message.id, message.body.number, message.delivery_count)
    sys.stdin.read()
    message.acknowledge()
"""
SEND = """
    for line in sys.stdin:
        say(orders.send(Order(int(line)), reply_to="answers"))
"""
WORK = """
    while messages := orders.receive(max_messages=10, wait_time_seconds=3):
        for message in messages:
            say(message.body.number)
            message.acknowledge()
"""


@pytest.fixture(params=SHARED)
def url(request: pytest.FixtureRequest, tmp_path: Path, namespace: str) -> str:
    place: Place = request.param
    return place(tmp_path, namespace)


@contextmanager
def process(life: str, *args: str) -> Iterator[subprocess.Popen[str]]:
    """Another program that uses the mailboxes; it is killed at the end, should it still run."""
    running = subprocess.Popen(
        [sys.executable, "-X", "dev", "-c", HEAD + life, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield running
    finally:
        running.kill()
        running.wait()
        for stream in (running.stdin, running.stdout):
            assert stream is not None
            stream.close()


def said(running: subprocess.Popen[str]) -> str:
    assert running.stdout is not None
    return running.stdout.readline().strip()


def test_what_one_process_sends_another_receives_and_replies_to(url: str) -> None:
    with mailboxes.open(url) as place, process(SEND, url) as sender:
        orders = place.mailbox("orders", Order)
        assert sender.stdin is not None
        for number in range(3):
            print(number, file=sender.stdin, flush=True)
            (message,) = orders.receive(wait_time_seconds=30)
            assert (message.id, message.body) == (said(sender), Order(number))
            message.reply(f"{number} is done")
            message.acknowledge()
        answers = place.mailbox("answers", str).receive(max_messages=10, wait_time_seconds=SOON)
        assert [answer.body for answer in answers] == ["0 is done", "1 is done", "2 is done"]


def test_two_processes_work_off_a_mailbox_and_each_message_once(url: str) -> None:
    with mailboxes.open(url) as place, process(WORK, url) as first, process(WORK, url) as second:
        orders = place.mailbox("orders", Order)
        for number in range(40):
            orders.send(Order(number))
        worked = [int(line) for running in (first, second) for line in running.communicate(timeout=60)[0].split()]
        assert sorted(worked) == list(range(40))
        assert orders.approximate_count() == 0


def test_the_message_of_a_killed_receiver_comes_again(url: str) -> None:
    with mailboxes.open(url) as place:
        orders = place.mailbox("orders", Order)
        id = orders.send(Order(7))
        with process(RECEIVE_AND_WAIT, url, "2") as doomed:
            assert said(doomed) == f"{id} 7 1"
            assert orders.receive() == []
            doomed.kill()
            assert doomed.wait() == -9
        (again,) = orders.receive(wait_time_seconds=30)
        assert (again.id, again.body, again.delivery_count) == (id, Order(7), 2)
        again.acknowledge()
        assert orders.approximate_count() == 0


def test_the_message_of_a_killed_receiver_comes_again_when_nobody_was_there_meanwhile(url: str) -> None:
    with mailboxes.open(url) as place:
        id = place.mailbox("orders", Order).send(Order(7))
    with process(RECEIVE_AND_WAIT, url, "1") as doomed:
        assert said(doomed) == f"{id} 7 1"
    with process(RECEIVE_AND_WAIT, url, "30") as other:
        assert said(other) == f"{id} 7 2"
        assert other.communicate("", timeout=60)[0] == ""
    with mailboxes.open(url) as place:
        assert place.mailbox("orders", Order).approximate_count() == 0


def test_a_bound_holds_for_what_another_process_sent(url: str) -> None:
    with mailboxes.open(url) as place, process(SEND, url) as sender:
        assert sender.stdin is not None
        print(1, file=sender.stdin, flush=True)
        assert said(sender)
        orders = place.mailbox("orders", Order, max_size=1)
        with pytest.raises(MailboxFullError, match=r"^Queue 'orders' at capacity \(1\)$"):
            orders.send(Order(2))


class Request(Struct, frozen=True):
    order: int
    request_id: UUID


POLICY = Policy(
    max_attempts=3,
    backoff=linear(timedelta(seconds=0.2)),
    include_errors=("PermissionError",),
    routes=(Route(errors=("ValueError", "PermissionError"), to="mailbox:orders-dlq"),),
)


class Shop:
    """A consumer of a mailbox under a guard, whose price list can be mended."""

    def __init__(self, dlq: DeadLetters, place: aio.Mailboxes) -> None:
        self.requests = place.mailbox("orders", Request)
        self.dead = place.mailbox("orders-dlq", DeadLetter[Request])
        self.answers = place.mailbox("answers", str)
        self.prices: dict[int, int] = {}
        self._dlq = dlq

        @dlq.guard(source="mailbox:orders", policy=POLICY, extract=message_of, after="verdict")
        async def handle(message: aio.Message[Request, str]) -> None:
            if message.body.order not in self.prices:
                raise ValueError(f"no price for {message.body.order}")
            await message.reply(f"shipped {message.body.order}")

        self._handle = handle

    async def work(self) -> Any:
        """Work on what comes next, and settle it as the verdict says."""
        message = await one_of(self.requests)
        verdict: Any = await self._handle(message)
        if isinstance(verdict, Retry):
            await message.nack(visibility_timeout=verdict.after.total_seconds())
        else:
            await message.acknowledge()
            await self._dlq.confirm([message.raw])
        return verdict


@pytest.fixture(params=queue_use.STORES)
def tell(request: pytest.FixtureRequest, tmp_path: Path, namespace: str) -> Callable[[Any], None]:
    place: Place = request.param
    settings = Settings(store=place(tmp_path, namespace), desk=f"sqlite:{tmp_path}/desk.db", telemetry=False)

    def told(story: Any) -> None:
        async def whole() -> None:
            async with wiring.connect(settings) as dlq, aio.beside(dlq, settings) as place:
                await story(dlq, place, Shop(dlq, place))

        asyncio.run(whole())

    return told


async def died(shop: Shop, request_id: UUID) -> str:
    """An order fails as often as the policy lets it, and is buried; answers with its id."""
    id = await shop.requests.send(Request(7, request_id), reply_to=shop.answers)
    assert [type(await shop.work()) for _ in range(2)] == [Retry, Retry]
    assert await shop.dead.approximate_count() == 0
    assert await shop.work() == Bury("mailbox:orders-dlq")
    assert await shop.requests.approximate_count() == 0
    return id


def test_a_failing_message_is_received_as_a_dead_letter_and_sent_home_by_its_consumer(tell: Callable[[Any], None]) -> None:
    async def story(dlq: DeadLetters, place: aio.Mailboxes, shop: Shop) -> None:
        started, request_id = datetime.now(UTC) - timedelta(seconds=5), uuid4()
        id = await died(shop, request_id)
        assert await dlq.letters.count() == 0, "a letter lies in one place"
        message = await one_of(shop.dead)
        dead = message.body
        assert (dead.message_id, dead.body, dead.source_mailbox) == (id, Request(7, request_id), "orders")
        assert (dead.last_error, dead.last_error_type, dead.delivery_count) == ("no price for 7", "builtins.ValueError", 3)
        assert (dead.request_id, dead.reply_to) == (request_id, "answers")
        assert started < dead.first_received_at <= dead.dead_lettered_at < started + timedelta(minutes=2)
        assert "raise ValueError" in dead.failure.traceback

        shop.prices[7] = 100
        await shop.requests.send(dead.body, reply_to=dead.reply_to)
        await message.acknowledge()
        assert await shop.work() is None
        assert (await one_of(shop.answers)).body == "shipped 7"
        assert await shop.dead.approximate_count() == 0

    tell(story)


def test_a_failing_message_is_collected_from_its_mailbox_sent_home_and_its_letter_is_done(tell: Callable[[Any], None]) -> None:
    async def story(dlq: DeadLetters, place: aio.Mailboxes, shop: Shop) -> None:
        id, queues = await died(shop, uuid4()), place._queues
        (seen,) = [letter async for letter in peeked(dlq, queues, "orders-dlq")]
        assert (seen.source, seen.source_id, seen.failure.message) == ("mailbox:orders", id, "no price for 7")
        assert await collect(dlq, queues, "orders-dlq") == 1

        assert (await dlq.redrive("source", query=EVERYTHING)).entries == {Entry.SENT: 1}
        for _ in range(2):
            assert isinstance(await shop.work(), Retry), "nobody has mended the prices, and it has all its tries again"
        assert await shop.work() == Bury("mailbox:orders-dlq")
        assert await collect(dlq, queues, "orders-dlq") == 1
        (again,) = [letter async for letter in dlq.find()]
        assert (again.id, again.generation, again.status) == (seen.id, 2, Status.PENDING)

        shop.prices[7] = 100
        assert (await dlq.redrive("source", query=EVERYTHING)).entries == {Entry.SENT: 1}
        assert await shop.work() is None
        assert (await one_of(shop.answers)).body == "shipped 7"
        (done,) = [letter async for letter in dlq.find()]
        assert (done.id, done.status) == (seen.id, Status.COMPLETED)

    tell(story)


def test_a_letter_that_its_mailbox_cannot_take_leaves_the_message_where_it_is(tell: Callable[[Any], None]) -> None:
    async def story(dlq: DeadLetters, place: aio.Mailboxes, shop: Shop) -> None:
        @dlq.guard(source="mailbox:orders", policy=POLICY, extract=message_of)
        async def refuse(message: aio.Message[Request, str]) -> None:
            raise PermissionError("no")

        await shop.requests.send(Request(7, uuid4()))
        message = await one_of(shop.requests)
        place._queues.dismiss()
        with pytest.raises(NotHeld, match="do not acknowledge the source"):
            await refuse(message)
        assert not message.is_finalized

    tell(story)


def test_a_receiver_that_took_too_long_settles_nothing(url: str) -> None:
    with mailboxes.open(url) as place, mailboxes.open(url) as elsewhere:
        orders = place.mailbox("orders", Order)
        orders.send(Order(7))
        (slow,) = orders.receive(visibility_timeout=0.3, wait_time_seconds=SOON)
        (quick,) = elsewhere.mailbox("orders", Order).receive(wait_time_seconds=30)
        assert (quick.id, quick.delivery_count) == (slow.id, 2)
        for settle in (slow.acknowledge, slow.nack, lambda: slow.extend_visibility(60)):
            with pytest.raises(ReceiptHandleExpiredError):
                settle()
        quick.acknowledge()
        assert orders.approximate_count() == 0
