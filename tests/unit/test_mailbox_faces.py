"""Mailboxes for async code, for blocking code and for tests: the same names with the same signatures."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import threading
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from redrive import mailboxes
from redrive.mailboxes import (
    InvalidParameterError,
    MailboxConnectionError,
    MessageFinalizedError,
    ReceiptHandleExpiredError,
    RegistryResolver,
    ReplyNotAvailableError,
    aio,
    blocking,
    doubles,
    testing,
)
from redrive.mailboxes.mailbox import Mailbox as AsyncMailbox
from tests.unit.mailbox_use import SOON, Order
from tests.unit.shell import eventually

FACES = [blocking.Mailbox, aio.QueueMailbox, doubles.NullMailbox, doubles.CollectingMailbox, doubles.FakeMailbox]
VERBS = ["send", "receive", "purge", "approximate_count", "close"]
PAIRS = [(blocking.Message, aio.Message), (blocking.Mailboxes, aio.Mailboxes)]
AMONG_THEMSELVES = {"served", "turn", "receiving"}


def public(kind: type) -> set[str]:
    return {name for name in vars(kind) if not name.startswith("_")} - AMONG_THEMSELVES


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("face", FACES, ids=lambda kind: kind.__name__)
def test_each_verb_of_a_mailbox_is_called_in_the_same_way_on_all_faces(face: type, verb: str) -> None:
    ours, theirs = (inspect.signature(getattr(kind, verb)) for kind in (face, aio.Mailbox))
    assert list(ours.parameters.values()) == list(theirs.parameters.values())


def test_a_mailbox_has_what_the_protocol_says_and_no_more() -> None:
    assert public(blocking.Mailbox) == public(aio.QueueMailbox) == {"name", "closed", *VERBS}
    assert public(aio.Mailbox) == {"name", "closed", *VERBS}


@pytest.mark.parametrize(("ours", "theirs"), PAIRS, ids=lambda kind: kind.__name__)
def test_messages_and_places_have_the_same_names_and_signatures_too(ours: type, theirs: type) -> None:
    assert public(ours) == public(theirs)
    for name in public(ours):
        if inspect.isfunction(getattr(ours, name)):
            mine, other = (inspect.signature(getattr(kind, name)).parameters for kind in (ours, theirs))
            assert list(mine.values()) == list(other.values()), name


def test_every_face_fits_the_protocol() -> None:
    async def whole() -> None:
        async with aio.open("memory:") as place:
            boxes: list[AsyncMailbox[Order, Any]] = [
                place.mailbox("orders", Order),
                doubles.NullMailbox(),
                doubles.CollectingMailbox(),
                doubles.FakeMailbox(),
            ]
            for box in boxes:
                assert len(await box.send(Order(1), reply_to="answers")) == 36
                assert await box.approximate_count() in (0, 1)
                await box.close()
                assert (box.closed, await box.receive()) == (True, [])

    asyncio.run(whole())


def test_the_whole_way_in_blocking_code(tmp_path: Path) -> None:
    with mailboxes.open(f"sqlite:{tmp_path}/shop.db") as place:
        orders, answers = place.mailbox("orders", Order), place.mailbox("answers", str)
        id = orders.send(Order(7), reply_to=answers)
        (message,) = orders.receive(max_messages=10, visibility_timeout=60, wait_time_seconds=SOON)
        assert (message.id, message.body, message.delivery_count, message.is_finalized) == (id, Order(7), 1, False)
        message.extend_visibility(120)
        assert message.reply_to is not None
        assert (message.reply_to.name, message.reply_to_name) == ("answers", "answers")
        message.reply("begun")
        message.nack()
        with pytest.raises(MessageFinalizedError):
            message.reply("too late")
        with pytest.raises(ReceiptHandleExpiredError):
            message.acknowledge()
        (again,) = orders.receive(wait_time_seconds=SOON)
        assert (again.id, again.delivery_count, again.enqueued_at) == (id, 2, message.enqueued_at)
        assert again.receipt_handle != message.receipt_handle
        again.acknowledge()
        assert (orders.approximate_count(), answers.approximate_count(), answers.purge()) == (0, 1, 1)
        with pytest.raises(InvalidParameterError):
            orders.receive(visibility_timeout=-1)
        orders.send(Order(8))
        (silent,) = orders.receive(wait_time_seconds=SOON)
        with pytest.raises(ReplyNotAvailableError):
            silent.reply("x")
        orders.close()
        assert (orders.closed, orders.receive(wait_time_seconds=SOON)) == (True, [])
    assert place.closed
    with pytest.raises(MailboxConnectionError, match=r"^Mailbox 'answers' is closed$"):
        answers.send("x")


def test_replies_go_where_the_resolver_says() -> None:
    elsewhere = testing.CollectingMailbox[str, None]("answers")
    with mailboxes.open("memory:", resolver=RegistryResolver({"answers": elsewhere})) as place:
        orders = place.mailbox("orders", Order)
        orders.send(Order(1), reply_to=elsewhere)
        (message,) = orders.receive(wait_time_seconds=SOON)
        assert message.reply_to is elsewhere
        message.reply("done")
    assert elsewhere.sent == ["done"]


def test_closing_wakes_a_receiver_in_another_thread() -> None:
    with mailboxes.open("memory:") as place:
        orders = place.mailbox("orders", Order)
        got: list[Any] = []
        waiting = threading.Thread(target=lambda: got.append(orders.receive(wait_time_seconds=600)))
        waiting.start()
        core = place._mailboxes._queues
        assert orders.approximate_count() == 0
        eventually(lambda: place._bridge.run(core.stats("orders")).leasing == 1)
        orders.close()
        waiting.join(SOON)
        assert got == [[]]


def test_closing_the_place_sends_all_threads_away_that_wait_and_leaves_none_behind() -> None:
    def once() -> None:
        place = mailboxes.open("memory:")
        orders = place.mailbox("orders", Order)
        assert orders.approximate_count() == 0
        got: list[Any] = []
        threads = [threading.Thread(target=lambda: got.append(orders.receive(wait_time_seconds=600))) for _ in range(5)]
        for thread in threads:
            thread.start()
        core = place._mailboxes._queues
        eventually(lambda: place._bridge.run(core.stats("orders")).leasing == 5)
        place.close()
        place.close()
        for thread in threads:
            thread.join(SOON)
        assert got == [[]] * 5
        with pytest.raises(MailboxConnectionError):
            orders.approximate_count()
        assert orders.receive(wait_time_seconds=600) == []
        orders.close()

    before = bridges()
    for _ in range(10):
        once()
    assert bridges() == before


def bridges() -> int:
    return sum(thread.name == "redrive-bridge" for thread in threading.enumerate())


def test_many_threads_share_a_mailbox_and_each_message_is_received_by_one(tmp_path: Path) -> None:
    received: Counter[int] = Counter()
    count, threads = 60, 6
    with mailboxes.open(f"sqlite:{tmp_path}/shop.db") as place:
        orders = place.mailbox("orders", Order)

        def send(start: int) -> None:
            for number in range(start, count, threads):
                orders.send(Order(number))

        def receive() -> None:
            while messages := orders.receive(max_messages=5, wait_time_seconds=1):
                for message in messages:
                    received[message.body.number] += 1
                    message.acknowledge()

        running = [threading.Thread(target=send, args=[start]) for start in range(threads)]
        running += [threading.Thread(target=receive) for _ in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join(60)
        assert orders.approximate_count() == 0
    assert received == Counter(range(count))


def test_a_null_mailbox_takes_everything_and_gives_nothing() -> None:
    box = testing.NullMailbox[Order, None]()
    assert box.send(Order(1)) != box.send(Order(1))
    assert (box.name, box.receive(), box.approximate_count(), box.purge()) == ("null", [], 0, 0)
    with pytest.raises(InvalidParameterError):
        box.receive(visibility_timeout=-1)


def test_a_collecting_mailbox_shows_what_was_sent() -> None:
    box = testing.CollectingMailbox[Order, None]("dead")
    box.send(Order(1))
    id = box.send(Order(2), reply_to=testing.NullMailbox[str, None]("answers"))
    assert (box.sent, box.approximate_count()) == ([Order(1), Order(2)], 2)
    assert box.deliveries[1] == testing.Sent(id=id, body=Order(2), reply_to="answers")
    assert (box.receive(), box.purge(), box.sent) == ([], 2, [])


def test_a_fake_mailbox_gives_what_a_test_puts_in() -> None:
    answers = testing.CollectingMailbox[str, None]("answers")
    box = testing.FakeMailbox[Order, str]("orders", [Order(1)], resolver=RegistryResolver({"answers": answers}))
    id = box.inject(Order(2), id="m-2", delivery_count=5, reply_to="answers")
    first, second = box.receive(max_messages=10)
    assert (first.body, first.delivery_count, second.id, second.delivery_count) == (Order(1), 1, id, 5)
    second.reply("done")
    assert answers.sent == ["done"]
    first.acknowledge()
    second.extend_visibility(60)
    second.nack(visibility_timeout=900)
    (again,) = box.receive()
    assert (again.id, again.delivery_count, box.approximate_count()) == ("m-2", 6, 1)
    again.nack()
    assert box.acknowledged == [first.id]
    assert box.nacked == [("m-2", timedelta(minutes=15)), ("m-2", timedelta())]
    assert box.extended == [("m-2", timedelta(minutes=1))]
    box.send(Order(3))
    assert box.sent == [Order(3)]
    assert (len(box.deliveries), box.purge(), box.receive()) == (1, 2, [])


def test_a_fake_mailbox_lets_handles_expire_and_connections_break() -> None:
    box = testing.FakeMailbox[Order, None]("orders", [Order(1)])
    (message,) = box.receive()
    box.expire_handles()
    for settle in (message.acknowledge, message.nack, lambda: message.extend_visibility(5)):
        with pytest.raises(ReceiptHandleExpiredError):
            settle()
    (again,) = box.receive()
    assert again.delivery_count == 2
    box.disconnect()
    for verb in (box.receive, box.purge, box.approximate_count, again.acknowledge, lambda: box.send(Order(2))):
        with pytest.raises(MailboxConnectionError, match=r"^Mailbox 'orders' cannot be reached$"):
            verb()
    box.reconnect()
    again.acknowledge()
    assert (again.is_finalized, box.approximate_count()) == (True, 0)


def test_importing_redrive_does_not_load_mailboxes_or_queues() -> None:
    program = "import sys, redrive; print([name for name in sys.modules if name.startswith(('redrive.mail', 'redrive.queues'))])"
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"
