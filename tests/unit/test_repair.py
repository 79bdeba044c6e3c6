"""Repairing many letters: what is changed and what is not, that what came is kept, and that a cut loses nothing."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
from collections.abc import Coroutine
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pydantic
import pytest

from redrive import (
    EVERYTHING,
    Amendment,
    AnswerLost,
    BadSettings,
    Claim,
    Field,
    Is,
    Letter,
    Message,
    MissingExtra,
    Redaction,
    Status,
    StoreUnavailable,
)
from redrive.backends.files.bodies import FileBodies
from redrive.backends.memory import MemoryDesk, MemoryLetters
from redrive.backends.sqlite.letters import SqliteLetters
from redrive.engine.alter import UNDO, Mending, by_function, by_hand, by_patch, by_schema, by_type, with_headers
from redrive.engine.dead_letters import DeadLetters, Limits
from redrive.engine.foresee import Repaired
from redrive.engine.repair import Repair
from redrive.engine.verdict import REPAIR
from redrive.model.letter import original_of
from redrive.model.patch import Patch
from redrive.model.query import At, Place
from redrive.ports import LetterStore
from redrive.testing import START, Faulty, Moment, letter, raising, waiting
from tests.contract.backends import memory_letters, sqlite_letters

HOUR = timedelta(hours=1)
JSON = "application/json"
EUROS = by_patch(Patch.read([{"op": "replace", "path": "/currency", "value": "EUR"}]))
APPEND = by_patch(Patch.read([{"op": "add", "path": "/notes/-", "value": "mended"}]))


@pytest.fixture(params=[memory_letters, sqlite_letters], ids=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> LetterStore:
    opened: LetterStore = request.param(tmp_path)
    return opened


def house(store: LetterStore, folder: Path | None = None, redaction: Redaction | None = None) -> DeadLetters:
    bodies = FileBodies(folder) if folder else None
    return DeadLetters(store, MemoryDesk(), bodies=bodies, limits=Limits(body=200), redaction=redaction)


def repairs(dlq: DeadLetters) -> Repair:
    return dlq.repairs


async def repaired(dlq: DeadLetters, mending: Mending, **which: Any) -> Repaired:
    repair = repairs(dlq)
    return await repair.carry_out(await repair.plan(mending, **(which or {"query": EVERYTHING})), by="ann")


async def undone(dlq: DeadLetters, **which: Any) -> Repaired:
    return await repairs(dlq).undo(by="ann", **(which or {"query": EVERYTHING}))


def tell(story: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(120):
            await story

    asyncio.run(bounded())


def order(name: str, body: bytes = b'{"currency": "ATS", "notes": []}', number: int = 0, **changes: Any) -> Letter:
    return letter(name, at=START + number * HOUR, body=body, content_type=JSON, **changes)


def orders(count: int) -> list[Letter]:
    return [order(str(number), number=number) for number in range(count)]


async def found(dlq: DeadLetters, name: str) -> Letter:
    (one,) = [one async for one in dlq.find(Is(Field.SOURCE_ID, name))]
    return one


def reasons(became: Repaired) -> dict[str, int]:
    return {one.reason: one.number for one in became.refusals}


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


def test_large_bodies_in_files_are_repaired_and_put_back(store: LetterStore, tmp_path: Path) -> None:
    async def story() -> None:
        async with house(store, tmp_path / "bodies") as dlq:
            large = msgspec.json.encode({"currency": "ATS", "notes": ["x" * 500]})
            await dlq.capture(Message(body=large, content_type=JSON, id="1"), ValueError("bad"), source="orders")
            assert (await repaired(dlq, EUROS)).done == 1
            one = await found(dlq, "1")
            assert one.body_ref is not None
            assert await dlq.body(one) == large.replace(b"ATS", b"EUR")
            shrunk = by_function(lambda value: {"currency": "EUR"})
            assert (await repaired(dlq, shrunk)).done == 1
            assert (await found(dlq, "1")).body == b'{"currency":"EUR"}'
            assert (await undone(dlq)).done == 1
            back = await found(dlq, "1")
            assert await dlq.body(back) == large
            assert (await undone(dlq)).unchanged == 1

    tell(story())


def test_a_body_that_grows_over_the_limit_without_a_folder_is_refused(store: LetterStore) -> None:
    async def story() -> None:
        async with house(store) as dlq:
            await store.put(orders(3))
            became = await repaired(dlq, by_function(lambda value, letter: ["x" * 500] if letter.source_id == "1" else []))
            assert became.done == 2
            assert reasons(became) == {"the new body has 504 bytes, the limit is 200; raise body_limit": 1}
            assert (await found(dlq, "1")).original is None

    tell(story())


def test_what_the_rules_would_redact_is_refused_before_anything_is_done(store: LetterStore) -> None:
    async def story() -> None:
        async with house(store, redaction=Redaction(presets=("emails",))) as dlq:
            await store.put(orders(1))
            became = await repaired(dlq, by_function(lambda value: value | {"mail": "ann@example.org"}))
            (reason,) = reasons(became)
            assert reason.startswith("the new body would be redacted, and then could not be sent")
            assert await dlq.desk.audit() == []

    tell(story())


def test_marks_of_redaction_must_be_mended_and_do_not_come_back(store: LetterStore) -> None:
    async def story() -> None:
        async with house(store, redaction=Redaction(presets=("emails",))) as dlq:
            message = Message(body=b'{"mail": "ann@example.org", "currency": "ATS"}', content_type=JSON, id="1")
            await dlq.capture(message, ValueError("bad"), source="orders")
            assert (await found(dlq, "1")).redacted == ("body",)
            (reason,) = reasons(await repaired(dlq, EUROS))
            assert reason.startswith("its new body still has a mark where something was redacted")
            assert (await repaired(dlq, by_hand(headers=[("h", b"1")]))).done == 1
            assert (await repaired(dlq, by_function(lambda value: {"mail": None}))).done == 1
            assert (await found(dlq, "1")).redacted == ()
            (reason,) = reasons(await undone(dlq))
            assert reason.endswith("put back, it would be sent with the marks")

    tell(story())


def test_a_header_that_was_mended_does_not_come_back_as_a_mark(store: LetterStore) -> None:
    async def story() -> None:
        async with house(store, redaction=Redaction(headers=("x-token",))) as dlq:
            message = Message(body=b"{}", content_type=JSON, id="1", headers=(("X-Token", b"secret"),))
            await dlq.capture(message, ValueError("bad"), source="orders")
            one = await found(dlq, "1")
            await dlq.amend(Amendment(id=one.id, headers=(("X-Token", b"new"),)), as_given=True)
            (reason,) = reasons(await undone(dlq))
            assert reason.startswith("its headers.x-token was redacted when it came")

    tell(story())


def test_another_function_under_the_same_name_is_another_repair() -> None:
    def into(currency: str) -> Mending:
        return by_function(lambda value: value | {"currency": currency})

    async def story() -> None:
        async with house(MemoryLetters()) as dlq:
            await dlq.letters.put(orders(1))
            for currency in ("EUR", "CHF", "EUR"):
                assert (await repaired(dlq, into(currency))).done == 1
                assert json.loads((await found(dlq, "0")).body)["currency"] == currency
            assert (await repaired(dlq, into("EUR"))).already == 1

    tell(story())


def raises(value: Any) -> Any:
    raise KeyError("customer")


def in_place(value: Any) -> None:
    value["currency"] = "EUR"


def by_letter(value: Any, letter: Letter) -> Any:
    return value | {"id": letter.source_id}


def raw(body: bytes) -> bytes:
    return body.upper()


def amends(value: Any, letter: Letter) -> Amendment:
    return Amendment(id=letter.id, headers={"h": 1}, content_type="text/x-order")  # type: ignore[arg-type]  # friendlier shapes are taken


def requeues(value: Any, letter: Letter) -> Amendment:
    return Amendment(id=letter.id, tags=("x",))


async def coroutine(value: Any) -> Any:
    return value


def test_functions_get_values_letters_or_bytes_and_give_what_the_letter_becomes(store: LetterStore) -> None:
    async def story() -> None:
        async with house(store) as dlq:
            await store.put(orders(1))
            for function, body in (
                (in_place, b'{"currency":"EUR","notes":[]}'),
                (by_letter, b'{"currency":"ATS","notes":[],"id":"0"}'),
                (raw, b'{"CURRENCY": "ATS", "NOTES": []}'),
            ):
                assert (await repaired(dlq, by_function(function))).done == 1
                assert (await found(dlq, "0")).body == body
                await undone(dlq)
            assert (await repaired(dlq, by_function(amends))).done == 1
            one = await found(dlq, "0")
            assert (one.headers, one.content_type, one.body) == ((("h", b"1"),), "text/x-order", order("0").body)
            assert (await repaired(dlq, by_function(lambda value: None))).unchanged == 1

    tell(story())


def test_a_function_that_fails_is_told_with_the_letter_it_failed_on(store: LetterStore) -> None:
    async def story() -> None:
        async with house(store) as dlq:
            await store.put(orders(3))
            plan = await repairs(dlq).plan(by_function(raises), query=EVERYTHING)
            (refusal,) = plan.foreseen.refusals
            assert (refusal.number, refusal.example) == (3, order("0").id)
            assert refusal.reason == "tests.unit.test_repair:raises raised KeyError: 'customer'"
            for function, reason in (
                (lambda value: {1, 2}, "what it would be is not JSON: Object of type set is not JSON serializable"),
                (
                    lambda value: float("nan"),
                    "what it would be is not JSON: Out of range float values are not JSON compliant: nan",
                ),
                (requeues, "a repair changes body, content type, headers and target, and not the tags"),
                (lambda value, letter: Amendment(id=order("9").id, body=b"x"), "a repair of one letter cannot amend another"),
                (lambda value, letter: Amendment(id=letter.id, body="x"), "the new body must be bytes, and is a str"),
            ):
                (told,) = reasons(await repaired(dlq, by_function(function)))
                assert told.startswith(reason.removesuffix(": nan")), told
            assert await dlq.desk.audit() == []

    tell(story())


def test_many_reasons_are_summed_up() -> None:
    async def story() -> None:
        async with house(MemoryLetters()) as dlq:
            await dlq.letters.put(orders(50))

            def picky(value: Any, letter: Letter) -> Any:
                raise ValueError(letter.source_id)

            plan = await repairs(dlq).plan(by_function(picky), query=EVERYTHING)
            assert len(plan.foreseen.refusals) == 11
            assert (plan.foreseen.refusals[-1].reason, plan.foreseen.refusals[-1].number) == ("for other reasons", 40)
            assert plan.foreseen.refused == 50

    tell(story())


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("shop", "'shop' names nothing; write module:name, e.g. shop.repairs:euros"),
        ("no_such_shop:mend", "cannot import 'no_such_shop': No module named 'no_such_shop'; is it on the path"),
        ("json:no_such", "'json' has no 'no_such'"),
        ("json:__name__", "'json:__name__' is a str, and cannot be called"),
        ("tests.unit.test_repair:coroutine", "must be a plain function that returns the new value"),
    ],
)
def test_a_function_that_is_none_gets_one_sentence(name: str, sentence: str) -> None:
    with pytest.raises(BadSettings) as refused:
        by_function(name)
    assert sentence in str(refused.value)


class Priced(pydantic.BaseModel):
    currency: str
    price: int


class Struct(msgspec.Struct):
    currency: str
    price: int


@dataclasses.dataclass
class Plain:
    currency: str
    price: int


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (Priced, "the new body is no Priced: /price: Field required"),
        (Struct, "the new body is no Struct: Object missing required field `price`"),
        (Plain, "the new body is no Plain: Object missing required field `price`"),
        ("tests.unit.test_repair:Struct", "the new body is no tests.unit.test_repair:Struct: Object missing"),
    ],
)
def test_new_bodies_are_checked_by_types(kind: Any, reason: str) -> None:
    async def story() -> None:
        async with house(MemoryLetters()) as dlq:
            await dlq.letters.put([order("good", b'{"currency": "ATS", "price": 5}'), order("bad", b'{"currency": "ATS"}', 1)])
            became = await repaired(
                dlq, by_patch(Patch.read([{"op": "replace", "path": "/currency", "value": "EUR"}]), valid=by_type(kind))
            )
            assert became.done == 1
            (told,) = reasons(became)
            assert told.startswith(reason)
            assert (await found(dlq, "bad")).original is None

    tell(story())


def test_what_is_no_type_to_check_with_is_refused() -> None:
    with pytest.raises(BadSettings, match="'dict' is no type to check with"):
        by_type(dict)


def test_a_schema_is_checked_by_its_library() -> None:
    positive = {"type": "object", "required": ["id"], "properties": {"total": {"type": "array", "items": {"minimum": 0}}}}
    valid = by_schema(positive)
    valid(b'{"id": 1, "total": [3, 0]}')
    with pytest.raises(BadSettings, match=r'the new body does not fit the schema at /total/1: \{"minimum":0\}'):
        valid(b'{"id": 1, "total": [3, -4]}')
    with pytest.raises(BadSettings, match=r'the new body does not fit the schema at the whole: \{"required":\["id"\]\}'):
        valid(b"{}")
    with pytest.raises(BadSettings, match="the new body is not JSON"):
        valid(b"<order/>")
    by_schema(b'{"$schema": "http://json-schema.org/draft-04/schema#", "maximum": 3, "exclusiveMaximum": true}')(b"2")
    with pytest.raises(BadSettings, match="does not fit the schema"):
        by_schema(False)(b"{}")
    with pytest.raises(BadSettings, match="the JSON Schema is wrong at /type"):
        by_schema({"type": 5})


def test_without_its_library_a_schema_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    with pytest.raises(MissingExtra, match=r"pip install 'redrive\[schema\]'"):
        by_schema(b"{}")
    with pytest.raises(BadSettings, match="the JSON Schema is not JSON"):
        by_schema(b"{")
    with pytest.raises(BadSettings, match="a JSON Schema is an object"):
        by_schema(b"[]")


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
