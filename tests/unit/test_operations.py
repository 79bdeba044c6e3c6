"""Operations: letters that are chosen once, where each goes, and what becomes of it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest
from msgspec.structs import replace

from redrive import EVERYTHING, BadSettings, Message, Status, blocking
from redrive.engine.dead_letters import DeadLetters
from redrive.model.amendment import Amendment
from redrive.model.errors import UnknownOperation
from redrive.model.operation import Delivered, Delivery, Entry, Operation, OperationStatus
from redrive.model.query import Field, Is
from redrive.model.status import Act
from redrive.model.tempo import Tempo
from tests.unit.operation_use import FAILED, WORKED, always, is_finished, many
from tests.unit.targets import BAD, Target, Tell, answering, captured, teller
from tests.unit.waiting import until


@pytest.fixture(params=["memory", "sqlite"])
def tell(request: pytest.FixtureRequest, tmp_path: Path) -> Tell:
    return teller("memory:" if request.param == "memory" else f"sqlite:{tmp_path}/redrive.db")


def test_what_was_shown_is_what_is_moved(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        first = await many(dlq, 3, source="orders")
        await many(dlq, 2, source="stock")
        plan = await dlq.operations.plan("source=py:json:loads", query=Is(Field.SOURCE, "orders"), by="ann")
        assert plan.operation.status is OperationStatus.PLANNED
        assert (plan.total, plan.sources, plan.group_count) == (3, {"orders": 3}, 1)
        late = await captured(dlq, "late", source="orders")
        await dlq.amend(Amendment(id=first[0], act=Act.ARCHIVE))
        target = always(WORKED)
        report = await dlq.operations.run(plan.operation.id, to=target)
        assert (report.entries, report.skipped) == ({Entry.CONFIRMED: 2}, 1)
        assert (await dlq.get(late)).status is Status.PENDING
        rows = [row async for row in dlq.operations.ledger(plan.operation.id)]
        assert [(row.letter, row.entry, row.detail) for row in rows] == [
            (first[0], Entry.SKIPPED, "it is archived"),
            (first[1], Entry.CONFIRMED, ""),
            (first[2], Entry.CONFIRMED, ""),
        ]
        ended = await dlq.operations.get(plan.operation.id)
        assert (ended.status, ended.entries, ended.by) == (
            OperationStatus.FINISHED,
            {Entry.CONFIRMED: 2, Entry.SKIPPED: 1},
            "ann",
        )

    tell(story)


def test_a_plan_tells_what_will_be_refused_and_a_dry_one_writes_nothing(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        done, kept = await many(dlq, 2, source="orders")
        other = await captured(dlq, "x", source="stock")
        await dlq.redrive(always(WORKED), ids=[done])
        plan = await dlq.operations.plan({"orders": print}, ids=[done, kept, other, uuid4()], is_dry=True)
        assert plan.targets == {"orders": "py:builtins:print"}
        assert plan.refused == {
            "it is completed": 1,
            "no target is given for source 'stock'": 1,
            "there is no such letter": 1,
        }
        assert len(await dlq.operations.list()) == 1
        with pytest.raises(UnknownOperation):
            await dlq.operations.get(plan.operation.id)

    tell(story)


def test_each_source_has_its_target(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        for source in ("orders", "stock", "mails"):
            await many(dlq, 2, source=source)
        orders, others = always(WORKED), always(Delivered())
        orders.name, others.name = "orders:", "others:"
        report = await dlq.redrive({"orders": orders, "*": others}, query=EVERYTHING)
        assert report.entries == {Entry.CONFIRMED: 2, Entry.SENT: 4}
        assert (len(orders.sent), len(others.sent)) == (2, 4)

    tell(story)


def test_letters_of_one_key_go_in_order_and_none_follows_one_that_failed(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        for number in range(12):
            await captured(dlq, Message(body=str(number).encode(), id=str(number), key=b"ab"[number % 2 : number % 2 + 1]))
        await captured(dlq, Message(body=b"free", id="free"))
        under_way: Counter[bytes | None] = Counter()
        order: list[bytes] = []

        async def send(messages: Sequence[Message]) -> list[Delivery]:
            under_way.update(message.key for message in messages)
            assert all(count == 1 for key, count in under_way.items() if key is not None)
            await asyncio.sleep(0)
            order.extend(message.body for message in messages)
            under_way.clear()
            return [FAILED if message.body == b"5" else WORKED for message in messages]

        report = await dlq.redrive(Target(send), query=EVERYTHING, tempo=Tempo(keeps_order=True, batch=8))
        assert report.entries == {Entry.CONFIRMED: 9, Entry.FAILED: 1}
        assert [body for body in order if body in b"0246810" and int(body) % 2 == 0] == [b"0", b"2", b"4", b"6", b"8", b"10"]
        assert [body for body in order if body != b"free" and int(body) % 2] == [b"1", b"3", b"5"]
        skipped = [row async for row in dlq.operations.ledger(report.operation, entries=[Entry.SKIPPED])]
        assert len(skipped) == 3
        assert all("of the same key, which failed" in row.detail for row in skipped)

    tell(story)


def test_a_letter_that_has_gone_round_too_often_is_quarantined(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        id = await captured(dlq, Message(body=b"x", id="1"), source="orders")
        target = always(Delivered())
        for generation in (2, 3):
            assert (await dlq.redrive(target, ids=[id], tempo=Tempo(max_rounds=2))).entries == {Entry.SENT: 1}
            await dlq.capture(target.sent[-1], BAD, source="orders")
            assert (await dlq.get(id)).generation == generation
        report = await dlq.redrive(target, ids=[id], tempo=Tempo(max_rounds=2))
        assert (report.entries, report.skipped) == ({}, 1)
        (row,) = [row async for row in dlq.operations.ledger(report.operation)]
        assert row.detail == "it has gone round 2 times, and is quarantined"
        letter = await dlq.get(id)
        assert (letter.status, letter.redrive.count) == (Status.QUARANTINED, 2)

    tell(story)


def test_a_consumer_that_confirms_is_seen_later(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        one, two = await many(dlq, 2)
        report = await dlq.redrive(always(Delivered()), ids=[one, two])
        assert report.entries == {Entry.SENT: 2}
        await dlq.amend(Amendment(id=one, act=Act.CONFIRM))
        seen = await dlq.operations.observe(report.operation)
        assert seen.entries == {Entry.CONFIRMED: 1, Entry.SENT: 1}
        assert await dlq.operations.observe(report.operation) == seen

    tell(story)


def test_an_operation_is_found_by_the_beginning_of_its_id(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        plan = await dlq.operations.plan(print, query=EVERYTHING)
        assert await dlq.operations.get(str(plan.operation.id)[:8]) == plan.operation
        with pytest.raises(UnknownOperation, match="there is no operation ffffffff"):
            await dlq.operations.get("ffffffff")
        await dlq.operations.plan(print, query=EVERYTHING)
        with pytest.raises(UnknownOperation):
            await dlq.operations.get("")

    tell(story)


def test_blocking_code_has_all_of_it(tmp_path: Path) -> None:
    with blocking.open(f"sqlite:{tmp_path}/redrive.db") as dlq:
        for number in range(3):
            dlq.capture(str(number), BAD, source="orders")
        heard: list[Operation] = []
        plan = dlq.operations.plan(answering(), query=EVERYTHING, tempo=Tempo(rate=1000))
        report = dlq.operations.run(plan.operation.id, to=lambda order: None, progress=heard.append)
        assert report.entries == {Entry.CONFIRMED: 3}
        assert heard[-1].entries == {Entry.CONFIRMED: 3}
        assert [row.entry for row in dlq.operations.ledger(report.operation, page=2)] == [Entry.CONFIRMED] * 3
        assert [one.status for one in dlq.operations.list()] == [OperationStatus.FINISHED]


def test_a_scheduled_operation_begins_when_its_time_has_come(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        await many(dlq, 3)
        later = await dlq.operations.plan("py:builtins:repr", query=EVERYTHING)
        plan = await dlq.operations.plan("py:builtins:repr", query=EVERYTHING)
        now = datetime.now(UTC)
        await dlq.operations.schedule(later.operation.id, now + timedelta(hours=1))
        scheduled = await dlq.operations.schedule(plan.operation.id, now)
        assert scheduled.status is OperationStatus.SCHEDULED
        assert [one.id for one in await dlq.operations.due(now)] == [plan.operation.id]
        async with dlq.dispatcher():
            await until(partial(is_finished, dlq, plan.operation.id))
        assert (await dlq.operations.get(plan.operation.id)).entries == {Entry.CONFIRMED: 3}
        assert (await dlq.operations.get(later.operation.id)).status is OperationStatus.SCHEDULED
        with pytest.raises(BadSettings, match="must have a zone"):
            await dlq.operations.schedule(later.operation.id, datetime(2030, 1, 1))  # noqa: DTZ001 - that is the mistake

    tell(story)


def test_an_operation_that_cannot_be_begun_is_told_of_and_the_next_one_runs(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        await many(dlq, 2)
        now = datetime.now(UTC)
        gone = await dlq.operations.plan("py:builtins:repr", query=EVERYTHING)
        await dlq.desk.save([replace(gone.operation, target="py:nowhere:at_all")])
        fine = await dlq.operations.plan("py:builtins:repr", query=EVERYTHING)
        for plan in (gone, fine):
            await dlq.operations.schedule(plan.operation.id, now)
        async with dlq.dispatcher():
            await until(partial(is_finished, dlq, fine.operation.id))
        cancelled = await dlq.operations.get(gone.operation.id)
        assert cancelled.status is OperationStatus.CANCELLED
        assert "cannot import 'nowhere'" in cancelled.why

    tell(story)
