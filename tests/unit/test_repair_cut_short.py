"""A repair that is cut short, overtaken or left without an answer: what is done is done once, and nothing is lost."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path

import pytest

from redrive import EVERYTHING, Amendment, AnswerLost, Claim, Field, Is, StoreUnavailable
from redrive.backends.sqlite.letters import SqliteLetters
from redrive.engine.foresee import Repaired
from redrive.ports import LetterStore
from redrive.testing import Faulty, Moment, raising, waiting
from tests.contract.backends import memory_letters, sqlite_letters
from tests.unit.repair_use import APPEND, EUROS, HOUR, found, house, order, orders, reasons, repaired, repairs, tell, undone


@pytest.fixture(params=[memory_letters, sqlite_letters], ids=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> LetterStore:
    opened: LetterStore = request.param(tmp_path)
    return opened


def test_thousands_of_letters_cut_short_in_the_middle_and_given_again(store: LetterStore) -> None:
    many = 2000 if isinstance(store, SqliteLetters) else 600  # the memory looks at all for each page

    async def story() -> None:
        faulty = Faulty(store)
        async with house(faulty) as dlq:
            await store.put(orders(many))
            heard: list[Repaired] = []
            repair = repairs(dlq)
            plan = await repair.plan(APPEND, query=EVERYTHING)
            assert plan.foreseen.done == many

            async def pass_by() -> None:
                return None

            faulty.lay("amend", Moment.BEFORE, pass_by, times=10)
            faulty.lay("amend", Moment.BEFORE, raising(StoreUnavailable("gone")))
            with pytest.raises(StoreUnavailable):
                await repair.carry_out(plan, by="ann", most=50, progress=heard.append)
            half = heard[-1].done
            assert 100 < half <= 500
            assert all(after.done - before.done <= 50 for before, after in pairwise(heard))
            assert (await dlq.desk.audit())[0].detail == f"cut short: {half:,} changed ({APPEND.name})"
            again = await repaired(dlq, APPEND)
            assert (again.done, again.already) == (many - half, half)
            bodies = {(one.body, one.original is not None) async for one in dlq.find()}
            assert bodies == {(b'{"currency":"ATS","notes":["mended"]}', True)}
            assert (await undone(dlq)).done == many
            assert {one.body async for one in dlq.find()} == {b'{"currency": "ATS", "notes": []}'}

    tell(story())


def test_a_cancellation_waits_for_the_step_under_way(store: LetterStore) -> None:
    async def story() -> None:
        faulty, gate = Faulty(store), asyncio.Event()
        async with house(faulty) as dlq:
            await store.put(orders(6))
            plan = await repairs(dlq).plan(EUROS, query=EVERYTHING)
            faulty.lay("amend", Moment.AFTER, waiting(gate))
            work = asyncio.create_task(repairs(dlq).carry_out(plan, by="ann", most=2))
            while (await found(dlq, "0")).original is None:  # noqa: ASYNC110 - asks a store
                await asyncio.sleep(0.001)
            work.cancel()
            await asyncio.sleep(0.01)
            assert not work.done()
            gate.set()
            with pytest.raises(asyncio.CancelledError):
                await work
            assert (await dlq.desk.audit())[0].detail == f"cut short: 2 changed ({EUROS.name})"
            assert (await repaired(dlq, EUROS)).done == 4

    tell(story())


def test_what_comes_or_changes_after_the_plan_is_left_alone(store: LetterStore) -> None:
    async def story() -> None:
        async with house(store) as dlq:
            await store.put([*orders(3), order("done", number=3)])
            repair = repairs(dlq)
            plan = await repair.plan(EUROS, query=Is(Field.STATUS, "pending"))
            await store.put([order("late", number=100)])
            await store.amend(
                [Amendment(id=order("done").id, act=None, tags=("x",)), Amendment(id=order("1").id, body=b"by hand")]
            )
            await store.claim(Claim(owner="bob", lease=HOUR, limit=1, what=(order("2").id,)))
            became = await repair.carry_out(plan, by="ann")
            assert (became.done, became.refused) == (2, 1)
            assert (await found(dlq, "1")).body == b"by hand"
            assert (await found(dlq, "2")).original is None
            assert (await found(dlq, "late")).original is None

    tell(story())


def test_a_letter_that_is_taken_or_reopened_on_the_way_is_left_alone(store: LetterStore) -> None:
    async def story() -> None:
        faulty = Faulty(store)
        async with house(faulty) as dlq:
            await store.put([order("0"), order("held", number=1), order("again", number=2)])
            repair = repairs(dlq)
            plan = await repair.plan(EUROS, query=EVERYTHING)

            async def meanwhile() -> None:
                await store.claim(Claim(owner="bob", lease=HOUR, limit=1, what=(order("held").id,)))
                await store.amend([Amendment(id=order("again").id, act=None)])
                await store.put([order("again", number=2, failed=2, generation=2)])

            faulty.lay("amend", Moment.BEFORE, meanwhile)
            became = await repair.carry_out(plan, by="ann")
            assert (became.done, became.changed, reasons(became)) == (1, 1, {"somebody holds it": 1})
            assert (await found(dlq, "again")).body == order("again").body

    tell(story())


def test_an_answer_that_was_lost_is_looked_up(store: LetterStore) -> None:
    async def story() -> None:
        faulty = Faulty(store)
        async with house(faulty) as dlq:
            await store.put(orders(2))
            faulty.lay("amend", Moment.AFTER, raising(AnswerLost("cut")))
            assert (await repaired(dlq, EUROS)).done == 2
            faulty.lay("amend", Moment.BEFORE, raising(AnswerLost("cut")))
            became = await undone(dlq)
            assert (became.done, became.changed) == (0, 2)
            assert (await undone(dlq)).done == 2

    tell(story())


def test_a_letter_that_was_sent_is_not_undone(store: LetterStore) -> None:
    async def story() -> None:
        async with house(store) as dlq:
            await store.put(orders(2))
            await repaired(dlq, EUROS)
            await dlq.redrive(lambda value: None, ids=[order("0").id])
            became = await undone(dlq)
            assert (became.done, reasons(became)) == (1, {"it is completed": 1})
            assert (await found(dlq, "0")).body == b'{"currency":"EUR","notes":[]}'

    tell(story())
