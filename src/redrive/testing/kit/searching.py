"""Looking for words, and into documents."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.backends.memory.letters import MemoryLetters
from redrive.model.amendment import Amendment
from redrive.model.errors import Unsupported
from redrive.model.letter import Letter
from redrive.model.query import And, At, Field, Has, Is, JsonScalar, Not, Op, Or, Order, Place, Query, Text, matches
from redrive.model.settlement import Failed
from redrive.model.texts import Where
from redrive.ports.inline import drive
from redrive.testing.kit import strategies
from redrive.testing.kit.clerk import Clerk, Kit, needs
from redrive.testing.kit.samples import START, attempt, failure, letter
from redrive.testing.kit.strategies import effort

_SAID = ["a heron", "a heron in common reeds", "common reeds", ""]
_ASKED: list[Query] = [Text(phrase, where) for phrase in ("heron", "common reeds", "wren") for where in Where]
_ASKED += [Is(Field.SOURCE, "bills"), Is(Field.GROUP, "group 1"), Is(Field.SOURCE_ID, "03")]
_TOTAL = At(Place.BODY, ("order", "total"), 100, Op.GT)


class Searching(Kit):
    """One tokeniser decides what a word is, and one interpreter what a comparison means; stores only agree."""

    @pytest.mark.parametrize(
        ("phrase", "is_found"),
        [
            ("refused", True),
            ("Connection REFUSED", True),
            ("db.internal", True),
            ("internal 5432", True),
            ("TimeoutError", True),
            ("refused connection", False),
            ("refuse", False),
            ("connection to", False),
            ("STRASSE", True),
            ("%", False),
            ("_", False),
        ],
    )
    def test_whole_words_are_found_in_their_order_in_any_case(self, store: Clerk, phrase: str, is_found: bool) -> None:
        told = failure("builtins.TimeoutError", "connection refused: db.internal:5432 (100%, Straße)")
        store.put(letter("told", failure=told), letter("other", failure=failure("KeyError", "'nothing'")))
        assert [one.source_id for one in store.all(Text(phrase))] == (["told"] if is_found else [])
        assert store.count(Text(phrase)) == is_found
        assert store.count(Not(Text(phrase))) == 2 - is_found

    def test_a_letter_is_found_by_the_words_of_its_latest_failure(self, store: Clerk) -> None:
        store.put(letter(due=START, failure=failure("KeyError", "first words")))
        (claimed,) = store.claim()
        later = Failed(attempt=attempt("2"), failure=failure("OSError", "second words"), next_retry_at=START)
        store.end(claimed.lease, later)
        assert (store.count(Text("first words")), store.count(Text("second words"))) == (0, 1)
        assert len(store.claim(what=Text("second"))) == 1

    @pytest.mark.parametrize(
        ("phrase", "where", "expected"),
        [
            ("acme corp", Where.BODY, "a"),
            ("café", Where.BODY, "a"),
            ("total 12", Where.BODY, "a"),
            ("plain text", Where.BODY, "b"),
            ("acme", Where.MESSAGE, ""),
            ("acme", Where.TRACEBACK, "b"),
            ("client py", Where.TRACEBACK, "b"),
            ("acme", Where.ANYWHERE, "ab"),
            ("refused", Where.ANYWHERE, "ab"),
            ("refused", Where.BODY, ""),
            ("refused acme", Where.ANYWHERE, ""),
            ("nowhere", Where.ANYWHERE, ""),
        ],
    )
    def test_words_are_found_where_they_are_looked_for(self, store: Clerk, phrase: str, where: Where, expected: str) -> None:
        raised = 'Traceback (most recent call last):\n  File "acme/client.py", line 3, in send\nOSError: connection'
        store.put(
            letter(
                "a", body=b'{"customer": "Acme Corp", "note": "caf\\u00e9\\nbar", "total": 12}', failure=failure("E", "refused")
            ),
            letter("b", body=b"plain text \xff \xc3", failure=failure("E", "refused", traceback=raised)),
            letter("c", body=b"", failure=failure("E", "otherwise")),
        )
        assert store.find(Text("refused")).unsearched == 0
        store.tidy_all()
        query = Text(phrase, where)
        assert "".join(sorted(one.source_id for one in store.all(query, limit=1))) == expected
        assert store.count(query) == len(expected)
        assert store.count(Not(query)) == 3 - len(expected)
        assert store.count(And((query, Is(Field.SOURCE_ID, "a")))) == ("a" in expected)
        assert store.find(query).unsearched == 0

    def test_any_question_about_words_means_the_same_everywhere(self, store: Clerk) -> None:
        letters = [
            letter(
                f"{number:02}",
                source=("orders", "bills")[number % 3 == 0],
                failure=failure("E", _SAID[number % 3], traceback=_SAID[number % 4], fingerprint=f"group {number % 5}"),
                body=_SAID[number % 7 % 4].encode(),
            )
            for number in range(24)
        ]
        store.put(*letters)
        store.tidy_all()
        store.claim(what=(letters[0].id,))

        @effort(15)
        @given(strategies.nested(st.sampled_from(_ASKED)), st.sampled_from([Order.NEWEST, Order.OLDEST, Order.UPDATED]))
        def means_the_same(query: Query, order: Order) -> None:
            wanted = [one.source_id for one in letters if matches(query, one)]
            assert sorted(one.source_id for one in store.all(query, order=order, limit=10)) == wanted
            assert store.count(query) == len(wanted)
            if store.capabilities.groups:
                assert sum(group.count for group in store.all_groups(query, limit=4)) == len(wanted)

        means_the_same()

    @pytest.mark.parametrize("length", [64, 65, 3000, 6000, 8000])
    @pytest.mark.parametrize("alphabet", ["0123456789abcdef", "αβγδεζηθικλμνξοπ", "𐐨𐐩𐐪𐐫𐐬𐐭𐐮𐐯"], ids=["hex", "greek", "deseret"])
    def test_a_word_of_any_length_is_found_as_a_whole(self, store: Clerk, alphabet: str, length: int) -> None:
        dice = random.Random(length)
        begins = "".join(dice.choices(alphabet, k=63))
        word, other = (begins + following + "".join(dice.choices(alphabet, k=length - 64)) for following in alphabet[:2])
        told = failure("E", f"bad {word}")
        store.put(
            letter("message", failure=told),
            letter("traceback", failure=failure("E", traceback=f"bad {word} end")),
            letter("body", body=f'{{"bad": "{word}", "then": 1}}'.encode()),
            letter("settled", due=START),
            letter("beginning", failure=failure("E", f"bad {begins}", traceback=begins), body=begins.encode()),
        )
        (claimed,) = store.claim()
        store.end(claimed.lease, Failed(attempt=attempt("2"), failure=told))
        store.tidy_all()
        for phrase in (word, word.upper(), f"bad {word}"):
            found = {where: sorted(one.source_id for one in store.all(Text(phrase, where))) for where in Where}
            assert found == {
                Where.MESSAGE: ["message", "settled"],
                Where.TRACEBACK: ["traceback"],
                Where.BODY: ["body"],
                Where.ANYWHERE: ["body", "message", "settled", "traceback"],
            }
        for phrase in (other, f"bad {other}", word[1:], f"{word} bad"):
            assert store.count(Text(phrase, Where.ANYWHERE)) == 0
        assert [one.source_id for one in store.all(Text(begins, Where.ANYWHERE))] == ["beginning"]

    def test_a_word_that_is_longer_than_what_is_searched_keeps_nothing_else_from_being_found(self, store: Clerk) -> None:
        dump = "".join(random.Random(1).choices("0123456789abcdef", k=30_000))
        store.put(
            letter(
                "dumps", body=f"first {dump}".encode(), failure=failure("E", f"first {dump}"[:8192], traceback=f"{dump} last")
            ),
            letter("next", body=b"then", failure=failure("E", traceback="then")),
        )
        store.tidy_all()
        for phrase, where, expected in (
            ("first", Where.MESSAGE, "dumps"),
            ("first", Where.BODY, "dumps"),
            ("last", Where.TRACEBACK, "dumps"),
            ("then", Where.BODY, "next"),
            ("then", Where.TRACEBACK, "next"),
        ):
            page = store.find(Text(phrase, where))
            assert ([one.source_id for one in page.letters], page.unsearched) == ([expected], 0)

    def test_a_long_word_is_as_far_as_it_is_long(self, store: Clerk) -> None:
        needs(store, "nearest")
        long, longer = "ab" * 300, "cd" * 400
        messages = [f"bad {long} {long}", f"bad {longer}", "bad " * 310, f"{longer} {longer} bad", "bad"]
        store.put(*(letter(str(number), failure=failure("E", message)) for number, message in enumerate(messages)))
        found = [one.source_id for one in store.all(Text("bad"), order=Order.NEAREST, limit=1)]
        assert found == ["4", "1", "0", "2", "3"]

    def test_a_page_tells_how_many_letters_could_not_be_searched_yet(self, store: Clerk) -> None:
        store.put(*(letter(str(number), body=b"needle") for number in range(5)))
        query = Text("needle", Where.BODY)
        page = store.find(query)
        assert len(page.letters) + page.unsearched == 5
        left = store.tidy(2).texts
        page = store.find(query)
        assert page.unsearched == left
        assert len(page.letters) + left == 5
        store.tidy_all()
        assert (len(store.all(query)), store.find(query).unsearched) == (5, 0)

    def test_a_letter_is_found_by_what_it_says_now(self, store: Clerk) -> None:
        store.put(letter(due=START, body=b"first", failure=failure(traceback="early")), letter("gone", body=b"first"))
        store.tidy_all()
        store.amend(Amendment(id=letter().id, body=b"second"))
        store.purge(Is(Field.SOURCE_ID, "gone"))
        store.tidy_all()
        assert (store.count(Text("first", Where.BODY)), store.count(Text("second", Where.BODY))) == (0, 1)
        (claimed,) = store.claim()
        store.end(claimed.lease, Failed(attempt=attempt("2"), failure=failure(traceback="late"), next_retry_at=START))
        store.tidy_all()
        assert (store.count(Text("early", Where.TRACEBACK)), store.count(Text("late", Where.ANYWHERE))) == (0, 1)
        assert store.count(Text("second", Where.BODY)) == 1

    @pytest.mark.parametrize("limit", [1, 2, 100])
    def test_the_nearest_come_first(self, store: Clerk, limit: int) -> None:
        needs(store, "nearest")

        def told(name: str, message: str, *, hours: int = 0, **changes: str) -> Letter:
            return letter(
                name,
                at=START + timedelta(hours=hours),
                body=changes.pop("body", "").encode(),
                failure=failure("E", message, **changes),
            )

        store.put(
            told("long", "the disk is full since noon and nobody has looked at it"),
            told("short", "disk full; disk full"),
            told("same, older", "is disk full", hours=-1),
            told("same, newer", "no disk full", hours=1),
            told("trace", "something", traceback="disk full", hours=5),
            told("body", "something", body="disk full", hours=9),
            told("other", "something", hours=10),
        )
        store.tidy_all()
        query = Or((Text("disk full", Where.ANYWHERE), Text("disk is full"), Is(Field.SOURCE_ID, "other")))
        found = [one.source_id for one in store.all(query, order=Order.NEAREST, limit=limit)]
        assert found == ["same, newer", "same, older", "short", "long", "trace", "body", "other"]

    def test_pages_of_the_nearest_end_though_texts_are_not_indexed_yet(self, store: Clerk) -> None:
        """A letter says where it has the words; the store may not know it yet."""
        needs(store, "nearest")
        store.put(*(letter(str(number), body=b"needle") for number in range(5)))
        query = Or((Text("needle", Where.BODY), Is(Field.SOURCE, letter().source)))
        seen: list[str] = []
        after: str | None = None
        for _ in range(3):
            page = store.find(query, order=Order.NEAREST, limit=2, after=after)
            seen += [one.source_id for one in page.letters]
            after = page.next
        assert after is None
        assert sorted(seen) == list("01234")

    def test_a_store_that_cannot_tell_what_is_nearest_says_so(self, store: Clerk) -> None:
        store.put(letter())
        if store.capabilities.nearest:
            assert store.ids(order=Order.NEAREST) == [letter().id]
        else:
            with pytest.raises(Unsupported):
                store.find(Text("answer"), order=Order.NEAREST)

    @pytest.mark.parametrize("field", [Field.KEY, Field.KIND, Field.TAG, Field.NEXT_RETRY_AT, Field.EXPIRES_AT])
    def test_having_a_field_is_not_the_same_as_its_being_empty(self, store: Clerk, field: Field) -> None:
        store.put(letter("has", key=b"", kind="", tags=("",), due=START, expires_at=START), letter("has not"))
        assert [one.source_id for one in store.all(Has(field))] == ["has"]
        assert [one.source_id for one in store.all(Not(Has(field)))] == ["has not"]
        store.amend(Amendment(id=letter("has not").id, priority=1))
        assert store.count(Has(field)) == 1

    def test_a_store_that_cannot_look_into_documents_says_which_part_it_cannot_do(self, store: Clerk) -> None:
        store.put(letter())
        if store.capabilities.documents:
            assert store.count(_TOTAL) == 0
            return
        for query in (_TOTAL, Not(_TOTAL), And((Is(Field.SOURCE, "orders"), Or((Text("x"), _TOTAL))))):
            with pytest.raises(Unsupported, match=r"body\.order\.total>100"):
                store.count(query)

    @pytest.mark.parametrize(
        ("path", "value", "op", "expected"),
        [
            (("order", "total"), 100, Op.GT, "b"),
            (("order", "total"), 100.0, Op.EQ, "a"),
            (("order", "total"), "100", Op.EQ, ""),
            (("order", "items", 1, "sku"), "x2", Op.EQ, "a"),
            (("order", "items", 2), 0, Op.GE, ""),
            (("order", "gift"), True, Op.EQ, "b"),
            (("order", "gift"), 1, Op.EQ, ""),
            (("order", "note"), None, Op.EQ, "b"),
            (("order",), "x", Op.GT, ""),
            (("odd name", "ß"), "z", Op.LT, "a"),
        ],
    )
    def test_bodies_are_looked_into(
        self, store: Clerk, path: tuple[str | int, ...], value: JsonScalar, op: Op, expected: str
    ) -> None:
        needs(store, "documents")
        store.put(
            letter(
                "a", body=b'{"order": {"total": 100, "items": [{"sku": "x1"}, {"sku": "x2"}]}, "odd name": {"\xc3\x9f": "y"}}'
            ),
            letter("b", body=b'{"order": {"total": 250.5, "gift": true, "note": null}}'),
            letter("no document", body=b"\xff{"),
        )
        query = At(Place.BODY, path, value, op)
        assert "".join(sorted(one.source_id for one in store.all(query, limit=1))) == expected
        assert store.count(query) == sum(store.tally(Field.SOURCE, query).values()) == len(expected)

    def test_documents_are_compared_as_the_oracle_does(self, store: Clerk) -> None:
        needs(store, "documents")

        @effort(40)
        @given(
            st.lists(strategies.letters_with_documents(), min_size=1, max_size=5), st.lists(strategies.documents(), min_size=3)
        )
        def alike(letters: list[Letter], questions: list[Query]) -> None:
            store.purge()
            oracle = Clerk(MemoryLetters(), drive)
            store.put(*letters)
            oracle.put(*letters)
            for question in questions:
                assert store.ids(question) == oracle.ids(question), question
                assert store.count(Not(question)) == oracle.count(Not(question)), question

        alike()
