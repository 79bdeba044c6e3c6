"""Repairing many letters: what is changed and what is not, that what came is kept, and how it is undone."""

from __future__ import annotations

from pathlib import Path

import pytest

from redrive import EVERYTHING, BadSettings, Claim, Status
from redrive.engine.alter import UNDO, by_hand, with_headers
from redrive.engine.verdict import REPAIR
from redrive.model.letter import original_of
from redrive.model.query import At, Place
from redrive.ports import LetterStore
from redrive.testing import letter
from tests.contract.backends import memory_letters, sqlite_letters
from tests.unit.repair_use import APPEND, EUROS, HOUR, JSON, found, house, order, orders, reasons, repaired, repairs, tell, undone


@pytest.fixture(params=[memory_letters, sqlite_letters], ids=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> LetterStore:
    opened: LetterStore = request.param(tmp_path)
    return opened


def test_a_plan_counts_and_shows_differences_and_changes_nothing(store: LetterStore) -> None:
    async def story() -> None:
        async with house(store) as dlq:
            await store.put(
                [
                    *orders(5),
                    order("fine", b'{"currency": "EUR"}', 10),
                    order("none", b"{}", 11),
                    order("text", b"hello", 12),
                    order("done", number=13, status=Status.COMPLETED),
                    order("held", number=14),
                    letter("theirs", namespace="theirs", body=b'{"currency": "ATS"}'),
                ]
            )
            await store.claim(Claim(owner="bob", lease=HOUR, limit=1, what=(order("held").id,)))
            before = [one async for one in dlq.find()]
            plan = await repairs(dlq).plan(EUROS, query=EVERYTHING, sample=2)
            assert (plan.foreseen.matched, plan.foreseen.done, plan.foreseen.unchanged) == (10, 5, 1)
            assert reasons(plan.foreseen) == {
                "step 1 of the patch (replace /currency): there is no /currency": 1,
                "its body is not JSON: Expecting value (line 1, column 1)": 1,
                "it is completed": 1,
                "somebody holds it": 1,
            }
            assert [(one.letter.source_id, one.after.body) for one in plan.samples] == [
                ("0", b'{"currency":"EUR","notes":[]}'),
                ("1", b'{"currency":"EUR","notes":[]}'),
            ]
            assert [one async for one in dlq.find()] == before
            assert await dlq.desk.audit() == []

    tell(story())


def test_a_repair_does_what_its_plan_said_keeps_what_came_and_is_in_the_audit(store: LetterStore) -> None:
    async def story() -> None:
        async with house(store) as dlq:
            await store.put([*orders(3), order("done", number=9, status=Status.COMPLETED)])
            became = await repaired(dlq, EUROS)
            assert (became.matched, became.done, reasons(became)) == (4, 3, {"it is completed": 1})
            one = await found(dlq, "1")
            assert (one.body, one.content_type, one.status) == (b'{"currency":"EUR","notes":[]}', JSON, Status.PENDING)
            assert one.original is not None
            assert one.original.body == b'{"currency": "ATS", "notes": []}'
            ended, began = await dlq.desk.audit()
            assert (began.by, began.act) == ("ann", "edit")
            assert began.subject == "namespace:default all"
            assert began.detail == f"began: 3 of 4 to be changed ({EUROS.name})"
            assert ended.detail == f"done: 3 changed, 1 refused ({EUROS.name})"

    tell(story())


def test_the_first_original_is_kept_through_edits_and_undos(store: LetterStore) -> None:
    async def story() -> None:
        async with house(store) as dlq:
            await store.put([order("1", headers=(("a", b"1"),))])
            came = original_of(await found(dlq, "1"))
            for mending in (EUROS, APPEND, by_hand(body=b"other", content_type="text/plain", headers=[("b", b"2")])):
                assert (await repaired(dlq, mending)).done == 1
                assert (await found(dlq, "1")).original == came
            assert (await undone(dlq)).done == 1
            back = await found(dlq, "1")
            assert original_of(back) == came == back.original
            assert REPAIR not in back.metadata
            again = await undone(dlq)
            assert (again.done, again.unchanged) == (0, 1)
            assert (await found(dlq, "1")).updated_at == back.updated_at

    tell(story())


def test_the_same_repair_twice_changes_nothing_more_even_one_that_adds(store: LetterStore) -> None:
    async def story() -> None:
        async with house(store) as dlq:
            await store.put([order("1")])
            assert (await repaired(dlq, APPEND)).done == 1
            again = await repaired(dlq, APPEND)
            assert (again.done, again.already) == (0, 1)
            assert (await found(dlq, "1")).body == b'{"currency":"ATS","notes":["mended"]}'
            repair = repairs(dlq)
            forced = await repair.plan(APPEND, query=EVERYTHING, again=True)
            assert (await repair.carry_out(forced, by="ann")).done == 1
            assert (await found(dlq, "1")).body == b'{"currency":"ATS","notes":["mended","mended"]}'
            await undone(dlq)
            assert (await repaired(dlq, APPEND)).done == 1, "after an undo it is to be done again"

    tell(story())


def test_what_a_query_asks_of_bodies_may_be_what_is_repaired(store: LetterStore) -> None:
    async def story() -> None:
        async with house(store) as dlq:
            await store.put([*orders(40), order("other", b'{"currency": "USD"}', 50)])
            became = await repaired(dlq, EUROS, query=At(Place.BODY, ("currency",), "ATS"))
            assert (became.matched, became.done) == (40, 40)
            assert (await repaired(dlq, EUROS, query=At(Place.BODY, ("currency",), "ATS"))).matched == 0

    tell(story())


def test_letters_can_be_named_and_those_that_are_not_there_are_told(store: LetterStore) -> None:
    async def story() -> None:
        async with house(store) as dlq:
            theirs = order("theirs", namespace="theirs")
            await store.put([*orders(3), theirs])
            ids = [order("1").id, order("1").id, order("gone").id, theirs.id]
            became = await repaired(dlq, EUROS, ids=ids)
            assert (became.matched, became.done, reasons(became)) == (3, 1, {"there is no such letter": 2})
            with pytest.raises(BadSettings, match="one of ids or query"):
                await repairs(dlq).plan(EUROS)

    tell(story())


def test_headers_are_set_in_their_place_and_taken_away() -> None:
    known = (("A", b"1"), ("b", b"2"), ("a", b"3"), ("c", b"4"))
    assert with_headers(known, [("a", b"x"), ("d", b"y")], ["C"]) == (("a", b"x"), ("b", b"2"), ("d", b"y"))
    assert with_headers(known, [("b", b"x"), ("b", b"y")], []) == (
        ("A", b"1"),
        ("b", b"x"),
        ("b", b"y"),
        ("a", b"3"),
        ("c", b"4"),
    )
    assert with_headers((), [], ["a"]) == ()


def test_undo_is_a_repair_like_any_other_with_a_plan(store: LetterStore) -> None:
    async def story() -> None:
        async with house(store) as dlq:
            await store.put(orders(3))
            await repaired(dlq, EUROS, ids=[order("1").id])
            plan = await repairs(dlq).plan(UNDO, query=EVERYTHING)
            assert (plan.foreseen.done, plan.foreseen.unchanged) == (1, 2)
            (sample,) = plan.samples
            assert sample.after.body == order("1").body
            await undone(dlq)
            assert (await dlq.desk.audit())[0].act == "undo"

    tell(story())
