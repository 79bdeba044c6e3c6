"""Driving letters back to queues: sent, refused, unknown, overtaken, given back."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

import redrive
from redrive import EVERYTHING, Bury, Failure, Held, Message, Policy, RedriveError, Status, StoreUnavailable
from redrive.backends.memory import MemoryTransport
from redrive.engine.dead_letters import DeadLetters
from redrive.model.lease import Claim
from redrive.model.operation import Delivered, Delivery, Entry, OperationStatus, Refused, Unknown
from redrive.model.settlement import Completed, Settled, Settlement
from redrive.model.tempo import Tempo
from tests.unit.targets import BAD, Target, Tell, answering, captured, entries, teller


@pytest.fixture(params=["memory", "sqlite"])
def tell(request: pytest.FixtureRequest, tmp_path: Path) -> Tell:
    return teller("memory:" if request.param == "memory" else f"sqlite:{tmp_path}/redrive.db")


def test_a_queue_takes_the_message_and_the_letter_waits_for_its_outcome(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        queue = MemoryTransport("orders")
        id = await captured(dlq, Message(body=b"raw", id="7", headers=(("a", b"1"), ("Redrive-Id", b"old"))))
        report = await dlq.redrive(queue, query=EVERYTHING)
        letter = await dlq.get(id)
        assert report.entries == {Entry.SENT: 1}
        assert await entries(dlq, report.operation) == {id: Entry.SENT}
        assert (letter.status, letter.redrive.count) == (Status.REDRIVEN, 1)
        (parcel,) = await queue.receive()
        assert parcel.message.body == b"raw"
        assert parcel.message.headers == (
            ("a", b"1"),
            ("redrive-id", str(id).encode()),
            ("redrive-generation", b"1"),
            ("redrive-source-id", b"7"),
        )

    tell(story)


def test_a_redriven_message_that_fails_again_reopens_the_same_letter_and_voids_its_leases(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        queue = MemoryTransport()
        id = await captured(dlq, Message(body=b"raw", id="7"))
        await dlq.redrive(queue, query=EVERYTHING)
        (parcel,) = await queue.receive()

        @dlq.guard(source="orders", policy=Policy(max_attempts=1))
        async def consume(message: Message) -> None:
            raise ConnectionError("down again")

        assert await consume(parcel.message) == Bury()
        letter = await dlq.get(id)
        assert (letter.generation, letter.status, letter.attempts) == (2, Status.PENDING, 2)
        assert letter.failure.message == "down again"
        assert await dlq.letters.count() == 1

        (claimed,) = await dlq.letters.claim(Claim(owner="slow", lease=timedelta(hours=1), what=(id,)))
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

        report = await dlq.redrive(Target(fails_meanwhile), query=EVERYTHING)
        letter = await dlq.get(id)
        assert (report.entries, report.overtaken) == ({Entry.FAILED: 1}, 1)
        assert (letter.generation, letter.status) == (2, Status.PENDING)
        (row,) = await dlq.desk.ledger(report.operation)
        assert (row.entry, row.generation) == (Entry.FAILED, 1)

    tell(story)


def test_an_answer_that_was_lost_is_unknown_neither_success_nor_failure(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        id = await captured(dlq, "a")
        report = await dlq.redrive(answering(Unknown(reason="connection cut")), query=EVERYTHING)
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
            report = await dlq.redrive(Target(fail), ids=ids, tempo=Tempo(batch=2))
            assert (report.entries, report.stopped) == ({}, "broker is down")
        else:
            with pytest.raises(type(error)):
                await dlq.redrive(Target(fail), ids=ids, tempo=Tempo(batch=2))
        assert [await dlq.get(id) for id in ids] == before
        (operation,) = await dlq.desk.operations()
        assert operation.status is OperationStatus.PAUSED
        assert sorted((await entries(dlq, operation.id)).values()) == [Entry.CHOSEN, Entry.INTENDED, Entry.INTENDED]
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
        assert (operation.status, operation.total) == (OperationStatus.PAUSED, 3)
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
    dlq.redrive(handle, source="orders")
except BaseException as error:
    print("raised", type(error).__name__)
print([letter.status.value for letter in dlq.find()])
"""
    try:
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )
    except subprocess.TimeoutExpired:
        pytest.fail("the call never came back")
    assert done.stdout.splitlines()[-1] == "['pending']"
