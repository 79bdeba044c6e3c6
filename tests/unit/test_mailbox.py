"""Mailboxes on every store: sent, received, settled, and come again when they are not."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from redrive import RedriveError
from redrive.mailboxes import (
    InvalidParameterError,
    MailboxConnectionError,
    MailboxFullError,
    MessageFinalizedError,
    ReceiptHandleExpiredError,
    RegistryResolver,
    ReplyNotAvailableError,
    errors,
)
from redrive.mailboxes.aio import Mailboxes
from redrive.model.errors import NoSuchQueue
from redrive.model.instant import instant
from redrive.queues import Queues
from tests.unit.mailbox_use import SOON, Order, Use, one_of, used
from tests.unit.queue_use import STORES, Place, Troubled, queue_store
from tests.unit.waiting import until

Tell = Callable[[Callable[[Use], Awaitable[None]]], None]


@pytest.fixture(params=STORES)
def tell(request: pytest.FixtureRequest, tmp_path: Path, namespace: str) -> Tell:
    place: Place = request.param
    return teller(place(tmp_path, namespace))


@pytest.fixture
def tell_in_memory() -> Tell:
    return teller("memory:")


def teller(url: str) -> Tell:
    def told(story: Callable[[Use], Awaitable[None]]) -> None:
        async def whole() -> None:
            async with used(url) as use:
                await story(use)

        asyncio.run(whole())

    return told


def test_what_is_sent_is_received_with_all_that_is_known_of_it(tell: Tell) -> None:
    async def story(use: Use) -> None:
        orders = use.orders()
        assert (orders.name, orders.closed) == ("orders", False)
        id = await orders.send(Order(7, "fragile"))
        message = await one_of(orders)
        assert (message.id, message.body, message.delivery_count) == (id, Order(7, "fragile"), 1)
        assert message.enqueued_at == instant(use.clock.now_us())
        assert (message.reply_to, message.reply_to_name, message.is_finalized) == (None, None, False)
        await message.acknowledge()
        assert message.is_finalized
        use.later(100)
        assert await orders.receive() == []
        assert await orders.approximate_count() == 0

    tell(story)


def test_messages_come_in_the_order_they_were_sent(tell: Tell) -> None:
    async def story(use: Use) -> None:
        orders = use.orders()
        for number in range(5):
            await orders.send(Order(number))
        received = [*await orders.receive(max_messages=3), *await orders.receive(max_messages=10)]
        assert [message.body.number for message in received] == [0, 1, 2, 3, 4]

    tell(story)


@pytest.mark.parametrize(("asked", "given"), [(-3, 1), (0, 1), (4, 4), (10, 10), (11, 10), (1000, 10)])
def test_between_one_and_ten_are_received_at_once(tell_in_memory: Tell, asked: int, given: int) -> None:
    async def story(use: Use) -> None:
        for number in range(12):
            await use.orders().send(Order(number))
        assert len(await use.orders().receive(max_messages=asked)) == given

    tell_in_memory(story)


def test_a_received_message_is_invisible_until_its_time_is_over_then_comes_again_at_the_tail(tell: Tell) -> None:
    async def story(use: Use) -> None:
        orders = use.orders()
        await orders.send(Order(1))
        first = await one_of(orders, visibility_timeout=60)
        await orders.send(Order(2))
        use.later(59)
        assert [message.body.number for message in await orders.receive(max_messages=10, visibility_timeout=500)] == [2]
        assert await orders.approximate_count() == 2, "invisible ones are counted too"
        await orders.send(Order(3))
        use.later(2)

        async def is_back() -> bool:
            return (await use.queues.stats("orders")).partitions[0].ready == 2

        await until(is_back)
        three, again = await orders.receive(max_messages=10)
        assert (three.body.number, again.body.number) == (3, 1)
        assert (again.id, again.delivery_count) == (first.id, 2)
        assert again.receipt_handle != first.receipt_handle
        assert again.enqueued_at == first.enqueued_at

    tell(story)


def test_without_a_word_a_message_is_invisible_for_thirty_seconds(tell_in_memory: Tell) -> None:
    async def story(use: Use) -> None:
        await use.orders().send(Order(1))
        await one_of(use.orders())
        use.later(29.9)
        assert await use.orders().receive() == []
        use.later(0.2)
        assert (await one_of(use.orders())).delivery_count == 2

    tell_in_memory(story)


def test_a_stale_handle_settles_nothing(tell: Tell) -> None:
    async def story(use: Use) -> None:
        orders = use.orders()
        await orders.send(Order(1))
        stale = await one_of(orders, visibility_timeout=5)
        use.later(6)
        for settle in (stale.acknowledge, stale.nack, lambda: stale.extend_visibility(5)):
            with pytest.raises(ReceiptHandleExpiredError) as refused:
                await settle()
            assert refused.value.handle == stale.receipt_handle
        assert not stale.is_finalized
        again = await one_of(orders)
        with pytest.raises(ReceiptHandleExpiredError):
            await stale.acknowledge()
        await again.acknowledge()
        for settle in (again.acknowledge, again.nack, lambda: again.extend_visibility(5)):
            with pytest.raises(ReceiptHandleExpiredError):
                await settle()
        assert await orders.approximate_count() == 0

    tell(story)


def test_a_message_that_is_given_back_comes_again_at_once_or_after_a_while(tell: Tell) -> None:
    async def story(use: Use) -> None:
        orders = use.orders()
        await orders.send(Order(1))
        first = await one_of(orders)
        await first.nack()
        assert first.is_finalized
        second = await one_of(orders)
        assert (second.delivery_count, second.id) == (2, first.id)
        use.later(20)
        await second.nack(visibility_timeout=300)
        with pytest.raises(ReceiptHandleExpiredError):
            await second.acknowledge()
        assert await orders.approximate_count() == 1
        use.later(299)
        assert await orders.receive() == []
        use.later(2)
        assert (await one_of(orders)).delivery_count == 3

    tell(story)


def test_visibility_is_extended_from_now_and_may_be_ended(tell: Tell) -> None:
    async def story(use: Use) -> None:
        orders = use.orders()
        await orders.send(Order(1))
        message = await one_of(orders, visibility_timeout=30)
        use.later(20)
        await message.extend_visibility(60)
        use.later(59)
        assert await orders.receive() == []
        await message.extend_visibility(10)
        assert not message.is_finalized
        await message.extend_visibility(0)
        use.later(0.001)
        with pytest.raises(ReceiptHandleExpiredError):
            await message.acknowledge()
        assert (await one_of(orders)).delivery_count == 2

    tell(story)


def test_a_message_received_for_no_time_is_there_for_the_next(tell: Tell) -> None:
    async def story(use: Use) -> None:
        orders = use.orders()
        await orders.send(Order(1))
        assert (await one_of(orders, visibility_timeout=0)).delivery_count == 1
        use.later(0.001)
        assert (await one_of(orders)).delivery_count == 2

    tell(story)


@pytest.mark.parametrize("seconds", [-1, 43_201, float("nan"), float("inf")])
def test_visibility_has_limits(tell_in_memory: Tell, seconds: float) -> None:
    ending = f"must be at most 43200 seconds, got {seconds}" if seconds > 43_200 else f"must be non-negative, got {seconds}"

    async def story(use: Use) -> None:
        orders = use.orders()
        with pytest.raises(InvalidParameterError, match=f"^visibility_timeout {ending}$"):
            await orders.receive(visibility_timeout=seconds)
        await orders.send(Order(1))
        message = await one_of(orders, visibility_timeout=43_200)
        with pytest.raises(InvalidParameterError, match=f"^visibility_timeout {ending}$"):
            await message.nack(visibility_timeout=seconds)
        with pytest.raises(InvalidParameterError, match=f"^timeout {ending}$"):
            await message.extend_visibility(seconds)
        assert not message.is_finalized
        await message.extend_visibility(43_200)
        await message.nack(visibility_timeout=43_200)

    tell_in_memory(story)


def test_other_arguments_have_limits_too(tell_in_memory: Tell) -> None:
    async def story(use: Use) -> None:
        with pytest.raises(InvalidParameterError, match=r"^wait_time_seconds must be non-negative, got -1$"):
            await use.orders().receive(wait_time_seconds=-1)
        with pytest.raises(InvalidParameterError, match=r"^max_size must be positive, got 0$"):
            use.orders(max_size=0)
        with pytest.raises(InvalidParameterError, match=r"^default_ttl must be non-negative, got -5$"):
            use.orders(default_ttl=-5)
        for name in ("", "two words", "x" * 513):
            with pytest.raises(InvalidParameterError, match=r"^mailbox name is invalid; "):
                use.place.mailbox(name)

    tell_in_memory(story)


def test_a_receiver_waits_for_what_comes(tell: Tell) -> None:
    async def story(use: Use) -> None:
        orders = use.orders()
        assert await orders.receive(wait_time_seconds=0.05) == []
        waiting = asyncio.create_task(orders.receive(wait_time_seconds=SOON))

        async def waits() -> bool:
            return (await use.queues.stats("orders")).leasing == 1

        await until(waits)
        await orders.send(Order(1))
        assert [message.body for message in await waiting] == [Order(1)]

    tell(story)


def test_closing_a_mailbox_sends_its_receivers_away_and_no_others(tell: Tell) -> None:
    async def story(use: Use) -> None:
        here, there = use.orders(), use.orders()
        await here.send(Order(1))
        held = await one_of(here)
        waiting = [asyncio.create_task(box.receive(wait_time_seconds=SOON)) for box in (here, here, there)]

        async def wait() -> bool:
            return (await use.queues.stats("orders")).leasing == 3

        await until(wait)
        await here.close()
        assert (here.closed, there.closed) == (True, False)
        async with asyncio.timeout(5):
            assert await waiting[0] == await waiting[1] == []
        assert await here.receive(wait_time_seconds=SOON) == []
        with pytest.raises(MailboxConnectionError, match=r"^Mailbox 'orders' is closed$"):
            await here.send(Order(2))
        await held.nack()
        assert [message.body for message in await waiting[2]] == [Order(1)]

    tell(story)


def test_closing_the_place_closes_its_mailboxes(tell: Tell) -> None:
    async def story(use: Use) -> None:
        orders = use.orders()
        await orders.send(Order(1))
        held = await one_of(orders)
        waiting = asyncio.create_task(orders.receive(wait_time_seconds=SOON))

        async def waits() -> bool:
            return (await use.queues.stats("orders")).leasing == 1

        await until(waits)
        await use.place.close()
        async with asyncio.timeout(5):
            assert await waiting == []
        assert orders.closed
        with pytest.raises(MailboxConnectionError, match=r"^Mailbox 'orders' is closed$"):
            await held.acknowledge()

    tell(story)


def test_a_receiver_that_is_cancelled_is_cancelled(tell_in_memory: Tell) -> None:
    async def story(use: Use) -> None:
        orders = use.orders()
        assert await orders.approximate_count() == 0
        waiting = asyncio.create_task(orders.receive(wait_time_seconds=SOON))

        async def waits() -> bool:
            return (await use.queues.stats("orders")).leasing == 1

        await until(waits)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await orders.send(Order(1))
        assert (await one_of(orders)).delivery_count == 1

    tell_in_memory(story)


def test_purging_deletes_all_that_is_there_in_whatever_state(tell: Tell) -> None:
    async def story(use: Use) -> None:
        orders = use.orders()
        assert await orders.purge() == 0
        for number in range(4):
            await orders.send(Order(number))
        held, given_back = await orders.receive(max_messages=2)
        await given_back.nack(visibility_timeout=600)
        assert await orders.approximate_count() == 4
        assert await orders.purge() == 4
        assert await orders.approximate_count() == 0
        with pytest.raises(ReceiptHandleExpiredError):
            await held.acknowledge()

    tell(story)


def test_a_full_mailbox_takes_no_more_until_some_are_worked_off(tell: Tell) -> None:
    async def story(use: Use) -> None:
        orders = use.orders(max_size=2)
        await orders.send(Order(1))
        await orders.send(Order(2))
        message = await one_of(orders)
        with pytest.raises(MailboxFullError, match=r"^Queue 'orders' at capacity \(2\)$"):
            await orders.send(Order(3))
        await message.acknowledge()
        await orders.send(Order(3))
        assert await orders.approximate_count() == 2

    tell(story)


def test_senders_at_the_same_time_do_not_overfill_a_mailbox(tell: Tell) -> None:
    async def story(use: Use) -> None:
        boxes = [use.orders(max_size=5) for _ in range(20)]
        sent = await asyncio.gather(*(box.send(Order(1)) for box in boxes), return_exceptions=True)
        assert sum(isinstance(one, MailboxFullError) for one in sent) == 15
        assert await boxes[0].approximate_count() == 5

    tell(story)


class Slow(Troubled):
    """A store whose every answer takes a while, so that others come in between."""

    def __getattr__(self, verb: str) -> Any:
        attribute = super().__getattr__(verb)
        if not inspect.iscoroutinefunction(attribute):
            return attribute

        async def call(*args: Any, **kwargs: Any) -> Any:
            await asyncio.sleep(0)
            answer = await attribute(*args, **kwargs)
            await asyncio.sleep(0)
            return answer

        return call


def test_a_slow_store_is_not_overfilled_either() -> None:
    async def whole() -> None:
        async with Mailboxes(Queues({"store": Slow(queue_store("memory:"))})) as place:
            boxes = [place.mailbox("orders", Order, max_size=5) for _ in range(20)]
            sent = await asyncio.gather(*(box.send(Order(1)) for box in boxes), return_exceptions=True)
            assert sum(isinstance(one, MailboxFullError) for one in sent) == 15
            assert await boxes[0].approximate_count() == 5

    asyncio.run(whole())


class Hasty(Queues):
    """Sends those away who wait, and is gone before they are."""

    async def close(self) -> None:
        self.dismiss()

    async def end(self) -> None:
        await super().close()


def test_a_place_is_closed_when_its_receivers_have_gone() -> None:
    async def whole() -> None:
        queues = Hasty({"store": queue_store("memory:")})
        async with Mailboxes(queues) as place:
            orders = place.mailbox("orders", Order)
            waiting = [asyncio.create_task(orders.receive(wait_time_seconds=SOON)) for _ in range(3)]

            async def all_wait() -> bool:
                return bool(await queues.queues()) and (await queues.stats("orders")).leasing == 3

            await until(all_wait)
        assert [task.done() and task.result() for task in waiting] == [[], [], []]
        await queues.end()

    asyncio.run(whole())


def test_a_message_is_replied_to_as_often_as_there_is_something_to_say_until_it_is_settled(tell: Tell) -> None:
    async def story(use: Use) -> None:
        orders, answers = use.orders(), use.place.mailbox("answers", str)
        await orders.send(Order(1), reply_to=answers)
        await orders.send(Order(2), reply_to="answers")
        first, second = await orders.receive(max_messages=2)
        assert first.reply_to is not None
        assert first.reply_to.name == second.reply_to_name == "answers"
        await first.reply("begun")
        await first.reply("done")
        await first.acknowledge()
        with pytest.raises(MessageFinalizedError, match=f"^Message '{first.id}' already finalized; cannot reply$"):
            await first.reply("too late")
        await second.nack()
        with pytest.raises(MessageFinalizedError):
            await second.reply("too late")
        assert (await one_of(orders)).reply_to_name == "answers"
        assert [answer.body for answer in await answers.receive(max_messages=10)] == ["begun", "done"]

    tell(story)


def test_nobody_is_replied_to_who_did_not_ask_or_is_not_known(tell_in_memory: Tell) -> None:
    async def story(use: Use) -> None:
        strict = Mailboxes(use.queues, resolver=RegistryResolver())
        orders = strict.mailbox("orders", Order)
        await orders.send(Order(1))
        await orders.send(Order(2), reply_to="nobody")
        silent, unknown = await orders.receive(max_messages=2)
        with pytest.raises(ReplyNotAvailableError, match=f"^Message '{silent.id}' has no reply_to; cannot reply$"):
            await silent.reply("x")
        assert (unknown.reply_to, unknown.reply_to_name) == (None, "nobody")
        with pytest.raises(ReplyNotAvailableError, match=r"Cannot resolve mailbox identifier: nobody$"):
            await unknown.reply("x")
        await silent.acknowledge()

    tell_in_memory(story)


def test_the_queue_behind_a_mailbox_is_made_on_first_use_and_again_when_it_was_deleted(tell: Tell) -> None:
    async def story(use: Use) -> None:
        orders = use.orders()
        with pytest.raises(NoSuchQueue):
            await use.queues.info("orders")
        assert await orders.approximate_count() == 0
        queue = await use.queues.info("orders")
        assert (queue.max_attempts, len(queue.partitions), queue.lease_timeout.total_seconds()) == (0, 1, 30)
        await orders.send(Order(1))
        held = await one_of(orders)
        await use.queues.delete("orders")
        with pytest.raises(ReceiptHandleExpiredError):
            await held.acknowledge()
        await orders.send(Order(2))
        assert (await one_of(orders)).body == Order(2)

    tell(story)


def test_all_who_use_a_mailbox_first_at_the_same_time_share_one(tell: Tell) -> None:
    async def story(use: Use) -> None:
        await asyncio.gather(*(use.orders().send(Order(number)) for number in range(10)))
        assert await use.orders().approximate_count() == 10
        assert [queue.name for queue in await use.queues.queues()] == ["orders"]

    tell(story)


def test_a_queue_that_is_there_already_is_a_mailbox(tell: Tell) -> None:
    async def story(use: Use) -> None:
        async with Mailboxes(use.queues) as place:
            await place.mailbox("orders", Order).send(Order(0))
            await use.queues.update("orders", partitions=3)
            for number in range(1, 6):
                await place.mailbox("orders", Order).send(Order(number))
            found: set[int] = set()
            while len(found) < 6:
                for message in await place.mailbox("orders", Order).receive(max_messages=10, wait_time_seconds=SOON):
                    found.add(message.body.number)
                    await message.acknowledge()
            assert await place.mailbox("orders").approximate_count() == 0

    tell(story)


def test_messages_stay_for_ever_unless_somebody_said_for_how_long(tell: Tell) -> None:
    async def story(use: Use) -> None:
        brief = use.place.mailbox("brief", Order, default_ttl=20)
        await brief.send(Order(1))
        await use.orders().send(Order(2))
        use.later(21)

        async def is_gone() -> bool:
            return await brief.approximate_count() == 0

        await until(is_gone)
        use.later(400 * 86_400)
        assert (await one_of(use.orders())).body == Order(2)

    tell(story)


def test_a_store_that_does_not_answer_is_told_of_and_comes_back() -> None:
    async def whole() -> None:
        store = Troubled(queue_store("memory:"))
        async with Mailboxes(Queues({"store": store})) as place:
            orders = place.mailbox("orders", Order)
            with (
                store.down(),
                pytest.raises(MailboxConnectionError, match=r"^Mailbox 'orders' cannot be reached: gone for lunch$"),
            ):
                await orders.send(Order(1))
            await orders.send(Order(1))
            message = await one_of(orders)
            for verb in (
                lambda: orders.send(Order(2)),
                orders.receive,
                orders.purge,
                orders.approximate_count,
                message.acknowledge,
                message.nack,
                lambda: message.nack(visibility_timeout=5),
                lambda: message.extend_visibility(5),
            ):
                with store.down(), pytest.raises(MailboxConnectionError):
                    await verb()
            assert not message.is_finalized
            await message.acknowledge()
            assert message.is_finalized
            store.lose_answer("put")
            with pytest.raises(MailboxConnectionError, match=r"the line is dead"):
                await orders.send(Order(3))
            assert (await one_of(orders)).body == Order(3), "it may have been done"

    asyncio.run(whole())


def test_every_error_of_mailboxes_is_redrives_and_has_a_code_of_its_own() -> None:
    named = [kind for kind in vars(errors).values() if isinstance(kind, type) and kind.__module__ == errors.__name__]
    kinds = [kind for kind in named if issubclass(kind, RedriveError) and kind.__doc__]
    assert kinds == named
    assert len({kind.code for kind in kinds}) == len(kinds) == 9
    drawn = errors.__doc__ or ""
    assert [kind.__name__ for kind in kinds if kind.__name__ not in drawn] == []
