"""Operations: letters that are chosen once, how fast they go, what stops them, and what becomes of each."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from redrive import (
    EVERYTHING,
    BadSettings,
    Failure,
    IllegalTransition,
    Message,
    RedriveError,
    Status,
    StoreUnavailable,
    blocking,
)
from redrive.engine.dead_letters import DeadLetters
from redrive.model.amendment import Amendment
from redrive.model.errors import UnknownOperation
from redrive.model.lease import Claim
from redrive.model.operation import STEPS, Delivered, Delivery, Entry, Operation, OperationStatus, Refused, Unknown, ensure_step
from redrive.model.query import Field, Is
from redrive.model.status import Act
from redrive.model.tempo import Tempo, rate_of, share_of
from redrive.testing import START
from tests.unit.targets import BAD, Target, Tell, answering, captured, teller, until

WORKED = Delivered(confirmed=True)
FAILED = Refused(failure=Failure(type="x.Y", message="still down"))


@pytest.fixture(params=["memory", "sqlite"])
def tell(request: pytest.FixtureRequest, tmp_path: Path) -> Tell:
    return teller("memory:" if request.param == "memory" else f"sqlite:{tmp_path}/redrive.db")


async def many(dlq: DeadLetters, count: int, **more: Any) -> list[UUID]:
    return [await captured(dlq, f"message {number}", **more) for number in range(count)]


async def counted(dlq: DeadLetters, id: UUID) -> Counter[Entry]:
    return Counter([row.entry async for row in dlq.operations.ledger(id)])


def always(delivery: Delivery) -> Target:
    async def send(messages: Sequence[Message]) -> list[Delivery]:
        return [delivery] * len(messages)

    return Target(send)


async def is_finished(dlq: DeadLetters, id: UUID) -> bool:
    return (await dlq.operations.get(id)).status is OperationStatus.FINISHED


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


def test_a_canary_that_fails_keeps_the_others_back_until_somebody_goes_on(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        await many(dlq, 10)
        plan = await dlq.operations.plan(always(FAILED), query=EVERYTHING, tempo=Tempo(canary=3))
        report = await dlq.operations.run(plan.operation.id, to=always(FAILED))
        assert report.entries == {Entry.FAILED: 3}
        assert report.stopped == "3 of the first 3 failed again; the others were not sent"
        assert (await dlq.operations.get(plan.operation.id)).status is OperationStatus.PAUSED
        target = always(WORKED)
        assert (await dlq.operations.run(plan.operation.id, to=target)).entries == {Entry.FAILED: 3, Entry.CONFIRMED: 7}
        assert len(target.sent) == 7

    tell(story)


def test_a_canary_that_works_lets_the_others_follow(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        await many(dlq, 10)
        target = always(WORKED)
        assert (await dlq.redrive(target, query=EVERYTHING, tempo=Tempo(canary=3))).entries == {Entry.CONFIRMED: 10}
        assert len(target.batches[0]) == 3

    tell(story)


def test_the_outcome_of_a_canary_is_waited_for_where_only_its_handler_can_tell(tell: Tell) -> None:
    """The consumer fails on the message that was sent: the letter is reopened, and the operation sees it."""

    async def story(dlq: DeadLetters) -> None:
        for number in range(5):
            await captured(dlq, Message(body=b"x", id=str(number)), source="orders")

        async def consume(messages: Sequence[Message]) -> list[Delivery]:
            for message in messages:
                consumers.append(asyncio.create_task(fail_later(message)))
            return [Delivered()] * len(messages)

        async def fail_later(message: Message) -> None:
            await asyncio.sleep(0.1)
            await dlq.capture(message, BAD, source="orders")

        consumers: list[asyncio.Task[None]] = []
        report = await dlq.redrive(Target(consume), query=EVERYTHING, tempo=Tempo(canary=2, window=timedelta(seconds=20)))
        assert report.entries == {Entry.FAILED: 2}
        assert "2 of the first 2 failed again" in report.stopped
        rows = [row async for row in dlq.operations.ledger(report.operation, entries=[Entry.FAILED])]
        assert [row.detail for row in rows] == ["failed again, as generation 2: bad"] * 2
        assert {(await dlq.get(row.letter)).generation for row in rows} == {2}

    tell(story)


def test_it_pauses_by_itself_when_too_many_fail_again(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        await many(dlq, 100)
        answers = iter([WORKED, FAILED, WORKED] * 50)

        async def send(messages: Sequence[Message]) -> list[Delivery]:
            return [next(answers) for _ in messages]

        tempo = Tempo(batch=5, stop_on_refail=0.25)
        report = await dlq.redrive(Target(send), query=EVERYTHING, tempo=tempo)
        sent = sum(report.entries.values())
        assert 20 <= sent <= 25
        assert "failed again, more than 25%" in report.stopped
        assert (await counted(dlq, report.operation))[Entry.CHOSEN] == 100 - sent

    tell(story)


def test_a_rate_is_kept(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        await many(dlq, 30)
        at: list[float] = []

        async def send(messages: Sequence[Message]) -> list[Delivery]:
            at.extend([time.monotonic()] * len(messages))
            return [WORKED] * len(messages)

        began = time.monotonic()
        await dlq.redrive(Target(send), query=EVERYTHING, tempo=Tempo(rate=50))
        assert len(at) == 30
        assert at[-1] - began >= 0.5, "the last five go when the others have taken their time"

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


@pytest.mark.parametrize(
    "wrong",
    [
        {"rate": 0},
        {"rate": float("inf")},
        {"batch": 0},
        {"canary": -1},
        {"ramp": timedelta(minutes=1)},
        {"rate": 5, "ramp": timedelta()},
        {"stop_on_refail": 1.0},
        {"stop_on_refail": -0.1},
        {"window": timedelta()},
        {"max_rounds": 0},
    ],
    ids=str,
)
def test_a_tempo_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadSettings):
        Tempo(**wrong)


def test_a_ramp_leads_from_a_tenth_of_the_rate_to_all_of_it() -> None:
    tempo = Tempo(rate=100, ramp=timedelta(seconds=10))
    rates = [tempo.rate_after(timedelta(seconds=seconds)) for seconds in (0, 5, 10, 99)]
    assert rates == [pytest.approx(10), pytest.approx(55), 100, 100]
    assert tempo.seconds_for(550) == pytest.approx(10)
    assert tempo.seconds_for(1550) == pytest.approx(20)
    assert Tempo().seconds_for(5) is None


@pytest.mark.parametrize(("text", "rate"), [("50", 50), ("50/s", 50), ("300/min", 5), (" 36 / h ", 0.01), ("0.5/s", 0.5)])
def test_rates_are_written_by_time(text: str, rate: float) -> None:
    assert rate_of(text) == pytest.approx(rate)


@pytest.mark.parametrize("text", ["", "0", "fast", "5/d", "-1/s", "1e3"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(BadSettings, match="is not a rate"):
        rate_of(text)


def test_shares_are_written_with_and_without_percent() -> None:
    assert (share_of("5%"), share_of("0.05"), share_of("0")) == (0.05, 0.05, 0.0)
    for text in ("", "100%", "1", "-1%", "many"):
        with pytest.raises(BadSettings, match="is not a share"):
            share_of(text)


@given(st.sampled_from(OperationStatus), st.sampled_from(OperationStatus))
def test_what_is_over_stays_over(one: OperationStatus, other: OperationStatus) -> None:
    operation = Operation(id=UUID(int=1), target="x", started_at=START, status=one)
    if other in STEPS[one]:
        ensure_step(operation, other)
        assert one not in (OperationStatus.FINISHED, OperationStatus.CANCELLED)
    else:
        with pytest.raises(RedriveError):
            ensure_step(operation, other)


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
