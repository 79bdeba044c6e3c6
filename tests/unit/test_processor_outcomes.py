"""How a retry ends: worked, failed, exhausted, sent, put off; and when the next one comes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import redrive
from redrive import Amendment, Failure, Message, Pace, RetryPlan, Status, blocking
from redrive.backends.files.bodies import FileBodies
from redrive.backends.memory import MemoryDesk, MemoryLetters, MemoryTransport
from redrive.engine.dead_letters import DeadLetters
from redrive.engine.extract import REPR
from redrive.engine.retry import Retried
from redrive.model.letter import BodyRef
from redrive.model.operation import Delivered, Delivery, Refused, Unknown
from redrive.model.redaction import Redaction
from redrive.ports import LetterStore, Transport
from redrive.testing import START
from tests.contract.backends import sqlite_letters
from tests.unit.targets import Target, answering
from tests.unit.test_processor import QUICK, Handler, due, opened, seen, settled, tell
from tests.unit.waiting import until

HOURLY = Pace(interval=timedelta(hours=1))


@pytest.fixture
def store(tmp_path: Path) -> LetterStore:
    return sqlite_letters(tmp_path)


class Heard:
    """A listener that remembers."""

    def __init__(self) -> None:
        self.all: list[Retried] = []

    async def __call__(self, retried: Sequence[Retried]) -> None:
        self.all += retried


async def raising(name: str) -> None:
    raise ConnectionError("still down")


def raising_plainly(name: str) -> None:
    raise ConnectionError("still down")


async def answering_failed(name: str) -> dict[str, Any]:
    return {"status": "failed", "error": "still down"}


async def answering_no_success(name: str) -> dict[str, Any]:
    return {"success": False, "errors": "still down"}


async def cancelling_itself(name: str) -> None:
    raise asyncio.CancelledError("still down")


@pytest.mark.parametrize("handler", [raising, raising_plainly, answering_failed, answering_no_success, cancelling_itself])
def test_a_retry_that_fails_is_counted_and_comes_back_by_its_policy(store: LetterStore, handler: Callable[..., Any]) -> None:
    async def story() -> None:
        async with opened(store) as dlq:
            await dlq.letters.put([one := due("a")])
            heard, before = Heard(), datetime.now(UTC)
            async with dlq.processor({"orders": handler}, pace=HOURLY, listener=heard):
                await until(lambda: bool(heard.all))
            letter = await seen(dlq, one)
            assert (letter.status, letter.retry.retry_count, letter.attempts) == (Status.PENDING, 1, 2)
            assert (letter.history[-1].message, letter.failure.message) == ("still down", "still down")
            assert letter.retry.next_retry_at is not None
            # By the workflow DLQ's formula: 2 to the power of the retries made, in minutes.
            assert timedelta(minutes=2) <= letter.retry.next_retry_at - before < timedelta(minutes=3)
            (retried,) = heard.all
            assert (retried.has_failed, retried.is_exhausted, retried.has_worked) == (True, False, False)

    tell(story())


def test_a_letter_whose_last_retry_failed_is_exhausted_and_tried_no_more(store: LetterStore) -> None:
    async def story() -> None:
        async with opened(store) as dlq:
            await dlq.letters.put([one := due("a", max_retries=2, policy="immediate")])
            heard, handler = Heard(), Handler(fails=lambda name: True)
            async with dlq.processor({"orders": handler.work}, pace=QUICK, listener=heard):
                await settled(dlq, one, status=Status.EXHAUSTED)
                await dlq.letters.put([other := due("b", max_retries=1)])
                await settled(dlq, other, status=Status.EXHAUSTED)
            assert handler.calls == ["a", "a", "b"]
            assert [retried.is_exhausted for retried in heard.all] == [False, True, True]

    tell(story())


@pytest.mark.parametrize("answer", [None, 7, {"status": "ok"}, {"success": True}, {"success": None}, [], "failed"])
def test_any_other_answer_of_a_handler_is_success(store: LetterStore, answer: Any) -> None:
    async def story() -> None:
        async def handler(name: str) -> Any:
            return answer

        async with opened(store) as dlq:
            await dlq.letters.put([one := due("a")])
            heard = Heard()
            async with dlq.processor({"orders": handler}, pace=HOURLY, listener=heard):
                await settled(dlq, one)
                await until(lambda: bool(heard.all))
            assert heard.all[0].delivery == Delivered(confirmed=True, result=answer)

    tell(story())


def test_a_plain_function_works_in_threads_side_by_side(store: LetterStore) -> None:
    async def story() -> None:
        together = threading.Barrier(3)

        def handler(name: str) -> None:
            assert threading.current_thread() is not threading.main_thread()
            together.wait(30)

        async with opened(store) as dlq:
            letters = [due(str(number)) for number in range(6)]
            await dlq.letters.put(letters)
            async with dlq.processor({"orders": handler}, pace=Pace(concurrency=3)):
                await settled(dlq, *letters)

    tell(story())


def test_what_is_sent_to_a_queue_waits_for_its_outcome_and_a_lost_answer_is_unknown(store: LetterStore) -> None:
    async def story() -> None:
        async with opened(store) as dlq:
            await dlq.letters.put([sent := due("a"), lost := due("b", source="mails")])
            queue = MemoryTransport("orders")
            handlers: dict[str, Transport] = {"orders": queue, "mails": answering(Unknown(reason="connection cut"))}
            async with dlq.processor(handlers, pace=HOURLY):
                await settled(dlq, sent, lost, status=Status.REDRIVEN)
            (parcel,) = await queue.receive()
            assert parcel.message.redrive_id == sent.id
            assert (await seen(dlq, lost)).history[-1].outcome_unknown

    tell(story())


async def put_off(dlq: DeadLetters, target: Any, *letters: redrive.Letter, pace: Pace = HOURLY) -> list[redrive.Letter]:
    """The letters after their turn, which must not have spent an attempt."""
    await dlq.letters.put(letters)
    heard = Heard()
    async with dlq.processor({"orders": target}, pace=pace, listener=heard):
        await until(lambda: {one.letter.id for one in heard.all} >= {one.id for one in letters})
    after = [await seen(dlq, one) for one in letters]
    for one, before in zip(after, letters, strict=True):
        assert (one.status, one.retry.retry_count, one.history) == (Status.PENDING, before.retry.retry_count, before.history)
        assert one.retry.next_retry_at is not None
        assert one.retry.next_retry_at - datetime.now(UTC) > timedelta(minutes=30)
    assert len(heard.all) == len(letters), "hammered"
    return after


def test_a_target_that_cannot_be_sent_to_spends_no_attempt(store: LetterStore) -> None:
    async def story() -> None:
        async def fail(messages: Sequence[Message]) -> list[Delivery]:
            raise OSError("no route to the broker")

        async with opened(store) as dlq:
            after = await put_off(dlq, Target(fail), *(due(str(number)) for number in range(3)))
            assert {one.retry.waits_for for one in after} == {"no route to the broker"}

    tell(story())


def test_a_target_that_answers_for_too_few_is_not_believed(store: LetterStore) -> None:
    async def story() -> None:
        async with opened(store) as dlq:
            (after,) = await put_off(dlq, answering(), due("a"))
            assert "answered for 0 of 1 messages" in after.retry.waits_for

    tell(story())


def test_a_letter_whose_body_is_missing_or_redacted_is_put_off_and_the_others_of_its_batch_go(tmp_path: Path) -> None:
    async def story() -> None:
        bodies = FileBodies(tmp_path / "bodies")
        async with DeadLetters(sqlite_letters(tmp_path), MemoryDesk(), bodies=bodies) as dlq:
            ref = BodyRef(name=f"x.{'0' * 32}.body", size=3, sha256="0" * 64)
            gone, hidden, good = due("gone", body_ref=ref), due("hidden", redacted=("body",)), due("good")
            await dlq.letters.put([good])
            target = answering(Delivered(confirmed=True))
            pace = Pace(batch=3, concurrency=3, interval=timedelta(hours=1))
            missing, redacted = await put_off_among(dlq, target, pace, gone, hidden)
            assert "body" in missing.retry.waits_for
            assert "its body was redacted at capture; repair it first" in redacted.retry.waits_for
            assert [message.id for message in target.sent] == ["good"]
            # Repaired, and asked for again, it goes.
            await dlq.amend(Amendment(id=hidden.id, body=b'"repaired"', next_retry_at=START))
            async with dlq.processor({"orders": target}, pace=HOURLY):
                await settled(dlq, hidden)

    async def put_off_among(
        dlq: DeadLetters, target: Target, pace: Pace, *letters: redrive.Letter
    ) -> tuple[redrive.Letter, redrive.Letter]:
        await dlq.letters.put(letters)
        heard = Heard()
        async with dlq.processor({"orders": target}, pace=pace, listener=heard):
            await until(lambda: len(heard.all) == 3)
        first, second = [await seen(dlq, one) for one in letters]
        assert [one.retry.retry_count for one in (first, second)] == [0, 0]
        assert len(heard.all) == 3, "hammered"
        return first, second

    tell(story())


def test_a_target_may_say_what_no_store_can_write(store: LetterStore) -> None:
    async def story() -> None:
        async with opened(store) as dlq:
            await dlq.letters.put([one := due("a", max_retries=1), other := due("b", source="mails")])
            refusing = answering(Refused(failure=Failure(type="x.Y", message="broken \ud800", traceback="\udfff")))
            losing = answering(Unknown(reason="\ud800"))
            async with dlq.processor({"orders": refusing, "mails": losing}, pace=HOURLY):
                await settled(dlq, one, status=Status.EXHAUSTED)
                await settled(dlq, other, status=Status.REDRIVEN)
            assert (await seen(dlq, one)).failure.message == "broken \\ud800"

    tell(story())


def test_a_target_is_not_asked_to_send_nothing(store: LetterStore) -> None:
    async def story() -> None:
        sizes: list[int] = []

        async def note(messages: Sequence[Message]) -> list[Delivery]:
            sizes.append(len(messages))
            return [Delivered(confirmed=True)] * len(messages)

        async with opened(store) as dlq:
            await put_off(dlq, Target(note), due("a", redacted=("body",)))
            assert sizes == []

    tell(story())


def test_what_a_letter_waits_for_is_redacted_like_everything_else(store: LetterStore) -> None:
    async def story() -> None:
        async def fail(messages: Sequence[Message]) -> list[Delivery]:
            raise OSError("cannot log in with password=hunter2")

        redaction = Redaction(patterns=("hunter2",))
        async with DeadLetters(store, MemoryDesk(), redaction=redaction) as dlq:
            (after,) = await put_off(dlq, Target(fail), due("a"))
            assert "hunter2" not in after.retry.waits_for
            assert "cannot log in" in after.retry.waits_for

    tell(story())


def test_a_letter_of_which_only_the_repr_was_kept_is_put_off() -> None:
    async def story() -> None:
        async with opened(MemoryLetters()) as dlq:
            (after,) = await put_off(dlq, Handler().work, due("a", content_type=REPR))
            assert "only the repr of this message was kept" in after.retry.waits_for

    tell(story())


PATIENT = Pace(interval=QUICK.interval, grace=timedelta(seconds=30))
"""A stop lets what is being tried come to its end, be its thread ever so slow."""


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_blocking_code_starts_and_stops_a_processor(tmp_path: Path, is_async: bool) -> None:
    worked, enough = [], threading.Event()

    def plain(order: Any) -> None:
        worked.append(order)
        if len(worked) == 3:
            enough.set()

    async def awaited(order: Any) -> None:
        plain(order)

    with blocking.open(f"sqlite:{tmp_path}/redrive.db") as dlq:
        for number in range(3):
            plan = RetryPlan(policy="immediate", max_retries=3)
            dlq.capture(number, ValueError("bad"), source="orders", retry=plan)
        with dlq.processor({"orders": awaited if is_async else plain}, pace=PATIENT) as processor:
            assert processor.is_running
            processor.start()
            assert enough.wait(30)
        assert not processor.is_running
        processor.stop()
        assert sorted(worked) == [0, 1, 2]
        assert {letter.status for letter in dlq.find()} == {Status.COMPLETED}


def test_blocking_code_on_a_store_without_threads_of_its_own_does_so_too() -> None:
    enough = threading.Event()
    with blocking.open("memory:") as dlq:
        dlq.capture(1, ValueError("bad"), source="orders", retry=RetryPlan(policy="immediate", max_retries=3))
        with dlq.processor({"orders": lambda order: enough.set()}, pace=PATIENT):
            assert enough.wait(30)
        assert {letter.status for letter in dlq.find()} == {Status.COMPLETED}
