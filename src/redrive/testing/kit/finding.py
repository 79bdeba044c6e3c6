"""The kit for reading: `get`, `find`, `count`, `tally` and `groups`."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from redrive.model.category import Category
from redrive.model.cursor import cursor
from redrive.model.errors import BadCursor, Unsupported
from redrive.model.letter import Letter, RetryPlan
from redrive.model.query import (
    EVERYTHING,
    TALLIED,
    And,
    Field,
    GroupOrder,
    GroupPage,
    Is,
    Not,
    Op,
    Or,
    Order,
    Page,
    Query,
    matches,
)
from redrive.model.settlement import Completed, Released
from redrive.model.status import Status
from redrive.testing.kit.clerk import Clerk, Kit, needs, offers
from redrive.testing.kit.samples import START, attempt, failure, letter, nested

_HOUR = timedelta(hours=1)
_NOBODY = UUID(int=0)


def _varied() -> list[Letter]:
    """Letters that differ in every field that can be asked about, with absent values and extremes among them."""
    retry = RetryPlan(policy="linear", next_retry_at=START + _HOUR)
    return [
        letter("a", kind="order", key=b"k", tags=("red", "blue"), priority=1),
        letter("b", source="bills", kind="", key=b"", tags=("Red",), priority=-(2**63), retry=retry),
        letter("c", namespace="other", kind="ORDER", key=b"\0", tags=("x,y", 'q"uote', "new\nline"), priority=2**63 - 1),
        letter("d", at=START - _HOUR, failure=failure("httpx.TimeoutError", category=Category.NETWORK), expires_at=START),
        letter("e", at=START + _HOUR, failure=failure("TimeoutError", category=Category.TRANSIENT), key=b"\xff\xfe"),
        letter("f", failure=failure("a.b.Timeout", fingerprint="z"), generation=7, history=()),
        letter("g", failure=failure(""), history_dropped=40, expires_at=START + timedelta(microseconds=1)),
        letter(
            "中文", source="été", namespace="\U0001f4ee", tags=("\U0001f4ee", "é"), kind="\U0010ffff", status=Status.DISCARDED
        ),
        *(letter(status, status=status) for status in (Status.EXHAUSTED, Status.QUARANTINED, Status.REDRIVEN)),
        *(letter(status, status=status) for status in (Status.COMPLETED, Status.ARCHIVED)),
        letter("old", at=datetime.fromisoformat("1969-07-20T20:17:40.000001+00:00"), updated_at=START),
    ]


def _values(field: Field, letters: list[Letter]) -> list[Any]:
    read: dict[Field, Any] = {
        Field.ID: lambda one: [one.id],
        Field.NAMESPACE: lambda one: [one.namespace],
        Field.SOURCE: lambda one: [one.source],
        Field.SOURCE_ID: lambda one: [one.source_id],
        Field.STATUS: lambda one: [one.status.value],
        Field.CATEGORY: lambda one: [one.failure.category.value],
        Field.ERROR: lambda one: [one.failure.type, one.failure.type.rpartition(".")[2]],
        Field.GROUP: lambda one: [one.failure.fingerprint],
        Field.KEY: lambda one: [one.key],
        Field.KIND: lambda one: [one.kind],
        Field.POLICY: lambda one: [one.retry.policy],
        Field.TAG: lambda one: [*one.tags],
        Field.PRIORITY: lambda one: [one.priority],
        Field.ATTEMPTS: lambda one: [one.attempts],
        Field.GENERATION: lambda one: [one.generation],
        Field.DEAD_LETTERED_AT: lambda one: [one.dead_lettered_at],
        Field.UPDATED_AT: lambda one: [one.updated_at],
        Field.NEXT_RETRY_AT: lambda one: [one.retry.next_retry_at],
        Field.EXPIRES_AT: lambda one: [one.expires_at],
    }
    return list(dict.fromkeys(value for one in letters for value in read[field](one) if value is not None))


class Finding(Kit):
    """Readers see what is there, once, in order."""

    def test_letters_come_in_the_order_asked_for_with_gaps_where_there_is_none(self, store: Clerk) -> None:
        a, b = letter("a"), letter("b")
        store.put(a, b)
        assert store.get(b.id, _NOBODY, a.id, b.id) == [b, None, a, b]
        assert store.get() == []

    def test_a_letter_under_a_live_lease_is_retrying_wherever_it_is_seen(self, store: Clerk) -> None:
        store.put(letter("a", status=Status.EXHAUSTED), letter("b"))
        lease = store.take(letter("a").id, lease=_HOUR)
        retrying = Is(Field.STATUS, "retrying")
        store.wait(minutes=59)
        assert store.one(letter("a").id).status is Status.RETRYING
        assert {one.source_id: one.status for one in store.all()} == {"a": Status.RETRYING, "b": Status.PENDING}
        assert store.ids(retrying) == [letter("a").id]
        assert store.count(Is(Field.STATUS, "exhausted")) == 0
        assert store.tally(Field.STATUS) == {"retrying": 1, "pending": 1}
        store.wait(minutes=1)
        assert store.one(letter("a").id).status is Status.EXHAUSTED
        assert store.count(retrying) == 0
        assert store.tally(Field.STATUS) == {"exhausted": 1, "pending": 1}
        assert lease.until == store.now

    def test_a_released_letter_is_seen_as_it_was(self, store: Clerk) -> None:
        store.put(letter())
        store.end(store.take(letter().id), Released())
        assert store.one(letter().id) == letter()

    def test_a_letter_that_answers_a_question_in_two_ways_is_seen_once(self, store: Clerk) -> None:
        store.put(letter("both", tags=("red", "blue"), kind="order"), letter("one", tags=("red",)), letter("none"))
        either = Or((Is(Field.TAG, "red"), Is(Field.TAG, "blue"), Is(Field.KIND, "order")))
        assert sorted(one.source_id for one in store.all(either, limit=1)) == ["both", "one"]
        assert store.count(either) == sum(store.tally(Field.SOURCE, either).values()) == 2
        assert len(store.claim(what=either)) == len(store.claim(what=either, limit=5)) + 2

    @pytest.mark.parametrize("field", [Field.DEAD_LETTERED_AT, Field.UPDATED_AT, Field.NEXT_RETRY_AT, Field.EXPIRES_AT])
    def test_instants_a_microsecond_apart_are_told_apart(self, store: Clerk, field: Field) -> None:
        instants = {name: START + number * timedelta(microseconds=1) for number, name in enumerate("abc")}
        store.put(*(letter(name, at=at, updated_at=at, due=at, expires_at=at) for name, at in instants.items()))
        expected = {Op.EQ: "b", Op.LT: "a", Op.LE: "ab", Op.GT: "c", Op.GE: "bc"}
        for op, names in expected.items():
            assert sorted(one.source_id for one in store.all(Is(field, instants["b"], op))) == list(names), op

    @pytest.mark.parametrize("limit", [1, 2, 3, 7, 8, 100])
    @pytest.mark.parametrize("order", list(Order))
    def test_every_order_pages_through_all_letters_once(self, store: Clerk, order: Order, limit: int) -> None:
        offers(store, order)
        # Few instants, so that ids break ties; the order of changes is not the order of deaths.
        letters = [
            letter(str(number), at=START + (number % 3) * _HOUR, updated_at=START - (number % 4) * _HOUR) for number in range(8)
        ]
        store.put(*letters)

        def key(one: Letter) -> tuple[datetime, bytes]:
            return (one.updated_at if order is Order.UPDATED else one.dead_lettered_at), one.id.bytes

        expected = sorted(letters, key=key, reverse=order is not Order.OLDEST)
        assert store.all(order=order, limit=limit) == expected

    def test_the_last_page_says_that_it_is_the_last(self, store: Clerk) -> None:
        assert store.find().letters == ()
        assert store.find().next is None
        store.put(letter("a"), letter("b"))
        assert store.find(limit=2).next is None
        assert store.find(limit=1).next is not None

    @pytest.mark.parametrize("order", list(Order))
    def test_a_letter_that_stays_is_seen_once_whatever_arrives_or_leaves(self, store: Clerk, order: Order) -> None:
        offers(store, order)
        stays = [letter(f"stays {number}", at=START + number * _HOUR) for number in range(6)]
        leaves = [letter(f"leaves {number}", at=START + number * _HOUR) for number in range(6)]
        store.put(*stays, *leaves)
        seen: list[UUID] = []
        page = store.find(order=order, limit=2)
        for number in range(20):
            seen += [one.id for one in page.letters]
            if page.next is None:
                break
            store.purge(Is(Field.SOURCE_ID, f"leaves {number}"))
            store.purge(Is(Field.SOURCE_ID, f"leaves {5 - number}"))
            store.put(letter(f"early {number}", at=START - number * _HOUR), letter(f"late {number}", at=START + 9 * _HOUR))
            page = store.find(order=order, limit=2, after=page.next)
        assert page.next is None
        assert len(seen) == len(set(seen))
        assert set(seen) >= {one.id for one in stays}

    def test_a_page_goes_on_even_when_the_letter_it_ended_with_is_gone(self, store: Clerk) -> None:
        store.put(*(letter(str(number), at=START + number * _HOUR) for number in range(4)))
        page = store.find(order=Order.OLDEST, limit=2)
        store.purge(Is(Field.SOURCE_ID, "1"))
        rest = store.find(order=Order.OLDEST, after=page.next)
        assert [one.source_id for one in rest.letters] == ["2", "3"]

    def test_a_page_of_none_is_empty(self, store: Clerk) -> None:
        store.put(letter())
        assert store.find(limit=0).letters == ()

    def test_paging_keeps_to_the_question(self, store: Clerk) -> None:
        store.put(*(letter(str(number), source="odd" if number % 2 else "even") for number in range(9)))
        found = store.all(Or((Is(Field.SOURCE, "odd"), Is(Field.SOURCE_ID, "0"))), limit=2)
        assert sorted(one.source_id for one in found) == ["0", "1", "3", "5", "7"]

    def test_a_damaged_cursor_is_refused(self, store: Clerk) -> None:
        store.put(letter("a"), letter("b"))
        good = store.find(limit=1).next
        assert good is not None
        cut = [good[:length] for length in range(len(good))]
        for bad in [*cut, "é", "!", good + "!", good[:5] + "\n" + good[5:], good + good, "\0" * 40, "A" * 40]:
            with pytest.raises(BadCursor):
                store.find(after=bad)

    def test_a_forged_cursor_breaks_nothing(self, store: Clerk) -> None:
        store.put(letter("a"), letter("b"))
        for instant in (-(2**63), 2**63, 2**64 - 1):
            for last in (b"", b"\xff" * 40):
                assert _is_page_or_refusal(lambda key: store.find(after=cursor(key)), (Order.NEWEST.value, instant, last))
                if store.capabilities.groups:
                    for by in GroupOrder:
                        key = (f"groups by {by}", instant, last)
                        assert _is_page_or_refusal(lambda key: store.groups(order=by, after=cursor(key)), key)  # noqa: B023

    @pytest.mark.parametrize("order", list(Order))
    def test_a_cursor_of_another_listing_is_refused(self, store: Clerk, order: Order) -> None:
        offers(store, order)
        store.put(letter("a"), letter("b"))
        after = store.find(order=order, limit=1).next
        assert after is not None
        for other in set(Order) - {order}:
            with pytest.raises((BadCursor, Unsupported) if other is Order.NEAREST else BadCursor):
                store.find(order=other, after=after)
        if store.capabilities.groups:
            with pytest.raises(BadCursor):
                store.groups(after=after)

    @pytest.mark.parametrize("field", list(Field))
    def test_every_field_can_be_compared_in_every_way(self, store: Clerk, field: Field) -> None:
        letters = _varied()
        store.put(*letters)
        values = _values(field, letters)
        assert values
        for value in values:
            for op in Op:
                query = Is(field, value, op)
                assert _found(store, query) == _expected(letters, query), query
                assert _found(store, Not(query)) == _expected(letters, Not(query)), Not(query)

    @pytest.mark.parametrize("op", list(Op))
    def test_a_letter_without_the_field_matches_no_comparison(self, store: Clerk, op: Op) -> None:
        store.put(letter())
        values: dict[Field, Any] = {
            Field.KEY: b"k", Field.KIND: "k", Field.TAG: "t", Field.NEXT_RETRY_AT: START, Field.EXPIRES_AT: START,
        }  # fmt: skip
        for field, value in values.items():
            assert store.count(Is(field, value, op)) == 0
            assert store.count(Not(Is(field, value, op))) == 1
            assert store.count(And((Not(Is(field, value, op)), EVERYTHING))) == 1
            assert store.count(Not(Or((Is(field, value, op), Or())))) == 1

    @pytest.mark.parametrize("op", list(Op))
    @pytest.mark.parametrize("status", list(Status))
    def test_a_status_is_compared_as_it_is_seen(self, store: Clerk, status: Status, op: Op) -> None:
        store.put(*_varied())
        store.claim(what=(letter("a").id, letter(Status.EXHAUSTED).id))
        query = Is(Field.STATUS, status.value, op)
        assert _found(store, query) == _expected(store.all(), query)

    def test_an_error_is_named_by_its_last_name_or_in_full(self, store: Clerk) -> None:
        names = ["builtins.TimeoutError", "httpx.TimeoutError", "TimeoutError", "x.NotTimeoutError"]
        store.put(*(letter(name, failure=failure(name)) for name in names))

        def found(value: str) -> set[str]:
            return {one.source_id for one in store.all(Is(Field.ERROR, value))}

        assert found("TimeoutError") == set(names[:3])
        assert found("httpx.TimeoutError") == {"httpx.TimeoutError"}
        assert found("timeouterror") == set()

    def test_text_is_compared_exactly(self, store: Clerk) -> None:
        store.put(letter("1", kind="Straße"), letter("2", kind="a%"), letter("3", kind="a_"), letter("4", kind="1"))
        assert store.count(Is(Field.KIND, "STRASSE")) == 0
        assert store.count(Is(Field.KIND, "straße")) == 0
        assert store.count(Is(Field.KIND, "a%")) == 1
        assert store.count(Is(Field.KIND, "a_")) == 1
        assert store.count(Is(Field.KIND, "a")) == 0
        assert store.count(Is(Field.KIND, "' OR 1=1 --")) == 0
        assert store.count(Is(Field.TAG, "' OR 1=1 --")) == 0

    def test_questions_combine(self, store: Clerk) -> None:
        letters = _varied()
        store.put(*letters)
        red, order = Is(Field.TAG, "red"), Is(Field.KIND, "order")
        late = Is(Field.DEAD_LETTERED_AT, START, Op.GT)
        combined: list[Query] = [
            And(), Or(), Not(And()), Not(Or()), And((red,)), Or((red,)), And((red, order)), Or((red, late)),
            And((Or((red, late)), Not(order))), Not(And((red, Not(order)))), Or((And(), Or())), And((Or(), And())),
            And((Not(red), Not(late), Or((order, Is(Field.STATUS, "archived"))))), nested(10, late),
        ]  # fmt: skip
        for query in combined:
            assert _found(store, query) == _expected(letters, query), query

    def test_a_question_of_many_parts_is_answered(self, store: Clerk) -> None:
        store.put(*(letter(str(number)) for number in range(5)))
        many = tuple(Is(Field.SOURCE_ID, str(number)) for number in range(3, 3000))
        assert {one.source_id for one in store.all(Or(many))} == {"3", "4"}
        assert store.count(And(tuple(map(Not, many)))) == 3

    def test_numbers_beyond_what_engines_hold_can_be_asked_for(self, store: Clerk) -> None:
        store.put(letter(priority=5))
        for field in (Field.PRIORITY, Field.ATTEMPTS, Field.GENERATION):
            for huge in (2**63, 2**70):
                assert store.count(Is(field, huge, Op.LT)) == 1
                assert store.count(Is(field, huge)) == 0
                assert store.count(Is(field, -huge - 1, Op.GT)) == 1

    def test_counts_are_those_of_what_is_found(self, store: Clerk) -> None:
        letters = _varied()
        store.put(*letters)
        assert store.count() == len(letters)
        store.purge(Is(Field.STATUS, "archived"))
        store.end(store.take(letter("a").id), Completed())
        assert store.count() == len(letters) - 1
        assert store.count(Is(Field.STATUS, "completed")) == 2

    @pytest.mark.parametrize("by", sorted(TALLIED))
    def test_a_tally_counts_each_value(self, store: Clerk, by: Field) -> None:
        letters = _varied()
        store.put(*letters)
        for query in (EVERYTHING, Is(Field.DEAD_LETTERED_AT, START), Not(Is(Field.SOURCE, "orders")), Or()):
            among = [one for one in letters if matches(query, one)]
            expected = {value: sum(value in _values(by, [one])[:1] for one in among) for value in _values(by, among)}
            assert store.tally(by, query) == {value: count for value, count in expected.items() if count}

    @pytest.mark.parametrize("by", sorted(set(Field) - TALLIED))
    def test_what_cannot_be_tallied_is_refused(self, store: Clerk, by: Field) -> None:
        with pytest.raises(Unsupported):
            store.tally(by)

    def test_groups_are_claimed_or_refused(self, store: Clerk) -> None:
        if store.capabilities.groups:
            assert store.groups().groups == ()
        else:
            with pytest.raises(Unsupported):
                store.groups()

    def test_a_group_tells_how_often_since_when_and_what_its_latest_letter_says(self, store: Clerk) -> None:
        needs(store, "groups")
        same = "f" * 16
        store.put(
            letter("1", at=START, failure=failure("a.E", "first", fingerprint=same)),
            letter("2", at=START + 2 * _HOUR, failure=failure("b.E", "last", fingerprint=same, category=Category.NETWORK)),
            letter("3", at=START + _HOUR, failure=failure("a.E", "middle", fingerprint=same)),
            letter("4", at=START + 3 * _HOUR, failure=failure("a.E", "other", fingerprint="other")),
        )
        other, group = store.groups().groups
        assert other.fingerprint == "other"
        assert (group.fingerprint, group.count) == (same, 3)
        assert (group.error, group.message, group.category) == ("b.E", "last", Category.NETWORK)
        assert (group.first_seen, group.last_seen) == (START, START + 2 * _HOUR)

    def test_a_group_speaks_only_of_the_letters_that_match(self, store: Clerk) -> None:
        needs(store, "groups")
        for name in "abcdefgh":  # whichever id is the highest: the latest among all is not the latest that matches
            store.put(letter(name, source=f"source {name}", failure=failure(message=f"of {name}", fingerprint="same")))
        for name in "abcdefgh":
            (group,) = store.groups(Is(Field.SOURCE, f"source {name}")).groups
            assert (group.count, group.message) == (1, f"of {name}")
        assert store.groups(Or()).groups == ()

    @pytest.mark.parametrize("limit", [1, 2, 5, 6])
    def test_groups_are_paged_the_last_seen_first(self, store: Clerk, limit: int) -> None:
        needs(store, "groups")
        for number in range(6):
            for again in range(2):
                at = START + (number % 3) * _HOUR - again * _HOUR
                store.put(letter(f"{number}/{again}", at=at, failure=failure(fingerprint=f"f{number}é")))
        found = store.all_groups(limit=limit)
        assert [group.fingerprint for group in found] == ["f5é", "f2é", "f4é", "f1é", "f3é", "f0é"]
        assert all(group.count == 2 for group in found)

    def test_a_letter_that_fails_otherwise_moves_to_another_group(self, store: Clerk) -> None:
        needs(store, "groups")
        store.put(letter(failure=failure(fingerprint="one")))
        store.put(letter(failed=2, failure=failure(fingerprint="two")))
        assert [group.fingerprint for group in store.groups().groups] == ["two"]
        assert store.tally(Field.GROUP) == {"two": 1}

    def test_reading_changes_nothing(self, store: Clerk) -> None:
        store.put(letter(due=START, history=(attempt("x"),)))
        before = store.all()
        store.count()
        store.tally(Field.STATUS)
        store.check()
        assert store.all() == before
        assert len(store.claim()) == 1


def _found(store: Clerk, query: Query) -> tuple[set[str], int]:
    """What the store finds, and how many it counts."""
    return {one.source_id for one in store.all(query)}, store.count(query)


def _expected(letters: list[Letter], query: Query) -> tuple[set[str], int]:
    """What the model's own reading of the question finds, and how many."""
    found = {one.source_id for one in letters if matches(query, one)}
    return found, len(found)


def _is_page_or_refusal(ask: Any, key: tuple[str, int, bytes]) -> bool:
    try:
        return isinstance(ask(key), Page | GroupPage)
    except BadCursor:
        return True
