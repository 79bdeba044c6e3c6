"""The stored form: numbered, complete, and refused when it is not understood."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta
from uuid import RFC_4122, UUID, uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import msgpack
from msgspec.structs import replace

from redrive import Attempt, Category, Failure, Letter, Origin, RetryPlan, SchemaTooNew, Status, StoreCorrupt
from redrive.model.letter import BodyRef, Cause, Original, RedriveMark, letter_id
from redrive.model.settlement import Completed, Postponed, Redriven, Released, settled
from redrive.model.stored import SCHEMA, content, restored, standing, stored, with_room

NOW = datetime(2026, 1, 31, 12, 30, 15, 123456, tzinfo=UTC)

SMALL = Letter(
    id=letter_id("default", "orders", "1"),
    source="orders",
    source_id="1",
    failure=Failure(type="builtins.ValueError"),
    first_received_at=NOW,
    dead_lettered_at=NOW,
    updated_at=NOW,
)

FULL = Letter(
    id=letter_id("shop", "orders", "ö-1"),
    namespace="shop",
    source="orders",
    source_id="ö-1",
    generation=3,
    body=bytes(range(256)),
    body_ref=BodyRef(name="x.body", size=7, sha256="ab"),
    content_type="application/json",
    headers=(("a", b"1"), ("a", b"\xff")),
    key=b"\0key",
    kind="order",
    reference="s3://bucket/1",
    origin=Origin(topic="t", partition=0, offset=0, node="n", reply_to="r", request_id="q", trace="00-ab-cd-01"),
    failure=Failure(
        type="x.Y",
        message="m",
        category=Category.NETWORK,
        traceback="tb",
        causes=(Cause(type="a", message="b"),),
        fingerprint="ff",
        fingerprint_version=1,
    ),
    history=(
        Attempt(
            at=NOW, occurrence=uuid4(), error="e", message="m", took=timedelta(seconds=1), generation=2, outcome_unknown=True
        ),
    ),
    history_dropped=4,
    forgotten=uuid4().bytes,
    first_received_at=NOW - timedelta(days=1),
    dead_lettered_at=NOW,
    updated_at=NOW + timedelta(microseconds=1),
    expires_at=NOW + timedelta(days=30),
    retry=RetryPlan(policy="linear", retry_count=1, max_retries=3, next_retry_at=NOW),
    status=Status.QUARANTINED,
    priority=-5,
    depends_on=("1", "2"),
    tags=("a", "b"),
    metadata={"deep": {"list": [1, 2.5, None, True, "ü"]}},
    redrive=RedriveMark(count=2, last_at=NOW, operation=UUID(int=5)),
    target="py:shop:other",
    original=Original(body=b"was", content_type="text/plain", headers=(("h", b"v"),), target="py:shop:first"),
    redacted=("body", "headers.authorization"),
)


def test_every_field_of_the_full_letter_differs_from_its_default() -> None:
    defaults = Letter.__struct_defaults__
    optional = Letter.__struct_fields__[-len(defaults) :]
    assert [name for name, default in zip(optional, defaults, strict=True) if getattr(FULL, name) == default] == []


@pytest.mark.parametrize("letter", [SMALL, FULL], ids=["small", "full"])
def test_a_letter_comes_back_as_it_was(letter: Letter) -> None:
    assert restored(stored(letter)) == letter


@pytest.mark.parametrize("letter", [SMALL, FULL], ids=["small", "full"])
def test_its_two_parts_are_it_when_they_are_joined(letter: Letter) -> None:
    assert restored(content(letter) + standing(letter)) == letter


@pytest.mark.parametrize("now", [SMALL, FULL], ids=["to defaults", "to other values"])
@pytest.mark.parametrize("before", [SMALL, FULL], ids=["of a small letter", "of a full letter"])
def test_the_first_part_may_stay_when_the_standing_changes(before: Letter, now: Letter) -> None:
    after = replace(before, status=now.status, updated_at=now.updated_at, retry=now.retry, redrive=now.redrive)
    assert restored(content(before) + standing(after)) == after


def test_what_ends_a_claim_without_a_failure_changes_the_standing_alone() -> None:
    outcomes = (Completed(operation=UUID(int=7)), Redriven(), Released(), Postponed(until=NOW, why="a breaker is open"))
    for outcome in outcomes:
        after = settled(FULL, outcome, NOW + timedelta(seconds=1))
        assert restored(content(FULL) + standing(after)) == after


@pytest.mark.parametrize("fields", [0, 1, 11, 12, 15, 16, 300])
def test_a_map_has_room_for_more_fields_however_many_it_has(fields: int) -> None:
    packed = msgpack.encode({str(number): number for number in range(fields)})
    more = msgpack.encode("more") + msgpack.encode(1) + msgpack.encode("0") + msgpack.encode("later")
    assert msgpack.decode(with_room(packed, 2) + more) == {
        **{str(number): number for number in range(fields)},
        "more": 1,
        "0": "later",
    }


def test_a_part_alone_is_called_corrupt() -> None:
    for data in (content(SMALL), content(FULL)[:-1] + standing(FULL), content(FULL) + standing(FULL)[:-1]):
        with pytest.raises(StoreCorrupt, match="a stored letter"):
            restored(data)


def test_the_first_byte_numbers_the_form() -> None:
    assert stored(SMALL)[0] == SCHEMA


def test_a_form_that_was_written_by_the_first_release_is_still_read() -> None:
    """Bytes as release 0.1 wrote them: when this fails, a form was changed without a new number."""
    first = bytes.fromhex(
        "01de0007a26964d92437373166303633362d396531662d386633632d396438332d333237373930373961373064a6736f75726365a66f7264657273"
        "a9736f757263655f6964a131a76661696c75726581a474797065b36275696c74696e732e56616c75654572726f72b166697273745f7265636569"
        "7665645f6174d7ff1d6f2800697df5d7b0646561645f6c657474657265645f6174d7ff1d6f2800697df5d7aa757064617465645f6174d7ff1d6f"
        "2800697df5d7"
    )
    assert restored(first) == SMALL


@pytest.mark.parametrize("number", [SCHEMA + 1, 99, 255])
def test_a_newer_form_is_refused_and_says_what_to_do(number: int) -> None:
    with pytest.raises(SchemaTooNew, match=rf"stored form {number}, this redrive knows {SCHEMA}; upgrade redrive"):
        restored(bytes([number]) + stored(SMALL)[1:])


@pytest.mark.parametrize(
    "data", [b"", b"\0", b"\0" + stored(SMALL)[1:], stored(SMALL)[:1], stored(SMALL)[:-1], stored(SMALL) + b"x"]
)
def test_damaged_bytes_are_called_corrupt(data: bytes) -> None:
    with pytest.raises(StoreCorrupt, match="a stored letter"):
        restored(data)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(data=st.data())
def test_a_flipped_bit_gives_a_letter_or_a_clear_error_and_never_another(data: st.DataObject) -> None:
    raw = bytearray(stored(FULL))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with contextlib.suppress(StoreCorrupt, SchemaTooNew):
        assert isinstance(restored(bytes(raw)), Letter)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.binary(max_size=200))
def test_bytes_of_another_kind_are_called_corrupt(noise: bytes) -> None:
    with pytest.raises((StoreCorrupt, SchemaTooNew)):
        restored(noise)


def test_nothing_is_ever_unpickled() -> None:
    # What Python's own serialiser makes of the text "orders", and a program that would print when it was loaded.
    for hostile in (b"\x80\x04\x95\n\x00\x00\x00\x00\x00\x00\x00\x8c\x06orders\x94.", b"cbuiltins\nprint\n(S'loaded'\ntR."):
        with pytest.raises((StoreCorrupt, SchemaTooNew)):
            restored(bytes([SCHEMA]) + hostile)


def test_the_id_is_a_digest_of_the_three_names_and_keeps_them_apart() -> None:
    assert letter_id("a", "b", "c") == letter_id("a", "b", "c")
    assert (
        len(
            {
                letter_id(*names)
                for names in (("a", "b", "c"), ("ab", "", "c"), ("a", "bc", ""), ("", "ab", "c"), ("\ud800", "b", "c"))
            }
        )
        == 5
    )
    id = letter_id("default", "orders", "1")
    assert (id.version, id.variant) == (8, RFC_4122)
