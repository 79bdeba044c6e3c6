"""`dlq.once`: receipts on the desk, and what is said when nobody knows whether the work was done."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import redrive
from redrive import AlreadyBegun, AnswerLost, BadSettings, Category, Message, OutcomeUnknown, StoreUnavailable, blocking
from redrive.backends.memory import MemoryDesk, MemoryLetters
from redrive.engine.bound_desk import BoundDesk
from redrive.engine.dead_letters import DeadLetters
from redrive.engine.describe import describe
from redrive.model.receipt import Receipt, ReceiptState, Which
from redrive.testing import START
from redrive.testing.kit.samples import occurrence
from tests.contract.backends import own_name
from tests.unit.databases import message
from tests.unit.targets import Tell, teller
from tests.unit.test_blocking import in_threads
from tests.unit.waiting import until

ALL = Which(namespace="default")
STORES = ["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.engine("postgres"))]


def url_of(store: str, folder: Path) -> str:
    match store:
        case "memory":
            return "memory:"
        case "sqlite":
            return f"sqlite:{folder}/redrive.db"
        case _:
            return f"{os.environ['REDRIVE_TEST_POSTGRES']}?schema={own_name(folder)}"


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return url_of(request.param, tmp_path)


@pytest.fixture
def tell(url: str) -> Tell:
    return teller(url)


def states(receipts: list[Receipt]) -> dict[str, ReceiptState]:
    return {one.key: one.state for one in receipts}


def test_a_second_delivery_is_not_worked_again(url: str) -> None:
    with blocking.open(url) as dlq:
        worked: list[str | None] = []

        @dlq.once(name="ship")
        def ship(message: Message) -> str:
            worked.append(message.id)
            return "shipped"

        assert [ship(message(id)) for id in ("1", "1", "2")] == ["shipped", None, "shipped"]
        assert worked == ["1", "2"]
        (latest, first) = dlq.desk.receipts(ALL)
        assert (latest.handler, latest.key, latest.state, first.key) == ("ship", "2", ReceiptState.DONE, "1")
        assert latest.until is not None
        assert timedelta(days=29) < latest.until - latest.at < timedelta(days=31)


def test_it_is_the_same_for_coroutine_functions(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        @dlq.once(keep=None)
        async def ship(message: Message) -> str:
            (begun,) = await dlq.desk.receipts(ALL)
            assert begun.state is ReceiptState.BEGUN
            return "shipped"

        assert await ship(message()) == "shipped"
        assert await ship(message()) is None
        (done,) = await dlq.desk.receipts(ALL)
        assert (done.state, done.until) == (ReceiptState.DONE, None)
        assert done.handler.endswith("story.<locals>.ship")

    tell(story)


def test_a_plain_function_of_an_async_store_works_once_too(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        @dlq.once(key=lambda order: order)
        def ship(order: str) -> str:
            return order

        assert [ship("a"), ship("a"), ship("b")] == ["a", None, "b"]

    tell(story)


def test_what_fails_leaves_no_receipt_and_works_later(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        errors = [ConnectionError("down"), None]

        @dlq.once()
        async def ship(message: Message) -> str:
            if (error := errors.pop(0)) is not None:
                raise error
            return "shipped"

        with pytest.raises(ConnectionError, match="down"):
            await ship(message())
        assert await dlq.desk.receipts(ALL) == []
        assert await ship(message()) == "shipped"

    tell(story)


def test_what_somebody_works_on_is_to_be_tried_later(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        has_begun, may_end = asyncio.Event(), asyncio.Event()

        @dlq.once(name="ship")
        async def ship(message: Message) -> str:
            has_begun.set()
            await may_end.wait()
            return "shipped"

        first = asyncio.create_task(ship(message()))
        await has_begun.wait()
        with pytest.raises(
            AlreadyBegun, match=r"the work of 'ship' on delivery 1 is under way since .* try again later"
        ) as caught:
            await ship(message())
        assert caught.value.transient
        assert describe(caught.value).category is Category.TRANSIENT
        may_end.set()
        assert await first == "shipped"
        assert await ship(message()) is None

    tell(story)


async def died(dlq: DeadLetters, key: str = "1") -> None:
    """Somebody began long ago and never said how it ended."""
    begun = Receipt(namespace="default", handler="ship", key=key, token=occurrence("dead"), at=START, by="host:1")
    await dlq.desk.begin([begun], timedelta(minutes=5), now=START)


def test_what_was_cut_short_is_unknown_and_said_so(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        await died(dlq)

        @dlq.once(name="ship")
        async def ship(message: Message) -> str:
            return "shipped"

        for _ in range(2):
            with pytest.raises(
                OutcomeUnknown, match=r"nobody knows whether its effect is there.* receipts forget ship 1"
            ) as caught:
                await ship(message())
        assert not caught.value.transient
        failure = describe(caught.value)
        assert failure.category is Category.PERMANENT
        assert states(await dlq.desk.receipts(ALL)) == {"1": ReceiptState.UNKNOWN}
        await dlq.desk.forget(Which(namespace="default", handler="ship", key="1"))
        assert await ship(message()) == "shipped"

    tell(story)


def test_it_is_worked_again_where_that_is_fine(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        await died(dlq)

        @dlq.once(name="ship", unknown="again")
        async def ship(message: Message) -> str:
            return "shipped"

        assert await ship(message()) == "shipped"
        assert await ship(message()) is None

    tell(story)


def test_a_handler_that_is_cancelled_leaves_it_open_and_one_that_never_began_does_not(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        has_begun = asyncio.Event()

        @dlq.once()
        async def ship(message: Message) -> None:
            has_begun.set()
            await asyncio.sleep(3600)

        task = asyncio.create_task(ship(message("cut")))
        await has_begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert states(await dlq.desk.receipts(ALL)) == {"cut": ReceiptState.BEGUN}
        begin = dlq.desk.begin

        async def begin_slowly(*args: Any, **more: Any) -> Any:
            await begin(*args, **more)
            task.cancel()
            await asyncio.sleep(3600)

        dlq.desk.begin = begin_slowly  # type: ignore[method-assign]
        task = asyncio.create_task(ship(message("never")))
        with pytest.raises(asyncio.CancelledError):
            await task
        assert states(await dlq.desk.receipts(ALL)) == {"cut": ReceiptState.BEGUN}

    tell(story)


def test_many_threads_that_get_the_same_deliveries_work_each_once(url: str) -> None:
    with blocking.open(url) as dlq:
        worked: list[str] = []

        @dlq.once()
        def ship(message: Message) -> None:
            worked.append(str(message.id))

        def work(number: int) -> None:
            for turn in range(10):
                try:
                    ship(message(str((turn + number) % 10)))
                except AlreadyBegun:
                    continue

        in_threads(8, work)
        assert sorted(worked) == [str(number) for number in range(10)]
        assert set(states(dlq.desk.receipts(ALL)).values()) == {ReceiptState.DONE}


def test_many_tasks_that_get_the_same_deliveries_work_each_once(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        worked: list[str] = []

        @dlq.once()
        async def ship(message: Message) -> None:
            worked.append(str(message.id))
            await asyncio.sleep(0)

        answers = await asyncio.gather(*(ship(message(str(number % 10))) for number in range(100)), return_exceptions=True)
        assert {type(answer) for answer in answers} <= {type(None), AlreadyBegun}
        assert sorted(worked) == [str(number) for number in range(10)]

    tell(story)


def test_two_namespaces_have_receipts_of_their_own(tmp_path: Path) -> None:
    letters, desk = MemoryLetters(), MemoryDesk()
    worked: list[str] = []
    for namespace in ("a", "b", "a"):
        dlq = DeadLetters(letters, desk, namespace=namespace)

        @dlq.once(name="ship")
        def ship(message: Message, namespace: str = namespace) -> None:
            worked.append(namespace)

        ship(message())
    assert worked == ["a", "b"]


def test_a_desk_elsewhere_keeps_receipts_too() -> None:
    async def bind(id: UUID) -> UUID:
        return id

    async def story() -> None:
        async with DeadLetters(MemoryLetters(), BoundDesk(MemoryDesk(), bind, "elsewhere")) as dlq:

            @dlq.once()
            async def ship(message: Message) -> str:
                if message.id == "bad":
                    raise ValueError("bad")
                return "shipped"

            assert [await ship(message("1")), await ship(message("1"))] == ["shipped", None]
            with pytest.raises(ValueError, match="bad"):
                await ship(message("bad"))
            assert states(await dlq.desk.receipts(ALL)) == {"1": ReceiptState.DONE}
            assert (await dlq.desk.expire(), await dlq.desk.forget(ALL)) == (0, 1)

    asyncio.run(story())


class Flaky(MemoryDesk):
    """Loses answers, or is down, as often as it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.begins: list[Exception] = []
        self.ends: list[Exception] = []

    async def begin(self, *args: Any, **more: Any) -> list[Receipt]:
        answer = await super().begin(*args, **more)
        if self.begins:
            raise self.begins.pop()
        return answer

    async def end(self, *args: Any, **more: Any) -> list[bool]:
        if self.ends and not isinstance(self.ends[-1], AnswerLost):
            raise self.ends.pop()
        answer = await super().end(*args, **more)
        if self.ends:
            raise self.ends.pop()
        return answer


@contextmanager
def flaky() -> Iterator[tuple[DeadLetters, Flaky]]:
    desk = Flaky()
    yield DeadLetters(MemoryLetters(), desk), desk


def test_an_answer_that_was_lost_is_asked_for_again() -> None:
    with flaky() as (dlq, desk):
        desk.begins = [AnswerLost("lost")] * 2
        desk.ends = [AnswerLost("lost")] * 2
        assert dlq.once()(lambda message: "shipped")(message()) == "shipped"
        assert [one.state for one in desk._receipts.values()] == [ReceiptState.DONE]


def test_a_desk_that_is_down_lets_no_work_begin() -> None:
    with flaky() as (dlq, desk):
        desk.begins = [StoreUnavailable("down")] * 3
        with pytest.raises(StoreUnavailable):
            dlq.once()(lambda message: pytest.fail("it was called"))(message())


def test_what_has_worked_is_no_failure_when_the_desk_goes_down_meanwhile(caplog: pytest.LogCaptureFixture) -> None:
    with flaky() as (dlq, desk):
        desk.ends = [StoreUnavailable("down")] * 3
        assert dlq.once(name="ship")(lambda message: "shipped")(message()) == "shipped"
        assert [one.state for one in desk._receipts.values()] == [ReceiptState.BEGUN]
    assert "a delivery was worked by 'ship', and its receipt could not be told: down" in caplog.text


def test_a_handlers_own_error_is_what_its_caller_hears(caplog: pytest.LogCaptureFixture) -> None:
    def fail(message: Message) -> None:
        raise ValueError("bad")

    with flaky() as (dlq, desk):
        desk.ends = [StoreUnavailable("down")] * 3
        with pytest.raises(ValueError, match="bad"):
            dlq.once()(fail)(message())
    assert "its receipt could not be taken back: down" in caplog.text


def test_whoever_takes_longer_than_the_lease_and_is_overtaken_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with flaky() as (dlq, desk):

        @dlq.once(name="ship")
        def ship(message: Message) -> str:
            desk._receipts.clear()
            return "shipped"

        with caplog.at_level(logging.WARNING, logger="redrive.once"):
            assert ship(message()) == "shipped"
    assert "'ship' took longer than its lease" in caplog.text


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"unknown": "maybe"}, "unknown='maybe' must be 'raise' or 'again'"),
        ({"lease": timedelta()}, "lease must be a timedelta longer than nothing"),
        ({"keep": 30}, "keep must be a timedelta longer than nothing, got 30"),
        ({"name": ""}, "name for its receipts"),
    ],
)
def test_a_mistake_is_told_at_once(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadSettings, match=sentence):
        redrive.open("memory:").once(**options)(lambda message: None)


def test_the_housekeeper_forgets_what_is_old_and_names_what_is_unknown(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        await died(dlq)

        @dlq.once(keep=timedelta(microseconds=1))
        async def ship(message: Message) -> None: ...

        await ship(message("2"))

        async def is_clean() -> bool:
            return states(await dlq.desk.receipts(ALL)) == {"1": ReceiptState.UNKNOWN}

        assert not await is_clean()
        async with dlq.housekeeper():
            await until(is_clean)

    tell(story)
