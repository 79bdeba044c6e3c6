"""Operations that are paused, cancelled, deserted or run twice: each letter is moved once, and none is lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from redrive import EVERYTHING, IllegalTransition, Message, RedriveError, Status, StoreUnavailable
from redrive.engine.dead_letters import DeadLetters
from redrive.model.lease import Claim
from redrive.model.operation import STEPS, Delivered, Delivery, Entry, Operation, OperationStatus, Unknown, ensure_step
from redrive.model.tempo import Tempo
from redrive.testing import START
from tests.unit.operation_use import WORKED, always, counted, many
from tests.unit.targets import Target, Tell, captured, teller
from tests.unit.waiting import until


@pytest.fixture(params=["memory", "sqlite"])
def tell(request: pytest.FixtureRequest, tmp_path: Path) -> Tell:
    return teller("memory:" if request.param == "memory" else f"sqlite:{tmp_path}/redrive.db")


def test_somebody_else_pauses_it_and_it_goes_on_where_it_was(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        await many(dlq, 40)
        plan = await dlq.operations.plan(always(WORKED), query=EVERYTHING, tempo=Tempo(rate=20))
        id = plan.operation.id
        first = always(WORKED)
        running = asyncio.create_task(dlq.operations.run(id, to=first))
        await first.is_reached.wait()
        paused = await dlq.operations.pause(id, why="lunch", by="bob")
        assert paused.status is OperationStatus.PAUSED
        report = await running
        assert report.stopped == "lunch"
        sent = len(first.sent)
        assert 0 < sent < 40
        assert (await counted(dlq, id)) == {Entry.CONFIRMED: sent, Entry.CHOSEN: 40 - sent}
        second = always(WORKED)
        await dlq.desk.save([replace(await dlq.operations.get(id), tempo=Tempo())])
        assert (await dlq.operations.run(id, to=second)).entries == {Entry.CONFIRMED: 40}
        assert len(second.sent) == 40 - sent
        acts = [(row.act, row.by) for row in await dlq.desk.audit() if row.subject == str(id)]
        assert ("redrive paused", "bob") in acts
        assert acts[0][0] == "redrive finished"

    tell(story)


def test_what_is_cancelled_is_over_and_what_was_not_sent_stays(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        ids = await many(dlq, 30)
        plan = await dlq.operations.plan(always(WORKED), query=EVERYTHING, tempo=Tempo(rate=20))
        target = always(WORKED)
        running = asyncio.create_task(dlq.operations.run(plan.operation.id, to=target))
        await target.is_reached.wait()
        await dlq.operations.cancel(plan.operation.id)
        assert (await running).stopped == "cancelled"
        statuses = Counter([(await dlq.get(id)).status for id in ids])
        assert statuses == {Status.COMPLETED: len(target.sent), Status.PENDING: 30 - len(target.sent)}
        with pytest.raises(IllegalTransition):
            await dlq.operations.run(plan.operation.id, to=target)
        with pytest.raises(IllegalTransition):
            await dlq.operations.forget(plan.operation.id)

    tell(story)


@pytest.mark.parametrize("word", ["pause", "cancel"])
def test_who_pauses_or_cancels_at_the_last_moment_has_the_last_word(tell: Tell, word: str) -> None:
    async def story(dlq: DeadLetters) -> None:
        await many(dlq, 3)

        async def send(messages: Sequence[Message]) -> list[Delivery]:
            await getattr(dlq.operations, word)(plan.operation.id, why="wait")
            return [WORKED] * len(messages)

        plan = await dlq.operations.plan(Target(send), query=EVERYTHING)
        report = await dlq.operations.run(plan.operation.id, to=Target(send))
        assert (report.entries, report.stopped) == ({Entry.CONFIRMED: 3}, "wait")
        ended = await dlq.operations.get(plan.operation.id)
        assert ended.status == {"pause": OperationStatus.PAUSED, "cancel": OperationStatus.CANCELLED}[word]
        assert ended.entries == {Entry.CONFIRMED: 3}
        if word == "pause":
            assert (await dlq.operations.run(plan.operation.id, to=Target(send))).entries == {Entry.CONFIRMED: 3}

    tell(story)


def test_a_target_that_is_gone_pauses_it_and_nothing_is_lost(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        ids = await many(dlq, 6)

        async def send(messages: Sequence[Message]) -> list[Delivery]:
            if messages[0].body == b"message 4":
                raise StoreUnavailable("broker is down")
            return [WORKED] * len(messages)

        plan = await dlq.operations.plan(Target(send), ids=ids, tempo=Tempo(batch=2))
        report = await dlq.operations.run(plan.operation.id, to=Target(send))
        assert (report.entries, report.stopped) == ({Entry.CONFIRMED: 4}, "broker is down")
        again = always(WORKED)
        assert (await dlq.operations.run(plan.operation.id, to=again)).entries == {Entry.CONFIRMED: 6}
        assert [message.body for message in again.sent] == [b"message 4", b"message 5"]

    tell(story)


def test_letters_that_somebody_died_over_are_waited_for(tell: Tell) -> None:
    """What is `intended` and still leased belongs to a runner that may be dead; it is sent again when the lease is over."""

    async def story(dlq: DeadLetters) -> None:
        id = await captured(dlq, "a")
        plan = await dlq.operations.plan(always(WORKED), ids=[id])
        (row,) = await dlq.desk.ledger(plan.operation.id)
        await dlq.desk.record([replace(row, entry=Entry.INTENDED)])
        await dlq.desk.save([replace(plan.operation, status=OperationStatus.RUNNING)])
        await dlq.letters.claim(Claim(owner="dead", lease=timedelta(seconds=1), what=(id,)))
        target = always(WORKED)
        assert (await dlq.operations.run(plan.operation.id, to=target)).entries == {Entry.CONFIRMED: 1}
        assert len(target.sent) == 1

    tell(story)


@pytest.mark.parametrize(
    ("became", "entry"), [(WORKED, Entry.CONFIRMED), (Delivered(), Entry.SENT), (Unknown(reason="cut"), Entry.SENT)]
)
def test_what_was_settled_before_the_ledger_knew_is_not_sent_again(tell: Tell, became: Delivery, entry: Entry) -> None:
    async def story(dlq: DeadLetters) -> None:
        id = await captured(dlq, "a")
        report = await dlq.redrive(always(became), ids=[id])
        (row,) = await dlq.desk.ledger(report.operation)
        await dlq.desk.record([replace(row, entry=Entry.INTENDED)])
        operation = await dlq.operations.get(report.operation)
        await dlq.desk.save([replace(operation, status=OperationStatus.RUNNING)])
        target = always(WORKED)
        assert (await dlq.operations.run(report.operation, to=target)).entries == {entry: 1}
        assert target.sent == []

    tell(story)


def test_two_operations_never_move_the_same_letter(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        await many(dlq, 60)
        targets = [always(WORKED) for _ in range(4)]
        plans = [await dlq.operations.plan(target, query=EVERYTHING, tempo=Tempo(batch=7)) for target in targets]
        runs = (dlq.operations.run(plan.operation.id, to=target) for plan, target in zip(plans, targets, strict=True))
        reports = await asyncio.gather(*runs)
        bodies = Counter(message.body for target in targets for message in target.sent)
        assert (len(bodies), set(bodies.values())) == (60, {1})
        assert sum(report.entries.get(Entry.CONFIRMED, 0) for report in reports) == 60
        assert sum(report.skipped for report in reports) == 180

    tell(story)


def test_two_who_run_the_same_operation_do_no_harm(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        await many(dlq, 60)
        target = always(WORKED)
        plan = await dlq.operations.plan(target, query=EVERYTHING, tempo=Tempo(batch=7))
        await asyncio.gather(*(dlq.operations.run(plan.operation.id, to=target) for _ in range(3)), return_exceptions=True)
        assert (await counted(dlq, plan.operation.id)) == {Entry.CONFIRMED: 60}
        assert len(target.sent) == 60

    tell(story)


@given(st.sampled_from(OperationStatus), st.sampled_from(OperationStatus))
def test_what_is_over_stays_over(one: OperationStatus, other: OperationStatus) -> None:
    operation = Operation(id=UUID(int=1), target="x", started_at=START, status=one)
    if other in STEPS[one]:
        ensure_step(operation, other)
        assert one not in (OperationStatus.FINISHED, OperationStatus.CANCELLED)
    else:
        with pytest.raises(RedriveError):
            ensure_step(operation, other)


def test_a_dispatcher_that_stops_pauses_what_is_under_way(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        await many(dlq, 40)
        plan = await dlq.operations.plan("py:builtins:repr", query=EVERYTHING, tempo=Tempo(rate=10))
        await dlq.operations.schedule(plan.operation.id, datetime.now(UTC))

        async def has_begun() -> bool:
            return (await dlq.desk.tally(plan.operation.id)).get(Entry.CONFIRMED, 0) > 0

        async with dlq.dispatcher():
            await until(has_begun)
        paused = await dlq.operations.get(plan.operation.id)
        assert (paused.status, paused.why) == (OperationStatus.PAUSED, "interrupted")
        assert 0 < paused.entries[Entry.CONFIRMED] < 40

    tell(story)


def test_letters_whose_turn_did_not_come_are_given_back(tell: Tell) -> None:
    """A batch of two waves and two targets: the first call ends it, and nobody has to wait for the leases on the others."""

    async def story(dlq: DeadLetters) -> None:
        for number in range(3):
            await captured(dlq, Message(body=b"x", id=str(number), key=b"k"), source="orders")
        await captured(dlq, Message(body=b"x", id="other"), source="stock")

        async def gone(messages: Sequence[Message]) -> list[Delivery]:
            raise StoreUnavailable("broker is down")

        orders, stock = Target(gone), Target(gone)
        orders.name, stock.name = "orders:", "stock:"
        report = await dlq.redrive({"orders": orders, "stock": stock}, query=EVERYTHING, tempo=Tempo(keeps_order=True))
        assert report.stopped == "broker is down"
        assert len(orders.sent) + len(stock.sent) == 1
        assert {letter.status async for letter in dlq.find()} == {Status.PENDING}

    tell(story)
