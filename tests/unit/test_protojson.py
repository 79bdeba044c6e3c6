"""Messages come back from JSON and protobuf as they went; no bytes whatever do harm."""

from __future__ import annotations

import inspect
import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redrive.queues.wire import messages as m
from redrive.queues.wire import proto, protojson, stamps
from redrive.queues.wire.schema import STAMP, fields, wire_name

KINDS: list[type[m.Message]] = [
    kind for _, kind in inspect.getmembers(m, inspect.isclass) if issubclass(kind, m.Message) and kind is not m.Message
]
SETTINGS = settings(max_examples=12, deadline=None, derandomize=True, database=None)
FIRST_US, LAST_US = stamps.micros("0001-01-01T00:00:00Z"), stamps.micros("9999-12-31T23:59:59.999999Z")

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
instants = st.one_of(st.just(0), st.integers(FIRST_US, LAST_US)).map(stamps.written)
VALUES: dict[Any, st.SearchStrategy[Any]] = {
    str: texts,
    bytes: st.binary(max_size=12),
    bool: st.booleans(),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "double": st.floats(allow_nan=False, allow_infinity=False),
    STAMP: instants,
    dict: st.dictionaries(texts, texts, max_size=3),
}


def messages(kind: type[m.Message]) -> st.SearchStrategy[m.Message]:
    return st.builds(kind, **{name: _value(kind, name) for name in fields(kind)})


def _value(kind: type[m.Message], name: str) -> st.SearchStrategy[Any]:
    element, is_many = fields(kind)[name]
    if element is dict or (element in VALUES and not is_many):
        return VALUES[element]
    if is_many:
        return st.lists(VALUES[element] if element in VALUES else messages(element), max_size=3)
    return st.none() | messages(element)


def camel(snake: str) -> str:
    first, *others = snake.split("_")
    return first + "".join(part.capitalize() for part in others)


def respelt(value: Any, spell: st.DataObject) -> Any:
    """The same JSON as others may write it: other names, numbers in quotes, nothing written out as null."""
    if isinstance(value, dict):
        return {
            camel(name) if "_" in name and spell.draw(st.booleans()) else name: respelt(one, spell) for name, one in value.items()
        }
    if isinstance(value, list):
        return [respelt(one, spell) for one in value]
    if isinstance(value, int) and not isinstance(value, bool) and spell.draw(st.booleans()):
        return str(value)
    return value


@pytest.mark.parametrize("kind", KINDS)
@SETTINGS
@given(data=st.data())
def test_what_is_written_is_read_again(kind: type[m.Message], data: st.DataObject) -> None:
    """As protobuf, as JSON, and by the letter, which answers have no need of."""
    message = data.draw(messages(kind))
    assert proto.read(kind, proto.write(message)) == message
    written = protojson.write(message)
    assert protojson.read(kind, written) == message
    if kind is not m.Reply:
        assert protojson.carefully(kind, written) == message


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind is not m.Reply])
@SETTINGS
@given(data=st.data())
def test_other_spellings_mean_the_same(kind: type[m.Message], data: st.DataObject) -> None:
    message = data.draw(messages(kind))
    # Answers have one name in camel case; requests may have any.
    plain = json.loads(protojson.write(message).replace(b'"logicalQueues"', b'"logical_queues"'))
    spelt = respelt(plain, data)
    for name in fields(kind):
        if wire_name(name) not in plain and data.draw(st.booleans()):
            spelt[wire_name(name)] = None
    body = json.dumps(spelt, indent=data.draw(st.sampled_from([None, 2])), ensure_ascii=data.draw(st.booleans())).encode()
    assert protojson.read(kind, body) == message


def ensure_read_or_refused(kind: type[m.Message], body: bytes) -> None:
    """Whatever else is raised ends the test."""
    for read in (protojson.read, protojson.carefully, proto.read):
        try:
            made = read(kind, body)
        except (protojson.NotProtojson, proto.NotProtobuf) as error:
            if not str(error).startswith("proto: "):
                raise
        else:
            assert isinstance(made, kind)


@pytest.mark.parametrize("kind", [m.Produce, m.QueueInfo, m.MoreRetry])
@settings(SETTINGS, max_examples=150)
@given(body=st.binary(max_size=40))
def test_any_bytes_are_a_message_or_refused(kind: type[m.Message], body: bytes) -> None:
    ensure_read_or_refused(kind, body)


TOKENS = [
    "{", "}", "[", "]", ":", ",", " ", "\n", "null", "true", "false", '"', "\\", '"\\ud800"', '"\\u00e9"', "1", "-", "0", "1.5", "1e999",
    "-0", "٣", "1" * 5000, '"1"', '"queue_name"', '"queueName"', '"items"', '"max_attempts"', '"partitions"', '"partition"', '"rate"',
    '"created_at"', '"2026-01-01T00:00:00Z"', '"2026-13-01T00:00:00Z"', '"٢٠٢٦-01-01T00:00:00Z"', '"bytes"', '"-_"', '"é"', '"\x01"',
]  # fmt: skip


@pytest.mark.parametrize("kind", [m.MoreQueueInfo, m.Produce])
@settings(SETTINGS, max_examples=200)
@given(tokens=st.lists(st.sampled_from(TOKENS), max_size=12), is_open=st.booleans())
def test_what_looks_like_json_is_a_message_or_refused(kind: type[m.Message], tokens: list[str], is_open: bool) -> None:
    body = ("{" * is_open + "".join(tokens) + "}" * is_open).encode()
    ensure_read_or_refused(kind, body)


BEYOND = ["1e999", "-1e999", "1" * 5000, '"\\ud800"', "1٣", "[[]]", "{}", f'"{"1" * 5000}"', '"٣"', '"٢٠٢٦-01-01T00:00:00Z"']


@pytest.mark.parametrize(
    ("field", "value"),
    [(field, value) for field in ("max_attempts", "created_at", "partitions", "rate", "ordered", "storage") for value in BEYOND]
    + [("queue_name", value) for value in BEYOND[:-3]],
)
@pytest.mark.parametrize("read", [protojson.read, protojson.carefully])
def test_a_value_beyond_all_bounds_is_refused(field: str, value: str, read: Any) -> None:
    with pytest.raises(protojson.NotProtojson, match=r"^proto: "):
        read(m.MoreQueueInfo, f'{{"{field}":{value}}}'.encode())


@pytest.mark.parametrize(
    ("text", "meant"),
    [("", b""), ("YQ==", b"a"), ("YQ", b"a"), ("-_8=", b"\xfb\xff"), ("-_8", b"\xfb\xff"), ("+/8", b"\xfb\xff")],
)
def test_base64_is_read_in_both_alphabets_and_without_its_end(text: str, meant: bytes) -> None:
    assert protojson.read(m.ProduceItem, json.dumps({"bytes": text}).encode()) == m.ProduceItem(bytes_=meant)


@pytest.mark.parametrize("text", ["!", "a", "a-!!", "YQ=", "Y Q=", "é", "YQ==YQ=="])
def test_what_is_no_base64_is_refused(text: str) -> None:
    with pytest.raises(protojson.NotProtojson, match="invalid value for bytes type"):
        protojson.read(m.ProduceItem, json.dumps({"bytes": text}).encode())


def test_the_careful_way_is_not_slower_the_further_it_comes() -> None:
    """As much as a produce may have, in camel case: a copy of the rest at each step would make ten times as much take a hundred times as long."""
    items = [{"enqueueAt": "2026-01-01T00:00:00Z", "utf8": "x" * 4_000, "kind": "k", "encoding": "e"}] * 1000
    body = json.dumps({"queueName": "orders", "requestTimeout": "1m", "items": items}).encode()

    def seconds(kind: type[m.Message], sent: bytes) -> float:
        begun = time.process_time()
        assert protojson.read(kind, sent) != kind()
        return time.process_time() - begun

    short = json.dumps({"queueName": "orders", "requestTimeout": "1m", "items": items[:100]}).encode()
    seconds(m.Produce, short)
    assert seconds(m.Produce, body) < 40 * max(seconds(m.Produce, short), 0.002)


@SETTINGS
@given(seconds=st.integers(-(2**63), 2**63 - 1), nanos=st.integers(-(2**31), 2**31 - 1))
def test_an_instant_of_protobuf_is_a_text_or_refused(seconds: int, nanos: int) -> None:
    try:
        text = stamps.stamped(seconds, nanos)
    except stamps.BadStamp:
        assert not (FIRST_US // 10**6 <= seconds <= LAST_US // 10**6 and 0 <= nanos < 10**9)
    else:
        assert stamps.micros(text) == seconds * 10**6 + nanos // 1000


@settings(SETTINGS, max_examples=200)
@given(micros=st.integers(FIRST_US, LAST_US))
def test_an_instant_comes_back_from_its_text(micros: int) -> None:
    text = stamps.written(micros)
    assert stamps.micros(text) == micros
    assert stamps.stamped(*stamps.seconds_and_nanos(text)) == text


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("1970-01-01T00:00:01Z", 1_000_000),
        ("1970-01-01t00:00:01z", 1_000_000),
        ("1970-01-01T02:00:01+02:00", 1_000_000),
        ("1969-12-31T23:00:01-01:00", 1_000_000),
        ("1970-01-01T00:00:00.000001999Z", 1),
        ("1970-01-01T00:00:00.5Z", 500_000),
        ("1969-12-31T23:59:59.5Z", -500_000),
        ("2024-02-29T00:00:00Z", 1_709_164_800_000_000),
        ("", 0),
    ],
)
def test_a_text_means_an_instant(text: str, meant: int) -> None:
    assert stamps.micros(text) == meant


@pytest.mark.parametrize(
    "text",
    [
        "now", "2026-01-01", "2026-01-01T00:00:00", "2026-01-01 00:00:00Z", "2026-13-01T00:00:00Z", "2026-00-01T00:00:00Z",
        "2026-02-29T00:00:00Z", "2026-01-32T00:00:00Z", "2026-01-01T24:00:00Z", "2026-01-01T00:60:00Z", "2026-01-01T00:00:60Z",
        "2026-01-01T00:00:00.Z", "2026-01-01T00:00:00.1234567890Z", "0000-01-01T00:00:00Z", "0001-01-01T00:00:00+00:01",
        "9999-12-31T23:59:59-00:01", "٢٠٢٦-01-01T00:00:00Z", "2026-01-01T00:00:00Z\n", " 2026-01-01T00:00:00Z",
    ],
)  # fmt: skip
def test_a_text_that_means_none_is_refused(text: str) -> None:
    with pytest.raises(stamps.BadStamp):
        stamps.micros(text)
