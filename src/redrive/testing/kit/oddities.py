"""The kit for odd data: what comes in comes out, bit by bit, now and after the store was opened again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from redrive.model.amendment import Amended, Amendment
from redrive.model.arrival import Held
from redrive.model.errors import NotHeld, RedriveError
from redrive.model.letter import Letter, Origin
from redrive.model.query import Field, Is
from redrive.model.settlement import Completed, Released, Settled
from redrive.model.status import Status
from redrive.ports.inline import drive
from redrive.testing.kit import strategies
from redrive.testing.kit.clerk import Clerk, Kit, Opener, Run, needs
from redrive.testing.kit.samples import START, attempt, failure, is_chaos, letter
from redrive.testing.kit.strategies import effort

_HOUR = timedelta(hours=1)
_EVERY_BYTE = bytes(range(256))
_HALF = "half a pair: \ud83d"
_TEXTS = [
    "",
    " ",
    "a,b",
    "it's",
    'she said "no"',
    "two\nlines\r\n",
    "\ttab",
    "back\\slash",
    "{}[]",
    "null",
    "12",
    "--",
    "/*",
    "é",
    "e\u0301",
    "中文",
    "עברית",
    "\u202eright to left",
    "\ufeffmark",
    "\ufffd\uffff",
    "\U0001f4ee",
    "\U0010ffff",
    "\x7f\x01",
    "nul\0inside",
    "x" * 70_000,
    "".join(map(str, range(10_000))),  # what no engine makes small
]


class Oddities(Kit):
    """Nothing is changed on its way through a store."""

    @pytest.mark.parametrize(
        "body", [b"", b"\0", b"\0" * 1000, _EVERY_BYTE * 3, b"\xff\xfe\x80", bytes(1 << 20), _EVERY_BYTE * 4096]
    )
    def test_any_body_comes_back_as_it_was(self, store: Clerk, body: bytes) -> None:
        one = letter(body=body, key=body[:300], headers=(("h", body[:300]), ("h", b""), ("", b"\0")))
        store.put(one, letter("next"))
        assert store.get(letter("next").id, one.id) == [letter("next"), one]
        assert store.count(Is(Field.KEY, body[:300])) == 1
        (claimed,) = store.claim(what=(one.id,))
        assert claimed.letter.body == body
        store.end(claimed.lease, Released())
        assert sorted(store.purge(), key=lambda each: each.source_id) == [one, letter("next")]

    @pytest.mark.skipif(not is_chaos(), reason="writes a gigabyte; set REDRIVE_CHAOS")
    def test_a_page_of_large_bodies_is_read_claimed_and_purged(self, store: Clerk) -> None:
        large, count = bytes(16 << 20), 64
        for number in range(count):
            store.put(letter(str(number), body=large, due=START))
        assert len(store.find().letters) == count
        for claimed in store.claim():
            store.end(claimed.lease, Released())
        assert len(store.purge()) == count

    @pytest.mark.parametrize("text", _TEXTS, ids=range(len(_TEXTS)))
    def test_any_text_comes_back_as_it_was_and_is_found(self, store: Clerk, text: str) -> None:
        odd = letter(
            text,
            source=text,
            namespace=text,
            failure=failure(text, text, fingerprint=text, traceback=text),
            content_type=text,
            headers=((text, text.encode()),),
            target=text,
            kind=text,
            reference=text,
            origin=Origin(topic=text, node=text, reply_to=text, request_id=text, trace=text),
            history=(attempt("1", error=text, message=text),),
            tags=("before", text, "after"),
            depends_on=(text, text),
            metadata={text: {text: [text]}},
        )
        decoy = letter("decoy", kind="decoy", tags=("decoy",), failure=failure("decoy"))
        assert store.put(odd, decoy) == [Held.NEW, Held.NEW]
        assert store.one(odd.id) == odd
        for field in (Field.SOURCE_ID, Field.SOURCE, Field.NAMESPACE, Field.KIND, Field.TAG, Field.GROUP, Field.ERROR):
            assert store.ids(Is(field, text)) == [odd.id], field
        assert store.tally(Field.SOURCE) == {text: 1, "orders": 1}
        (claimed,) = store.claim(owner=text, what=Is(Field.NAMESPACE, text))
        assert claimed.lease.owner == text
        store.wait(hours=1)
        assert store.amend(Amendment(id=odd.id, tags=(text,), metadata={"m": text})) == [Amended.DONE]
        assert (store.one(odd.id).tags, store.one(odd.id).metadata) == ((text,), {"m": text})
        if store.capabilities.groups:
            assert {group.fingerprint for group in store.all_groups(limit=1)} == {text, "decoy"}

    @pytest.mark.parametrize("where", ["source", "reference", "tags", "metadata", "depends_on"])
    def test_a_text_that_is_none_is_refused_by_name_and_nothing_is_changed(self, store: Clerk, where: str) -> None:
        good = letter("good", tags=("kept",))
        store.put(good)
        values: dict[str, Any] = {"tags": (_HALF,), "depends_on": (_HALF,), "metadata": {"a": [_HALF]}}
        bad = replace(letter("bad"), **{where: values.get(where, _HALF)})
        with pytest.raises(NotHeld, match=str(bad.id)):
            store.put(letter("beside"), bad)
        if where in {"tags", "metadata"}:
            with pytest.raises(NotHeld, match=str(good.id)):
                store.amend(Amendment(id=good.id, **{where: values[where]}))
        assert store.all() == [good]
        assert store.put(letter("beside")) == [Held.NEW]

    def test_a_key_can_be_empty_and_is_then_not_absent(self, store: Clerk) -> None:
        store.put(letter("empty", key=b"", kind=""), letter("absent"))
        assert [one.source_id for one in store.all(Is(Field.KEY, b""))] == ["empty"]
        assert [one.source_id for one in store.all(Is(Field.KIND, ""))] == ["empty"]
        assert (store.one(letter("empty").id).key, store.one(letter("absent").id).key) == (b"", None)

    def test_nested_metadata_comes_back_as_it_was(self, store: Clerk) -> None:
        details: dict[str, Any] = {
            "none": None, "yes": True, "no": False, "zero": 0, "minus": -1, "big": 2**63 - 1, "small": -(2**63),
            "float": 0.1, "whole float": 1.0, "tiny": 5e-324, "list": [[], [[]], {}], "": {"": {"": ""}},
            "deep": {"a": [{"b": [{"c": [1, 2.5, "x", None]}]}]},
        }  # fmt: skip
        store.put(letter(metadata=details))
        held = store.one(letter().id).metadata
        assert held == details
        assert [type(held[name]) for name in ("yes", "zero", "whole float")] == [bool, int, float]

    def test_instants_keep_their_microseconds_wherever_they_lie(self, store: Clerk) -> None:
        for number, at in enumerate(
            [
                datetime(1, 1, 1, tzinfo=UTC),
                datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
                datetime(1970, 1, 1, tzinfo=UTC),
                datetime(2038, 1, 19, 3, 14, 8, 1, tzinfo=UTC),
                datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
                datetime(2025, 6, 1, 12, 0, 0, 123_456, tzinfo=timezone(timedelta(hours=5, minutes=45))),
            ]
        ):
            one = letter(
                str(number), at=at, due=at, expires_at=at, history=(attempt("a", at=at, took=timedelta(microseconds=1)),)
            )
            store.put(one)
            assert store.one(one.id) == one
            assert store.ids(Is(Field.DEAD_LETTERED_AT, at)) == [one.id]
            assert store.ids(Is(Field.EXPIRES_AT, at)) == [one.id]

    def test_every_letter_comes_back_equal_field_by_field(self, store: Clerk) -> None:
        @effort(30)
        @given(st.lists(strategies.letters(), min_size=1, max_size=4, unique_by=lambda one: one.id))
        def comes_back(letters: list[Letter]) -> None:
            store.purge()
            assert store.put(*letters) == [Held.NEW] * len(letters)
            assert store.get(*(one.id for one in letters)) == letters
            assert sorted(store.all(limit=2), key=_id) == sorted(letters, key=_id)

        comes_back()

    def test_verbs_of_an_inline_store_finish_without_suspending(self, store: Clerk) -> None:
        needs(store, "inline")
        inline = Clerk(store.store, drive)
        inline.check()
        assert inline.put(letter(due=START)) == [Held.NEW]
        assert inline.get(letter().id) == list(inline.find().letters)
        assert inline.count() == sum(inline.tally(Field.STATUS).values())
        if store.capabilities.groups:
            assert len(inline.groups().groups) == 1
        (claimed,) = inline.claim()
        assert inline.extend(claimed.lease, by=_HOUR) != [None]
        assert inline.amend(Amendment(id=letter().id, priority=1)) == [Amended.LEASED]
        assert inline.end(claimed.lease, Released()) is Settled.DONE
        assert inline.purge() == [letter(due=START)]
        inline.close()

    def test_a_closed_store_stays_closed_and_says_so(self, store: Clerk) -> None:
        store.put(letter())
        store.close()
        store.close()
        if store.capabilities.durable:
            with pytest.raises(RedriveError):
                store.put(letter("2"))
            with pytest.raises(RedriveError):
                store.count()
            with pytest.raises(RedriveError):
                store.check()

    def test_a_store_that_is_ready_says_so(self, store: Clerk) -> None:
        store.put(letter())
        store.check()
        assert store.all() == [letter()]

    def test_a_durable_store_gives_everything_back_when_it_is_opened_again(
        self, store: Clerk, opener: Opener, place: Path, run: Run
    ) -> None:
        needs(store, "durable")
        store.put(*(letter(name, due=START - _HOUR, body=_EVERY_BYTE, metadata={"a": [1]}) for name in ("a", "b", "c", "d")))
        kept, lost, _ = (
            store.take(letter(name).id, lease=lease) for name, lease in zip("abc", (3 * _HOUR, _HOUR, _HOUR), strict=True)
        )
        store.amend(Amendment(id=letter("d").id, priority=4, body=b"new"))
        before = store.all()
        groups = store.all_groups() if store.capabilities.groups else []
        store.close()

        again = Clerk(opener(place), run, store.now)
        assert again.all() == before
        assert again.tally(Field.STATUS) == {"retrying": 3, "pending": 1}
        assert groups == (again.all_groups() if again.capabilities.groups else [])
        assert again.put(letter("a")) == [Held.DUPLICATE]
        assert [one.letter.source_id for one in again.claim(owner="bob", lease=_HOUR)] == ["d"]
        again.wait(hours=1)
        assert again.end(lost, Completed()) is Settled.LEASE_LOST
        assert again.end(kept, Completed()) is Settled.DONE
        newer = again.take(letter("b").id, owner="bob")
        assert newer.token > lost.token
        again.close()

    def test_one_store_closing_leaves_another_on_the_same_data_alone(
        self, store: Clerk, opener: Opener, place: Path, run: Run
    ) -> None:
        needs(store, "shared")
        other = Clerk(opener(place), run)
        store.put(letter("1"))
        assert other.put(letter("1"), letter("2")) == [Held.DUPLICATE, Held.NEW]
        lease = other.take(letter("1").id)
        assert store.claim(what=(letter("1").id,)) == []
        store.close()
        assert other.one(letter("1").id).status is Status.RETRYING
        assert other.end(lease, Completed()) is Settled.DONE
        other.close()


def _id(one: Letter) -> bytes:
    return one.id.bytes
