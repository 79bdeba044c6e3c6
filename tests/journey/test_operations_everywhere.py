"""Operations on every store: twenty at once, a target that fails, hangs and disappears, and letters whose desk is elsewhere."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from redrive import EVERYTHING, Failure, Message, Status, StoreUnavailable, Tempo, wiring
from redrive.engine.dead_letters import DeadLetters
from redrive.model.operation import Delivered, Delivery, Entry, OperationStatus, Refused, Unknown
from redrive.settings import Settings
from tests.unit.targets import Target, captured

LETTERS = 120
OPERATIONS = 20

Place = Callable[[Path, str], dict[str, Any]]
"""Settings for a store of a test's own."""

STORES: list[Any] = [
    pytest.param(lambda folder, name: {"store": f"sqlite:{folder}/redrive.db"}, id="sqlite"),
    pytest.param(
        lambda folder, name: {"store": f"{os.environ['REDRIVE_TEST_POSTGRES']}?schema={name}"},
        id="postgres",
        marks=pytest.mark.engine("postgres"),
    ),
    pytest.param(
        lambda folder, name: {"store": f"{os.environ['REDRIVE_TEST_REDIS']}?prefix={name}", "desk": f"sqlite:{folder}/desk.db"},
        id="redis",
        marks=pytest.mark.engine("redis"),
    ),
    pytest.param(
        lambda folder, name: {
            "store": f"{os.environ['REDRIVE_TEST_OPENSEARCH']}/{name}".replace("http:", "opensearch:"),
            "desk": f"sqlite:{folder}/desk.db",
        },
        id="opensearch",
        marks=pytest.mark.engine("opensearch"),
    ),
]


@pytest.fixture(params=STORES)
def settings(request: pytest.FixtureRequest, tmp_path: Path, namespace: str) -> Settings:
    place: Place = request.param
    return Settings(**place(tmp_path, namespace), lease_seconds=2, telemetry=False)


async def filled(dlq: DeadLetters, count: int) -> None:
    for number in range(count):
        await captured(dlq, Message(body=b"%d" % number, id=str(number)))


def test_twenty_operations_at_once_move_each_letter_once(settings: Settings) -> None:
    async def story() -> None:
        async with wiring.connect(settings) as dlq:
            await filled(dlq, LETTERS)
            sent: Counter[bytes] = Counter()

            async def send(messages: Sequence[Message]) -> list[Delivery]:
                sent.update(message.body for message in messages)
                return [Delivered(confirmed=True)] * len(messages)

            target = Target(send)
            tempo = Tempo(batch=9)
            plans = [await dlq.operations.plan(target, query=EVERYTHING, tempo=tempo) for _ in range(OPERATIONS)]
            assert {plan.total for plan in plans} == {LETTERS}
            reports = await asyncio.gather(*(dlq.operations.run(plan.operation.id, to=target) for plan in plans))
            assert sum(report.entries.get(Entry.CONFIRMED, 0) for report in reports) == LETTERS
            assert (len(sent), set(sent.values())) == (LETTERS, {1})
            assert {letter.status async for letter in dlq.find()} == {Status.COMPLETED}

    asyncio.run(story())


def test_a_target_that_fails_hangs_and_disappears_loses_nothing(settings: Settings) -> None:
    """A third of the messages fails; now and then a call hangs until it is given up, or the target is gone: then the operation pauses,
    and is gone on with until it is done."""

    async def story() -> None:
        dice = random.Random(7)
        arrived: Counter[str] = Counter()

        async def send(messages: Sequence[Message]) -> list[Delivery]:
            mood = dice.random()
            if mood < 0.2:
                raise StoreUnavailable("nobody listens there")
            arrived.update(str(message.redrive_id) for message in messages)
            if mood < 0.3:
                await asyncio.sleep(0.05)
                return [Unknown(reason="no answer in time")] * len(messages)
            failed = Refused(failure=Failure(type="x.Y", message="bad luck"))
            return [failed if dice.random() < 0.3 else Delivered(confirmed=True) for _ in messages]

        target = Target(send)
        async with wiring.connect(settings) as dlq:
            await filled(dlq, 60)
            plan = await dlq.operations.plan(target, query=EVERYTHING, tempo=Tempo(batch=5))
            pauses = 0
            while (report := await dlq.operations.run(plan.operation.id, to=target)).stopped:
                assert report.stopped == "nobody listens there"
                pauses += 1
            assert pauses > 0
            rows = [row async for row in dlq.operations.ledger(plan.operation.id)]
            entries = Counter(row.entry for row in rows)
            assert set(entries) <= {Entry.CONFIRMED, Entry.FAILED, Entry.UNKNOWN}
            assert len(rows) == 60
            assert all(arrived[str(row.letter)] > 0 for row in rows)
            letters = {letter.id: letter async for letter in dlq.find()}
            expected = {
                Entry.CONFIRMED: Status.COMPLETED,
                Entry.FAILED: Status.PENDING,
                Entry.UNKNOWN: Status.REDRIVEN,
            }
            assert [letters[row.letter].status for row in rows] == [expected[row.entry] for row in rows]

    asyncio.run(story())


def test_whoever_comes_next_goes_on_where_somebody_died(settings: Settings) -> None:
    """As a kill leaves it: some letters are about to be sent and leased, and the operation says that it runs."""

    async def story() -> None:
        async with wiring.connect(settings) as dlq:
            await filled(dlq, 12)

            async def hang(messages: Sequence[Message]) -> list[Delivery]:
                reached.set()
                await asyncio.Event().wait()
                raise AssertionError

            reached = asyncio.Event()
            plan = await dlq.operations.plan(Target(hang), query=EVERYTHING, tempo=Tempo(batch=4))
            running = asyncio.create_task(dlq.operations.run(plan.operation.id, to=Target(hang)))
            await reached.wait()
            running.cancel()
            await asyncio.wait([running])
            paused = await dlq.operations.get(plan.operation.id)
            assert (paused.status, paused.why) == (OperationStatus.PAUSED, "interrupted")
            # A process that was killed could not even say that.
            await dlq.desk.save([replace(paused, status=OperationStatus.RUNNING, seen_at=paused.started_at - timedelta(hours=1))])

        async with wiring.connect(settings) as dlq:

            async def work(messages: Sequence[Message]) -> list[Delivery]:
                return [Delivered(confirmed=True)] * len(messages)

            report = await dlq.operations.run(plan.operation.id, to=Target(work))
            assert report.entries == {Entry.CONFIRMED: 12}
            assert {letter.status async for letter in dlq.find()} == {Status.COMPLETED}

    asyncio.run(story())
