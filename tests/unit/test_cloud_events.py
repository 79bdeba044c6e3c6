"""Letters as CloudEvents: what the specification wants of an event, and the same letter back."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from datetime import datetime
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from redrive import BadSettings, Letter
from redrive.model.letter import Original
from redrive.serve.cli.cloud_events import TYPE, event_of, letter_of_event
from redrive.testing import letter
from redrive.testing.kit.strategies import effort, letters, letters_with_documents

JSON = "application/json"
REQUIRED = {"specversion", "id", "source", "type"}
OPTIONAL = {"time", "subject", "datacontenttype", "data", "data_base64", "redriveletter", "redrivesha256"}
URI_REFERENCE = re.compile(r"redrive:(?:[A-Za-z0-9._~-]|%[0-9A-F]{2})*/(?:[A-Za-z0-9._~-]|%[0-9A-F]{2})*")
IN_NO_ATTRIBUTE = re.compile("[\0-\x1f\x7f-\x9f\ufdd0-\ufdef\ufffe\uffff\U0010fffe\U0010ffff]")


def inside(one: Letter) -> Letter:
    """As an export has it: with the bodies inside."""
    return replace(one, body_ref=None, original=one.original and replace(one.original, body_ref=None))


def event(one: Letter) -> dict[str, Any]:
    line = event_of(one)
    assert (line.count(b"\n"), line[-1:]) == (1, b"\n")
    shape: dict[str, Any] = json.loads(line)
    return shape


def ensure_it_is_as_specified(shape: dict[str, Any], one: Letter) -> None:
    assert shape.keys() >= REQUIRED
    assert shape.keys() <= REQUIRED | OPTIONAL
    attributes = {name: value for name, value in shape.items() if name not in ("data", "data_base64")}
    assert all(isinstance(value, str) and value for value in attributes.values())
    assert not any(IN_NO_ATTRIBUTE.search(value) for value in attributes.values())
    assert all(re.fullmatch("[a-z0-9]{1,20}", name) for name in attributes)
    assert (shape["specversion"], shape["type"]) == ("1.0", TYPE)
    assert shape["id"] == f"{one.id}.{one.generation}"
    assert URI_REFERENCE.fullmatch(shape["source"])
    assert urlsplit(shape["source"]).path.split("/") == shape["source"].removeprefix("redrive:").split("/")
    assert [unquote(part) for part in shape["source"].removeprefix("redrive:").split("/")] == [one.namespace, one.source]
    assert datetime.fromisoformat(shape["time"]) == one.dead_lettered_at
    assert ("data" in shape) + ("data_base64" in shape) == 1


@effort(200)
@given(letters().map(inside))
def test_any_letter_is_the_same_after_an_event(one: Letter) -> None:
    assert letter_of_event(event_of(one)) == one
    ensure_it_is_as_specified(event(one), one)


@effort(200)
@given(letters_with_documents(), st.sampled_from([JSON, "text/json; charset=utf-8", "application/vnd.shop+json", "text/plain"]))
def test_a_document_is_data_and_the_same_after_an_event(one: Letter, content_type: str) -> None:
    one = replace(one, content_type=content_type)
    shape = event(one)
    ensure_it_is_as_specified(shape, one)
    assert shape["datacontenttype"] == content_type
    if "data" in shape:
        assert shape["data"] == json.loads(one.body)
    else:
        assert b64decode(shape["data_base64"]) == one.body
    assert letter_of_event(event_of(one)) == one


@pytest.mark.parametrize(
    "body",
    [
        b'{"order":7}',
        b'{"order": 7}',
        b'{\r\n\t"order" : 7\n}\n',
        b' [1.50, 1e3, 12345678901234567890123, "\\u00e9"]',
        b"10.0",
        b'{"a":1,"a":2}',
        b'{"b":1,"a":"\xc3\xa9"}',
        b"null",
        b'"text"',
    ],
    ids=str,
)
def test_json_comes_back_to_the_byte_also_when_it_was_written_anew_on_its_way(body: bytes) -> None:
    one = letter("1", body=body, content_type=JSON)
    shape = event(one)
    assert shape["data"] == json.loads(body)
    assert letter_of_event(event_of(one)) == one
    for anew in (
        json.dumps(shape, sort_keys=True),
        json.dumps(shape, separators=(",", ":"), ensure_ascii=False),
        json.dumps(shape, indent=2),
    ):
        assert letter_of_event(anew.encode()) == one


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"\xff\x00", JSON),
        (b"", JSON),
        (b"{", JSON),
        (b"NaN", JSON),
        (b'"\\ud800"', JSON),
        (b"[" * 100_000 + b"]" * 100_000, JSON),
        (b'{"a":[' * 60 + b"7" + b"]}" * 60, JSON),
        (b"{}", "application/jsonish"),
        (b"{}", "application/octet-stream"),
        (b"{}", "json"),
        (b"{}", "application/json\n"),
        (b"text", "text/plain"),
    ],
    ids=lambda value: str(value[:20]),
)
def test_all_else_is_base64(body: bytes, content_type: str) -> None:
    one = letter("1", body=body, content_type=content_type)
    shape = event(one)
    assert b64decode(shape["data_base64"]) == body
    assert "data" not in shape
    assert letter_of_event(event_of(one)) == one


def test_a_text_may_become_data_on_its_way() -> None:
    one = letter("1", body="é\n".encode(), content_type="text/plain")
    shape = event(one)
    shape["data"] = b64decode(shape.pop("data_base64")).decode()
    assert letter_of_event(json.dumps(shape).encode()) == one


def test_what_an_attribute_cannot_say_is_left_to_the_extension() -> None:
    one = letter("\x85line\n", content_type="no media type", source="a/b c?#%é", namespace="")
    shape = event(one)
    assert "subject" not in shape
    assert "datacontenttype" not in shape
    assert shape["source"] == "redrive:/a%2Fb%20c%3F%23%25%C3%A9"
    assert letter_of_event(event_of(one)) == one
    assert event(letter("order 7"))["subject"] == "order 7"


def test_all_that_a_letter_has_besides_its_body_comes_along() -> None:
    one = letter(
        "1",
        original=Original(body=b"\xfe", headers=(("a", b"\xff"),)),
        forgotten=b"0" * 16,
        metadata={"raw": b"\xff", "huge": float("inf")},
        key=b"\xfd",
    )
    assert letter_of_event(event_of(one)) == one


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"type": "com.example.order"}, "this event is of type com.example.order, this redrive knows io.redrive.letter.v1; only"),
        ({"type": "io.redrive.letter.v2"}, "this redrive knows io.redrive.letter.v1; upgrade redrive"),
        ({"type": None}, "this event is of type None"),
        ({"specversion": "2.0"}, "this event has specversion 2.0, this redrive knows 1.0"),
        ({"redriveletter": None}, "this event holds no letter"),
        ({"redriveletter": "%"}, "this event holds no letter: Invalid base64"),
        ({"redriveletter": "e30="}, "this line"),
        ({"id": None}, "this event holds no letter"),
        ({"data_base64": "AAAA"}, "this event's data was changed on its way"),
        ({"data_base64": None}, "this event's data was changed on its way"),
        ({"data_base64": None, "data": {}}, "this event's data was changed on its way"),
        ({"data_base64": None, "data": "x"}, "this event's data was changed on its way"),
    ],
    ids=str,
)
def test_an_event_that_holds_no_letter_is_refused_in_one_sentence(changes: dict[str, Any], sentence: str) -> None:
    shape = event(letter("1", body=b"\xff")) | changes
    with pytest.raises(BadSettings, match=re.escape(sentence)):
        letter_of_event(json.dumps(shape).encode())


@pytest.mark.parametrize("line", [b"", b"7", b"{}", b'{"specversion":"1.0"', b"[" * 100_000])
def test_a_line_that_is_no_event_is_refused_in_one_sentence(line: bytes) -> None:
    with pytest.raises(BadSettings, match="this event"):
        letter_of_event(line)
