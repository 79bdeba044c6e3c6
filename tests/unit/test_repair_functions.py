"""Repairs by a function, and new bodies that a type or a schema checks."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import pydantic
import pytest

from redrive import EVERYTHING, Amendment, BadSettings, Letter, MissingExtra
from redrive.backends.memory import MemoryLetters
from redrive.engine.alter import Mending, by_function, by_patch, by_schema, by_type
from redrive.model.patch import Patch
from redrive.ports import LetterStore
from tests.contract.backends import memory_letters, sqlite_letters
from tests.unit.repair_use import found, house, order, orders, reasons, repaired, repairs, tell, undone


@pytest.fixture(params=[memory_letters, sqlite_letters], ids=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> LetterStore:
    opened: LetterStore = request.param(tmp_path)
    return opened


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
            assert refusal.reason == "tests.unit.test_repair_functions:raises raised KeyError: 'customer'"
            for function, reason in (
                (lambda value: {1, 2}, "what it would be is not JSON: Object of type set is not JSON serializable"),
                (
                    lambda value: float("nan"),
                    "what it would be is not JSON: Out of range float values are not JSON compliant: nan",
                ),
                (requeues, "a repair changes body, content type, headers and target, and not the tags"),
                (lambda value, letter: Amendment(id=order("9").id, body=b"x"), "a repair of one letter cannot amend another"),
                (
                    lambda value, letter: Amendment(id=letter.id, instead=letter),
                    "a repair changes body, content type, headers and target",
                ),
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
        ("tests.unit.test_repair_functions:coroutine", "must be a plain function that returns the new value"),
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
        ("tests.unit.test_repair_functions:Struct", "the new body is no tests.unit.test_repair_functions:Struct: Object missing"),
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
