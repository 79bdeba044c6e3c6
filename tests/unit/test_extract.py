"""From what a handler was called with to a message, and back."""

from __future__ import annotations

import asyncio
import logging
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import redrive
from redrive import EVERYTHING, Held, Message, Status, blocking, where
from redrive.engine.extract import arguments, decoded

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(json_values | st.binary())
def test_one_argument_comes_back_as_it_was(value: Any) -> None:
    assert decoded(arguments(value)) == ((value,), {})


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(json_values, min_size=2, max_size=4), st.dictionaries(st.text(min_size=1), json_values, max_size=3))
def test_several_arguments_come_back_as_a_call(args: list[Any], kwargs: dict[str, Any]) -> None:
    assert decoded(arguments(*args, **kwargs)) == (tuple(args), kwargs)


def test_no_argument_at_all_is_a_call_too() -> None:
    assert decoded(arguments()) == ((), {})
    assert decoded(arguments(order=1)) == ((), {"order": 1})


def test_bytes_are_kept_as_they_came() -> None:
    for raw in (b"", b"\0\xff\xfe", bytearray(b"abc"), memoryview(b"abcdef")[::2]):
        message = arguments(raw)
        assert message.body == bytes(raw)
        assert message.content_type == "application/octet-stream"


def test_text_with_lone_surrogates_comes_back() -> None:
    assert decoded(arguments("a\ud800b")) == (("a\ud800b",), {})


def test_a_message_is_taken_as_it_is() -> None:
    message = Message(body=b"x", id="7", delivery_count=2)
    assert arguments(message) is message


@pytest.mark.parametrize("value", [float("nan"), {"price": float("-inf")}, {"raw": b"\xff\0"}, {1: "a"}])
def test_what_json_cannot_carry_is_never_changed_in_silence(value: Any) -> None:
    """Either it comes back as it was, or it is kept as evidence only, which redrive refuses to send."""
    message = arguments(value)
    if message.content_type != "text/x-python-repr":
        ((again,), _) = decoded(message)
        assert repr(again) == repr(value)


def test_what_cannot_be_encoded_is_kept_as_its_repr() -> None:
    circle: list[Any] = []
    circle.append(circle)
    for value in (object(), circle, {"f": print}, lambda: None):
        message = arguments(value)
        assert message.content_type == "text/x-python-repr"
        assert message.body == repr(value).encode()


class NoRepr:
    def __repr__(self) -> str:
        raise RuntimeError("no")


class BrokenDump:
    def model_dump(self, mode: str) -> Any:
        raise KeyError("broken model")


class BrokenAttributes:
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"no {name}")


@pytest.mark.parametrize(
    "value", [NoRepr(), BrokenDump(), BrokenAttributes(), {"deep": [BrokenDump()]}], ids=lambda value: type(value).__name__
)
def test_a_message_that_resists_every_encoding_is_still_held(value: Any) -> None:
    with blocking.open("memory:") as dlq:

        @dlq.guard(source="orders")
        def handle(order: Any) -> None:
            raise ValueError("bad")

        handle(value)
        (letter,) = dlq.find()
    assert letter.failure.message == "bad"
    assert letter.content_type == "text/x-python-repr"


def test_a_letter_of_which_only_the_repr_is_left_is_not_sent() -> None:
    calls = []
    with blocking.open("memory:") as dlq:
        dlq.capture(object(), ValueError("bad"), source="orders")
        report = dlq.redrive(calls.append, query=EVERYTHING)
        (letter,) = dlq.find()
        (row,) = dlq.desk.ledger(report.operation)
    assert calls == []
    assert report.entries == {"failed": 1}
    assert "only the repr" in row.detail
    assert (letter.failure.message, letter.attempts) == ("bad", 1)
    assert letter.status is Status.PENDING


class Model:
    """What pydantic's models look like from outside."""

    def __init__(self, id: int) -> None:
        self.id = id

    def model_dump(self, mode: str) -> dict[str, Any]:
        assert mode == "json"
        return {"id": self.id}


def test_a_model_is_kept_as_its_dump() -> None:
    assert decoded(arguments(Model(7))) == (({"id": 7},), {})


class Record:
    def __init__(self, **parts: Any) -> None:
        self.__dict__ |= parts


def test_where_finds_the_parts_by_attributes_and_keys() -> None:
    extract = where(id="meta.id", body="payload", headers="meta.headers", key="key", delivery_count="meta.count")
    for meta in (
        {"id": 17, "headers": {"a": "1", "b": b"\xff"}, "count": 2},
        Record(id=17, headers=[("a", "1"), ("b", b"\xff")], count=2),
    ):
        message = extract(Record(meta=meta, payload=b"raw", key="k"))
        assert message.id == "17"
        assert message.body == b"raw"
        assert message.headers == (("a", b"1"), ("b", b"\xff"))
        assert message.key == b"k"
        assert message.delivery_count == 2


def test_where_takes_functions_and_keyword_arguments() -> None:
    extract = where(id=lambda order: order["ids"][0], key=lambda order: b"\xff")
    assert extract(order={"ids": ["a", "b"]}).id == "a"
    assert extract({"ids": ["a"]}).key == b"\xff"


def test_what_is_missing_along_a_path_is_simply_not_there() -> None:
    message = where(id="meta.id", headers="headers", key="k.k", delivery_count="d.c", redrive_id="r", generation="g")(
        {"meta": None}
    )
    assert (message.id, message.headers, message.key, message.delivery_count) == (None, (), None, None)
    assert (message.redrive_id, message.generation) == (None, 0)


def test_the_marks_of_a_redriven_message_are_read_from_its_headers() -> None:
    id = uuid4()
    message = where(headers="headers")({"headers": {"Redrive-Id": str(id), "REDRIVE-GENERATION": "4"}})
    assert (message.redrive_id, message.generation) == (id, 4)


@pytest.mark.parametrize("kind", [str, lambda text: text.encode()], ids=["text", "bytes"])
def test_the_marks_can_lie_elsewhere_as_text_or_bytes(kind: Any) -> None:
    id = uuid4()
    message = where(redrive_id="attributes.rid", generation="attributes.gen")(
        {"attributes": {"rid": kind(str(id)), "gen": kind("3")}}
    )
    assert (message.redrive_id, message.generation) == (id, 3)


def test_a_place_that_was_named_goes_before_the_headers() -> None:
    named, other = uuid4(), uuid4()
    message = where(headers="headers", redrive_id="rid")({"headers": {"redrive-id": str(other)}, "rid": str(named)})
    assert message.redrive_id == named


@pytest.mark.parametrize("count", ["2", b"2"], ids=["text", "bytes"])
def test_a_delivery_count_that_comes_as_text_is_a_number(count: Any) -> None:
    """SQS gives `ApproximateReceiveCount` as text, brokers with raw headers as bytes."""
    with blocking.open("memory:") as dlq:

        @dlq.guard(source="orders", extract=where(id="id", delivery_count="count"))
        def handle(order: Any) -> None:
            raise ValueError("bad")

        assert isinstance(handle({"id": "1", "count": count}), redrive.Retry)
        assert isinstance(handle({"id": "1", "count": type(count)(b"3") if isinstance(count, bytes) else "3"}), redrive.Bury)


@pytest.mark.parametrize("value", [5, 2.5])
def test_a_header_that_is_a_number_is_kept_as_its_text(value: Any) -> None:
    """AMQP's headers are typed. `bytes(5)` would be five zero bytes, `bytes(10**9)` a gigabyte of them."""
    message = where(headers="headers")({"headers": {"x-retries": value}})
    assert message.headers == (("x-retries", str(value).encode()),)


def test_a_broken_extractor_does_not_cost_the_message(caplog: pytest.LogCaptureFixture) -> None:
    def broken(order: Any) -> Message:
        raise KeyError("no such field")

    with blocking.open("memory:") as dlq, caplog.at_level(logging.ERROR, "redrive"):

        @dlq.guard(source="orders", extract=broken)
        def handle(order: Any) -> None:
            raise ValueError("bad")

        assert handle({"id": 1}) is None
        (letter,) = dlq.find()
    assert letter.body == b'{"id":1}'
    assert letter.failure.message == "bad"
    assert {record.message for record in caplog.records} == {"extractor failed"}


def test_an_extractor_is_not_called_while_all_goes_well_and_once_when_it_does_not() -> None:
    calls = []

    def counting(order: Any) -> Message:
        calls.append(order)
        return Message(body=b"x")

    with blocking.open("memory:") as dlq:

        @dlq.guard(source="orders", extract=counting)
        def handle(order: str) -> str:
            if order == "bad":
                raise ValueError
            return order

        assert handle("good") == "good"
        assert calls == []
        handle("bad")
        assert calls == ["bad"]


@pytest.mark.parametrize("generation", ["99999999999999999999", "9" * 5_000, "-1", "1e3", "²", "1 "])
def test_a_forged_generation_does_not_cost_the_message(generation: str) -> None:
    async def story() -> None:
        async with redrive.open("memory:") as dlq:
            message = Message(
                body=b"x", headers=(("redrive-id", str(uuid4()).encode()), ("redrive-generation", generation.encode()))
            )
            captured = await dlq.capture(message, ValueError("bad"), source="orders")
            assert captured.held is Held.NEW

    asyncio.run(story())


@pytest.mark.parametrize("generation", ["9223372036854775807", "99999999999999999999"])
def test_a_forged_generation_does_not_cost_the_message_on_disk_either(generation: str, tmp_path: Any) -> None:
    with blocking.open(f"sqlite:{tmp_path}/redrive.db") as dlq:
        message = Message(body=b"x", headers=(("redrive-id", str(uuid4()).encode()), ("redrive-generation", generation.encode())))
        assert dlq.capture(message, ValueError("bad"), source="orders").held is Held.NEW


@pytest.mark.parametrize("mark", [b"", b"not a uuid", b"\xff\xfe", b"3f2a91c4"])
def test_a_forged_redrive_id_is_no_id(mark: bytes) -> None:
    message = Message(body=b"x", headers=(("redrive-id", mark), ("redrive-generation", b"4")))
    assert (message.redrive_id, message.generation) == (None, 0)
