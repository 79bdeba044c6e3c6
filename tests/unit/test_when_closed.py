"""Operations that begin when a circuit breaker is closed again."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from uuid import UUID

import pytest

import redrive
from redrive import BadSettings, Lane, Message, ReplayRule
from redrive.engine.dead_letters import DeadLetters
from redrive.engine.dispatcher import Dispatcher
from redrive.engine.retry import Breakers
from redrive.model.breaker import Breaker, BreakerState
from redrive.model.operation import Delivered, Delivery, Entry, OperationStatus
from redrive.model.query import EVERYTHING, Field, Is
from tests.unit.shell import PATIENCE, Shell, eventually, filled
from tests.unit.targets import Target, Tell, captured, teller
from tests.unit.waiting import until

ORDERS = Lane("default", "orders")
OFTEN = timedelta(milliseconds=10)


@pytest.fixture(params=["memory", "sqlite"])
def tell(request: pytest.FixtureRequest, tmp_path: Path) -> Tell:
    return teller("memory:" if request.param == "memory" else f"sqlite:{tmp_path}/redrive.db")


class Clock:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def tripped(dlq: DeadLetters, clock: Clock) -> Breaker:
    """The breaker of `orders`, open for a minute."""
    dlq.breakers = Breakers(lambda: Breaker(failures=1), clock=clock)
    breaker = dlq.breakers.of(ORDERS)
    breaker.failed(breaker.passes(clock()), clock())
    assert breaker.state(clock()) is BreakerState.OPEN
    return breaker


def hasty(dlq: DeadLetters, *rules: ReplayRule) -> Dispatcher:
    """A dispatcher that looks often."""
    dispatcher = dlq.dispatcher(rules=rules)
    dispatcher._interval = OFTEN
    return dispatcher


async def looked(dlq: DeadLetters, times: int = 5) -> None:
    """Let the dispatcher look some times: another operation, planned later, comes and goes each time."""
    for _ in range(times):
        plan = await dlq.operations.plan("py:builtins:repr", query=Is(Field.SOURCE, "nothing"))
        await dlq.operations.schedule(plan.operation.id, datetime.now(UTC))
        await until(partial(is_finished, dlq, plan.operation.id))


async def is_finished(dlq: DeadLetters, id: UUID) -> bool:
    return (await dlq.operations.get(id)).status is OperationStatus.FINISHED


def test_it_begins_only_when_the_breaker_is_closed(tell: Tell, caplog: pytest.LogCaptureFixture) -> None:
    async def story(dlq: DeadLetters) -> None:
        clock = Clock()
        breaker = tripped(dlq, clock)
        await captured(dlq, "x")
        plan = await dlq.operations.plan("py:builtins:repr", query=EVERYTHING)
        waiting = await dlq.operations.schedule(plan.operation.id, when_closed="orders", by="ann")
        assert (waiting.status, waiting.when_closed, waiting.begins_at) == (OperationStatus.SCHEDULED, ORDERS, None)
        async with hasty(dlq):
            await looked(dlq)
            clock.now = 61
            assert breaker.state(clock()) is BreakerState.HALF_OPEN
            await looked(dlq)
            assert (await dlq.operations.get(waiting.id)).status is OperationStatus.SCHEDULED
            breaker.succeeded(breaker.passes(clock()))
            await until(lambda: is_finished(dlq, waiting.id))
        assert (await dlq.operations.get(waiting.id)).entries == {Entry.CONFIRMED: 1}
        told = f"operation {str(waiting.id)[:8]} waits until the breaker of orders is closed"
        assert [record.message for record in caplog.records].count(told) == 1

    with caplog.at_level(logging.INFO, "redrive.dispatcher"):
        tell(story)


def test_the_processor_of_the_same_store_closes_it(tell: Tell) -> None:
    """The whole way: a handler fails until its breaker opens, an operation waits, the trial works, and the operation begins."""

    async def story(dlq: DeadLetters) -> None:
        dlq.breakers = Breakers(lambda: Breaker(failures=2, rest=timedelta(milliseconds=50)))
        is_well = asyncio.Event()

        async def handle(order: str) -> None:
            if not is_well.is_set():
                raise ConnectionError("still down")

        async def is_open() -> bool:
            return dlq.breakers.state(ORDERS) is BreakerState.OPEN

        plan = redrive.RetryPlan(policy="immediate")
        for number in range(3):
            await captured(dlq, f"{number}", retry=plan)
        kept = await captured(dlq, "kept")
        async with dlq.processor({"orders": handle}, pace=redrive.Pace(interval=timedelta(milliseconds=20))), hasty(dlq):
            await until(is_open)
            waiting = await dlq.operations.plan("py:builtins:repr", ids=[kept])
            await dlq.operations.schedule(waiting.operation.id, when_closed="orders")
            await looked(dlq, 2)
            assert (await dlq.operations.get(waiting.operation.id)).status is OperationStatus.SCHEDULED
            is_well.set()
            await until(lambda: is_finished(dlq, waiting.operation.id))
            assert dlq.breakers.state(ORDERS) is BreakerState.CLOSED

    tell(story)


def test_a_breaker_that_was_never_used_is_taken_as_closed_and_that_is_said(tell: Tell, caplog: pytest.LogCaptureFixture) -> None:
    async def story(dlq: DeadLetters) -> None:
        await captured(dlq, "x")
        plan = await dlq.operations.plan("py:builtins:repr", query=EVERYTHING)
        await dlq.operations.schedule(plan.operation.id, when_closed="orders")
        async with hasty(dlq):
            await until(lambda: is_finished(dlq, plan.operation.id))
        assert dlq.breakers.state(ORDERS) is None, "none was made for the question"
        assert "nothing of orders was tried in this process: its breaker is taken as closed" in caplog.text

    with caplog.at_level(logging.INFO, "redrive.dispatcher"):
        tell(story)


def test_a_breaker_of_another_namespace_is_another_dispatcher_s(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        other = DeadLetters(dlq.letters, dlq.desk, namespace="shop", resolve=lambda url: Target(work))
        plan = await other.operations.plan("py:builtins:repr", query=EVERYTHING)
        waiting = await other.operations.schedule(plan.operation.id, when_closed="orders")
        async with hasty(dlq):
            await looked(dlq)
        assert (await dlq.operations.get(waiting.id)).status is OperationStatus.SCHEDULED
        async with hasty(other):
            await until(lambda: is_finished(dlq, waiting.id))

    tell(story)


async def work(messages: Sequence[Message]) -> list[Delivery]:
    return [Delivered(confirmed=True)] * len(messages)


def test_it_may_wait_for_a_time_and_a_breaker(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        plan = await dlq.operations.plan("py:builtins:repr", query=EVERYTHING)
        later = datetime.now(UTC) + timedelta(hours=1)
        waiting = await dlq.operations.schedule(plan.operation.id, later, when_closed="orders")
        assert (waiting.begins_at, waiting.when_closed) == (later, ORDERS)
        assert await dlq.operations.due(later - timedelta(seconds=1)) == []
        assert await dlq.operations.due(later) == [waiting]
        again = await dlq.operations.plan("py:builtins:repr", query=EVERYTHING)
        with pytest.raises(BadSettings, match="say when it is to begin, with at or when_closed"):
            await dlq.operations.schedule(again.operation.id)

    tell(story)


def test_a_rule_looks_only_while_the_breaker_is_closed(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        clock = Clock()
        breaker = tripped(dlq, clock)
        await captured(dlq, "x")
        target = Target(work)
        one = ReplayRule(name="a", query="source:orders", to=target, every=OFTEN, when_closed="orders")
        async with hasty(dlq, one):
            await looked(dlq)
            assert target.sent == []
            clock.now = 61
            breaker.succeeded(breaker.passes(clock()))
            await target.is_reached.wait()

    tell(story)


def test_the_shell_schedules_it_and_says_what_it_waits_for(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    filled(shell)
    shell.module("shop", "def work(order):\n    pass\n")
    out = shell("replay", "all", "--yes", "--to", "py:shop:work", "--when-closed", "orders").out
    waits = "until the breaker of 'orders' is closed, as seen by the process whose dispatcher begins it"
    assert f"It waits {waits}.\n" in out
    listed, *_ = shell("ops", "ls", "--json").json["operations"]
    assert (listed["status"], listed["when_closed"]) == ("scheduled", {"namespace": "default", "source": "orders"})
    assert waits in " ".join(shell("ops", "show", listed["id"]).out.split())
    assert shell.refused("replay", "all", "--yes", "--when-closed", "") == "--when-closed needs the name of a source."
    running = shell.start("up", "--listen", "127.0.0.1:0")
    eventually(lambda: shell("ops", "show", listed["id"], "--json").json["operation"]["status"] == "finished")
    running.send_signal(signal.SIGTERM)
    _, err = running.communicate(timeout=PATIENCE)
    assert "its breaker is taken as closed" in err
    assert waits not in shell("ops", "show", listed["id"]).out
