"""Which questions the counts answer, and what they add up."""

from __future__ import annotations

import pytest

from redrive.model.census import Scope, scopes_of
from redrive.model.query import EVERYTHING, NOTHING, And, Field, Is, Not, Or, Query, Text

PENDING, EXHAUSTED = Is(Field.STATUS, "pending"), Is(Field.STATUS, "exhausted")
ORDERS, MAIL = Is(Field.SOURCE, "orders"), Is(Field.SOURCE, "mail")


def test_a_question_without_a_choice_is_one_scope() -> None:
    assert scopes_of(EVERYTHING) == [Scope()]
    assert scopes_of(And((ORDERS, PENDING))) == [Scope(None, Field.SOURCE, "orders", "pending")]


def test_each_value_of_a_choice_is_a_scope_of_its_own() -> None:
    assert scopes_of(Or((PENDING, EXHAUSTED))) == [Scope(status="pending"), Scope(status="exhausted")]


def test_a_value_that_is_given_twice_is_counted_once() -> None:
    assert scopes_of(Or((PENDING, EXHAUSTED, PENDING))) == [Scope(status="pending"), Scope(status="exhausted")]


def test_two_choices_are_all_their_pairs() -> None:
    scopes = scopes_of(And((Or((ORDERS, MAIL)), Or((PENDING, EXHAUSTED)))))
    assert scopes is not None
    assert {(scope.value, scope.status) for scope in scopes} == {
        ("orders", "pending"),
        ("orders", "exhausted"),
        ("mail", "pending"),
        ("mail", "exhausted"),
    }


@pytest.mark.parametrize(
    "query",
    [
        NOTHING,
        Or((PENDING, ORDERS)),
        Or((PENDING, Text("late"))),
        Or((PENDING, And((EXHAUSTED,)))),
        Not(PENDING),
        Or((Is(Field.ERROR, "Late"), Is(Field.ERROR, "a.Late"))),
        Or((Is(Field.TAG, "a"), Is(Field.TAG, "b"))),
        And((PENDING, Or((PENDING, EXHAUSTED)))),
        And(tuple(Or(tuple(Is(field, str(n)) for n in range(9))) for field in (Field.SOURCE, Field.STATUS))),
    ],
    ids=str,
)
def test_what_a_letter_may_meet_in_two_ways_is_left_to_a_scan(query: Query) -> None:
    assert scopes_of(query) is None
