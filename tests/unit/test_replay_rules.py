"""Replay by rule: letters that go back by themselves, one operation of a rule at a time, never what a person must look at."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

import redrive
from redrive import BadSettings, Failure, IllegalTransition, Message, ReplayRule, Status, StoreUnavailable, Tempo
from redrive.engine.by_rule import STOPPED, ByRule, _rest
from redrive.engine.dead_letters import DeadLetters
from redrive.model.amendment import Amendment
from redrive.model.operation import Delivered, Delivery, Entry, Operation, OperationStatus, Refused
from redrive.model.query import EVERYTHING, Field, Is
from redrive.model.redaction import Redaction
from redrive.model.status import Act
from redrive.testing import START, Faulty, Moment, raising
from tests.unit.targets import BAD, Target, Tell, captured, entries, teller
from tests.unit.waiting import until

WORKED = Delivered(confirmed=True)
FAILED = Refused(failure=Failure(type="x.Y", message="still down"))
OFTEN = timedelta(milliseconds=20)


@pytest.fixture(params=["memory", "sqlite"])
def tell(request: pytest.FixtureRequest, tmp_path: Path) -> Tell:
    return teller("memory:" if request.param == "memory" else f"sqlite:{tmp_path}/redrive.db")


def always(delivery: Delivery) -> Target:
    async def send(messages: Sequence[Message]) -> list[Delivery]:
        return [delivery] * len(messages)

    return Target(send)


def rule(to: Any, name: str = "orders", **more: Any) -> ReplayRule:
    return ReplayRule(**{"name": name, "query": "source:orders", "to": to, "every": OFTEN} | more)


def following(dlq: DeadLetters, one: ReplayRule, **more: Any) -> ByRule:
    return ByRule(one, dlq.operations, dlq.desk, dlq.namespace, **more)


async def bodies(target: Target, number: int) -> list[bytes]:
    async def are_there() -> bool:
        return len(target.sent) >= number

    await until(are_there)
    return [message.body for message in target.sent]


async def over(dlq: DeadLetters, number: int) -> list[Operation]:
    """The operations, oldest first, when so many are finished and none is under way."""

    async def are_over() -> bool:
        known = await dlq.operations.list()
        return len(known) >= number and {one.status for one in known} == {OperationStatus.FINISHED}

    await until(are_over)
    return (await dlq.operations.list())[::-1]


def test_a_rule_sends_what_it_finds_and_what_comes_later(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        target = always(WORKED)
        other = await captured(dlq, "other", source="stock")
        for number in range(3):
            await captured(dlq, f"message {number}")
        async with dlq.dispatcher(rules=[rule(target)]):
            (first,) = await over(dlq, 1)
            assert (first.by, first.query, first.entries) == ("rule:orders", "source:orders", {Entry.CONFIRMED: 3})
            late = await captured(dlq, "late")
            _, second = await over(dlq, 2)
        assert [row.letter for row in await dlq.desk.ledger(second.id)] == [late]
        assert await bodies(target, 4) == [b"message 0", b"message 1", b"message 2", b"late"]
        assert (await dlq.get(other)).status is Status.PENDING

    tell(story)


def test_a_look_that_finds_nothing_leaves_nothing_behind(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        one = following(dlq, rule(always(WORKED)))
        for _ in range(3):
            assert await one.next() == (None, OFTEN)
        assert await dlq.operations.list() == []

    tell(story)


def test_a_rule_leaves_alone_what_a_person_must_look_at(tell: Tell, caplog: pytest.LogCaptureFixture) -> None:
    async def story(dlq: DeadLetters) -> None:
        quarantined, nowhere = await captured(dlq, "quarantined"), await captured(dlq, "nowhere", source="stock")
        await dlq.amend(Amendment(id=quarantined, act=Act.QUARANTINE))
        fine = await captured(dlq, "fine")
        target = always(WORKED)
        one = following(dlq, rule({"orders": target}, query="all"))
        operation, _ = await one.next()
        assert operation is not None
        assert [row.letter for row in await dlq.desk.ledger(operation.id)] == [fine]
        await dlq.operations.run(operation.id, to=target)
        assert (await dlq.get(quarantined)).status is Status.QUARANTINED
        assert (await dlq.get(nowhere)).status is Status.PENDING
        for _ in range(3):
            assert (await one._begun())[0] is None
        assert len(await dlq.operations.list()) == 1

    with caplog.at_level(logging.WARNING, "redrive.dispatcher"):
        tell(story)
    assert [record.message for record in caplog.records] == [
        "replay rule orders leaves letters out: no target is given for source 'stock'"
    ]


def test_a_body_that_was_redacted_is_not_replayed_by_a_rule(tmp_path: Path) -> None:
    async def story() -> None:
        async with redrive.open(f"sqlite:{tmp_path}/redrive.db", redact=Redaction(presets=("emails",))) as dlq:
            await captured(dlq, Message(body=b'{"to": "ann@example.com"}', id="1", content_type="application/json"))
            assert (await dlq.operations.plan(print, query=EVERYTHING, is_dry=True)).total == 1
            assert await following(dlq, rule(always(WORKED))).next() == (None, OFTEN)

    asyncio.run(story())


def test_what_is_quarantined_after_it_was_chosen_goes_by_hand_alone(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        id = await captured(dlq, "x")
        target = always(WORKED)
        by_rule = await dlq.operations.plan(target, query=EVERYTHING, by="rule:orders")
        by_hand = await dlq.operations.plan(target, query=EVERYTHING, by="ann")
        await dlq.amend(Amendment(id=id, act=Act.QUARANTINE))
        report = await dlq.operations.run(by_rule.operation.id, to=target)
        assert (report.entries, report.skipped, target.sent) == ({}, 1, [])
        (row,) = await dlq.desk.ledger(by_rule.operation.id)
        assert (row.entry, row.detail) == (Entry.SKIPPED, "it is quarantined")
        assert (await dlq.operations.run(by_hand.operation.id, to=target)).entries == {Entry.CONFIRMED: 1}

    tell(story)


def test_what_has_gone_round_too_often_is_quarantined_by_a_rule_and_left_alone_then(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        id = await captured(dlq, Message(body=b"x", id="1"))
        target = always(Delivered())

        async def come_back() -> None:
            await dlq.capture(target.sent[-1], BAD, source="orders")

        one = following(dlq, rule(target, tempo=Tempo(max_rounds=2)))
        for _ in range(3):
            operation = (await one._begun())[0]
            assert operation is not None
            await dlq.operations.run(operation.id, to=target)
            await come_back()
        assert (await dlq.get(id)).status is Status.QUARANTINED
        assert len(target.sent) == 2
        assert (await one._begun())[0] is None

    tell(story)


def test_so_many_at_a_time_those_that_died_first(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        for number in range(7):
            await captured(dlq, f"{number}")
        target = always(WORKED)
        async with dlq.dispatcher(rules=[rule(target, most=3)]):
            operations = await over(dlq, 3)
        assert [one.total for one in operations] == [3, 3, 1]
        assert await bodies(target, 7) == [b"%d" % number for number in range(7)]

    tell(story)


@pytest.mark.parametrize("word", ["resume", "cancel"])
def test_a_rule_whose_operation_paused_itself_waits_for_a_person_and_says_so_once(
    tell: Tell, caplog: pytest.LogCaptureFixture, word: str
) -> None:
    async def story(dlq: DeadLetters) -> None:
        for number in range(5):
            await captured(dlq, f"{number}")
        answers = [FAILED]

        async def send(messages: Sequence[Message]) -> list[Delivery]:
            return [answers[0]] * len(messages)

        async def waits() -> bool:
            return "waits" in caplog.text

        target = Target(send)
        one = rule(target, tempo=Tempo(canary=2))
        async with dlq.dispatcher(rules=[one]):
            await until(waits)
            answers[0] = WORKED
            (paused,) = await dlq.operations.list()
            assert paused.status is OperationStatus.PAUSED
            for _ in range(3):
                assert await following(dlq, one).next() == (None, OFTEN)
            assert len(await dlq.operations.list()) == 1
            if word == "resume":
                assert (await dlq.operations.run(paused.id, to=target)).entries == {Entry.FAILED: 2, Entry.CONFIRMED: 3}
            else:
                await dlq.operations.cancel(paused.id)
            await until(lambda: is_empty(dlq))
        said = [record.message for record in caplog.records if record.message.startswith("replay rule orders waits")]
        short = str(paused.id)[:8]
        assert said[:1] == [
            f"replay rule orders waits: its operation {short} is paused (2 of the first 2 failed again; the others were not sent);"
            f" redrive ops resume {short} or redrive ops cancel {short} lets it go on"
        ]
        assert len(said) == 1 + 3, "once by each who follows it"

    with caplog.at_level(logging.INFO, "redrive.dispatcher"):
        tell(story)


async def is_empty(dlq: DeadLetters) -> bool:
    return await dlq.count(Is(Field.STATUS, "completed")) == 5


def test_two_dispatchers_on_one_desk_never_run_a_rule_twice_at_a_time(tmp_path: Path) -> None:
    async def story() -> None:
        under_way: list[int] = [0, 0]

        async def send(messages: Sequence[Message]) -> list[Delivery]:
            under_way[0] += 1
            under_way[1] = max(under_way)
            await asyncio.sleep(0.001)
            under_way[0] -= 1
            return [WORKED] * len(messages)

        target = Target(send)
        url = f"sqlite:{tmp_path}/redrive.db"
        async with redrive.open(url) as here, redrive.open(url) as there:
            for number in range(60):
                await captured(here, f"{number}")
            one = rule(target, every=timedelta(milliseconds=1), most=10, tempo=Tempo(batch=5))
            async with here.dispatcher(rules=[one]), there.dispatcher(rules=[one]):
                operations = await over(here, 6)
            assert sorted(await bodies(target, 60)) == sorted(b"%d" % number for number in range(60))
            assert under_way == [0, 1]
            by_whom: dict[UUID | None, UUID] = {}
            for operation in operations:
                became = await entries(here, operation.id)
                by_whom |= {letter: operation.id for letter, entry in became.items() if entry is Entry.CONFIRMED}
            turns = [operation for operation, _ in groupby(by_whom[message.redrive_id] for message in target.sent)]
            assert len(turns) == len(set(turns)), "one came in between"

    asyncio.run(story())


def test_of_those_who_begin_at_the_same_time_at_most_one_goes_on(tmp_path: Path) -> None:
    async def story() -> None:
        url = f"sqlite:{tmp_path}/redrive.db"
        async with redrive.open(url) as here, redrive.open(url) as there:
            await captured(here, "x")
            one = rule(always(WORKED), every=timedelta(microseconds=1))
            followers = [following(dlq, one) for dlq in (here, there, here)]
            numbers = []
            for _ in range(25):
                begun = [found for found, _ in await asyncio.gather(*(one.next() for one in followers)) if found]
                numbers.append(len(begun))
                assert [one.id for one in await here.operations.list()] == [found.id for found in begun]
                for found in begun:
                    await here.operations.forget(found.id)
            assert set(numbers) <= {0, 1}

    asyncio.run(story())


def test_what_a_dispatcher_that_stops_has_interrupted_is_gone_on_with_by_the_next(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        for number in range(30):
            await captured(dlq, f"{number}")
        target = always(WORKED)
        slow = rule(target, tempo=Tempo(rate=20))
        async with dlq.dispatcher(rules=[slow]):
            await target.is_reached.wait()
        (paused,) = await dlq.operations.list()
        assert (paused.status, paused.why) == (OperationStatus.PAUSED, STOPPED)
        await dlq.desk.save([replace(paused, tempo=Tempo())])
        async with dlq.dispatcher(rules=[slow]):
            (ended,) = await over(dlq, 1)
        assert (ended.id, ended.entries) == (paused.id, {Entry.CONFIRMED: 30})
        assert len(target.sent) == 30

    tell(story)


def test_one_whose_runner_died_is_taken_over_by_one_alone(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        id = await captured(dlq, "x")
        target = always(WORKED)
        plan = await dlq.operations.plan(target, ids=[id], by="rule:orders")
        died = replace(plan.operation, status=OperationStatus.RUNNING, seen_at=datetime.now(UTC))
        await dlq.desk.save([died])
        patient, *others = (following(dlq, rule(target), patience=timedelta(days=wait)) for wait in (1, -1, -1))
        assert (await patient.next())[0] is None
        taken = [found for found, _ in [await one.next() for one in others] if found]
        assert [one.id for one in taken][:1] == [died.id]
        known = await dlq.operations.get(died.id)
        assert not await dlq.desk.change(died, known), "whoever saw it as it was comes too late"
        assert (await dlq.operations.run(died.id, to=target)).entries == {Entry.CONFIRMED: 1}

    tell(story)


def test_one_whose_chooser_died_is_ended_and_the_rule_begins_anew(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        id = await captured(dlq, "x")
        target = always(WORKED)
        plan = await dlq.operations.plan(target, ids=[id], by="rule:orders")
        one = following(dlq, rule(target), patience=timedelta(days=-1))
        assert (await one.next())[0] is None
        ended = await dlq.operations.get(plan.operation.id)
        assert (ended.status, ended.why) == (OperationStatus.CANCELLED, "whoever chose its letters died")
        assert (await one._begun())[0] is not None

    tell(story)


def test_rules_of_two_namespaces_on_one_desk_do_not_know_each_other(tmp_path: Path) -> None:
    async def story() -> None:
        async with redrive.open(f"sqlite:{tmp_path}/redrive.db") as dlq:
            other = DeadLetters(dlq.letters, dlq.desk, namespace="shop")
            targets = [always(WORKED), always(WORKED)]
            await captured(dlq, "a")
            await captured(other, "b")
            async with dlq.dispatcher(rules=[rule(targets[0])]), other.dispatcher(rules=[rule(targets[1])]):
                assert [await bodies(target, 1) for target in targets] == [[b"a"], [b"b"]]
                operations = await over(dlq, 2)
            assert {one.by for one in operations} == {"rule:orders", "rule:shop/orders"}

    asyncio.run(story())


def made(at: timedelta, **entries: int) -> Operation:
    counts = {Entry(name): count for name, count in entries.items()}
    return Operation(id=UUID(int=1), target="x", started_at=START - at, entries=counts)


@pytest.mark.parametrize(
    ("known", "minutes"),
    [
        ([], 0),
        ([made(timedelta(minutes=2), confirmed=1)], 3),
        ([made(timedelta(minutes=6), confirmed=1)], 0),
        ([made(timedelta(minutes=6), failed=1, skipped=1)], 4),
        ([made(timedelta(minutes=6), failed=1, confirmed=1)], 0),
        ([made(timedelta(minutes=6), skipped=1)], 0),
        ([made(timedelta(minutes=6), failed=1)] * 3, 34),
        ([made(timedelta(minutes=6), failed=1)] * 99, 5 * 64 - 6),
        ([made(-timedelta(days=1), failed=1)] * 99, 0),
    ],
)
def test_what_fails_again_and_again_is_not_hammered(known: list[Operation], minutes: int) -> None:
    assert _rest(timedelta(minutes=5), known, START) == timedelta(minutes=minutes)


def test_a_rule_whose_target_is_not_there_is_refused_when_the_dispatcher_is_made(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        with pytest.raises(BadSettings, match="replay rule orders: cannot import 'nowhere'"):
            dlq.dispatcher(rules=[rule("py:nowhere:f")])
        with pytest.raises(BadSettings, match="rule 1 has no 'qery'; did you mean query"):
            dlq.dispatcher(rules=[{"qery": "all"}])
        with pytest.raises(BadSettings, match="every must be longer than nothing"):
            dlq.dispatcher(rules=[rule(print, every=timedelta())])

    tell(story)


def test_what_somebody_ends_while_its_letters_are_chosen_stays_ended(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        for number in range(3):
            await captured(dlq, f"{number}")
        faulty = Faulty(dlq.letters)
        choosing = DeadLetters(faulty, dlq.desk)

        async def cancel() -> None:
            (operation,) = await dlq.operations.list()
            await dlq.operations.cancel(operation.id)

        faulty.lay("find", Moment.AFTER, cancel)
        with pytest.raises(IllegalTransition, match="was ended by somebody while its letters were being chosen"):
            await choosing.operations.plan(print, query=EVERYTHING)
        assert await dlq.operations.list() == []

    tell(story)


def test_a_plan_that_cannot_be_made_leaves_nothing_behind(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        await captured(dlq, "x")
        faulty = Faulty(dlq.letters)
        faulty.lay("find", Moment.BEFORE, raising(StoreUnavailable("gone for lunch")))
        with pytest.raises(StoreUnavailable):
            await DeadLetters(faulty, dlq.desk).operations.plan(print, query=EVERYTHING)
        assert await dlq.operations.list() == []

    tell(story)
