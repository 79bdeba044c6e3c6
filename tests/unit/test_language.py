"""The query language: what is read is what was meant, and what is written is read again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive import BadQuery
from redrive.model.language import parse
from redrive.model.query import EVERYTHING, NOTHING, And, At, Field, Has, Is, Not, Op, Or, Place, Query, Text, matches
from redrive.model.spelling import spelled
from redrive.model.texts import Where
from redrive.model.words import words
from redrive.testing.kit import strategies
from redrive.testing.kit.strategies import effort

NOW = datetime(2026, 1, 10, 12, tzinfo=UTC)
DAY = timedelta(days=1)

READ: dict[str, Query] = {
    "": EVERYTHING,
    "  ": EVERYTHING,
    "status:exhausted": Is(Field.STATUS, "exhausted"),
    "STATUS:exhausted": Is(Field.STATUS, "exhausted"),
    "error = TimeoutError": Is(Field.ERROR, "TimeoutError"),
    "error:httpx.ConnectTimeout": Is(Field.ERROR, "httpx.ConnectTimeout"),
    "status:pending source:orders": And((Is(Field.STATUS, "pending"), Is(Field.SOURCE, "orders"))),
    "status:pending and source:orders": And((Is(Field.STATUS, "pending"), Is(Field.SOURCE, "orders"))),
    "tag:a or tag:b tag:c": Or((Is(Field.TAG, "a"), And((Is(Field.TAG, "b"), Is(Field.TAG, "c"))))),
    "(tag:a OR tag:b) tag:c": And((Or((Is(Field.TAG, "a"), Is(Field.TAG, "b"))), Is(Field.TAG, "c"))),
    "not tag:a tag:b": And((Not(Is(Field.TAG, "a")), Is(Field.TAG, "b"))),
    "not (tag:a tag:b)": Not(And((Is(Field.TAG, "a"), Is(Field.TAG, "b")))),
    '"connection refused"': Text("connection refused"),
    "refused": Text("refused"),
    "body~acme": Text("acme", Where.BODY),
    'body~"acme corp"': Text("acme corp", Where.BODY),
    "Body ~ acme": Text("acme", Where.BODY),
    "traceback~client.py": Text("client.py", Where.TRACEBACK),
    "anywhere~refused": Text("refused", Where.ANYWHERE),
    "message~refused": Text("refused"),
    "not body~a or anywhere~b tag:c": Or((Not(Text("a", Where.BODY)), And((Text("b", Where.ANYWHERE), Is(Field.TAG, "c"))))),
    'source:"two words"': Is(Field.SOURCE, "two words"),
    'source:"a \\"quote\\" and \\u00e9"': Is(Field.SOURCE, 'a "quote" and é'),
    "source:a:b/c?d=e": Is(Field.SOURCE, "a:b/c?d=e"),
    "age>1d": Is(Field.DEAD_LETTERED_AT, NOW - DAY, Op.LT),
    "age<=1.5h": Is(Field.DEAD_LETTERED_AT, NOW - timedelta(minutes=90), Op.GE),
    "since:7d": Is(Field.DEAD_LETTERED_AT, NOW - 7 * DAY, Op.GE),
    "until:2026-01-01": Is(Field.DEAD_LETTERED_AT, datetime(2026, 1, 1, tzinfo=UTC), Op.LT),
    "updated_at>=2026-01-01T10:00:00+02:00": Is(Field.UPDATED_AT, datetime(2026, 1, 1, 8, tzinfo=UTC), Op.GE),
    "next_retry_at<+2h": Is(Field.NEXT_RETRY_AT, NOW + timedelta(hours=2), Op.LT),
    "attempts>=3": Is(Field.ATTEMPTS, 3, Op.GE),
    "priority:-1": Is(Field.PRIORITY, -1),
    "key:abc": Is(Field.KEY, b"abc"),
    "key:0x00ff": Is(Field.KEY, b"\0\xff"),
    'key:"0x00ff"': Is(Field.KEY, b"0x00ff"),
    "has:retry": Has(Field.NEXT_RETRY_AT),
    "body.order.total>100": At(Place.BODY, ("order", "total"), 100, Op.GT),
    "body.items[0].sku:x": At(Place.BODY, ("items", 0, "sku"), "x"),
    "body.n:18446744073709551615": At(Place.BODY, ("n",), 2**64 - 1),
    "body.n>-9223372036854775808": At(Place.BODY, ("n",), -(2**63), Op.GT),
    'body.n:"99999999999999999999"': At(Place.BODY, ("n",), "99999999999999999999"),
    'metadata."a b".c:"1"': At(Place.METADATA, ("a b", "c"), "1"),
    "body.gift:true body.note:null": And((At(Place.BODY, ("gift",), True), At(Place.BODY, ("note",), None))),
    "all": EVERYTHING,
    "none": NOTHING,
    '"all"': Text("all"),
}


@pytest.mark.parametrize("text", READ, ids=list(READ))
def test_a_text_is_read_as_it_is_meant(text: str) -> None:
    assert parse(text, NOW) == READ[text]
    assert parse(spelled(READ[text]), NOW) == READ[text]


WRONG: dict[str, tuple[int, str]] = {
    "statu:pending": (1, "there is no field 'statu'; did you mean status?"),
    "tag:a sorce:b": (7, "there is no field 'sorce'; did you mean source?"),
    "status:exausted": (8, "status cannot be 'exausted'; did you mean exhausted?"),
    "category:bad": (10, "category cannot be 'bad'; there are transient, network,"),
    "attempts>many": (10, "attempts is a whole number, not 'many'"),
    "since:yesterday": (7, "'yesterday' is no instant; write 2025-06-01,"),
    "age>soon": (5, "'soon' is no duration; write 30s, 15m, 12h, 7d or 2w"),
    "age:1d": (1, "age does not take ':'; write age>1d or age<1d"),
    "since>1d": (1, "since does not take '>'; write since:1d"),
    "age>9999999w": (5, "lies beyond the calendar"),
    "id:3f2a": (4, "'3f2a' is not a letter's whole id"),
    "has:body": (5, "has cannot be 'body'; there are key, kind, tag, retry, expiry"),
    "key:0xzz": (5, "begins as hexadecimal, but is not"),
    "source:": (8, "what should source be?"),
    "(tag:a": (1, "this '(' is not closed"),
    "tag:a)": (6, "there is no '(' for this ')'"),
    "tag:a ()": (8, "nothing stands before this ')'"),
    "or tag:a": (1, "nothing stands before this 'or'"),
    "tag:a or": (9, "something is missing at the end"),
    "not": (4, "something is missing at the end"),
    'tag:a "open': (7, "this quotation is not closed"),
    '"--"': (1, "there is no word in this text"),
    "bdy~acme": (1, "words are not looked for in 'bdy'; did you mean body?"),
    "source~acme": (1, "words are not looked for in 'source'; there are message, traceback, body, anywhere"),
    "body.total~5": (1, "words are not looked for in 'body.total'"),
    "body~": (6, "what should body be? Nothing stands behind the '~'"),
    'body~"--"': (6, "there is no word in this text"),
    "tag:eu anywhere~...": (17, "there is no word in this text"),
    "body.a[99999999999999999999]:1": (8, "no list has so many elements"),
    f"tag:a body.items[0][{'9' * 5000}].b:1": (21, "no list has so many elements"),
    "metadata.build:18446744073709551616": (16, "this number is beyond 64 bits; write it as 1e20, or quote a text"),
    "metadata.build > -9223372036854775809": (18, "this number is beyond 64 bits"),
    "(" * 60 + "a" + ")" * 60: (52, "more than 50 levels"),
}


@pytest.mark.parametrize("text", WRONG, ids=list(WRONG))
def test_a_mistake_is_pointed_at(text: str) -> None:
    column, sentence = WRONG[text]
    with pytest.raises(BadQuery) as caught:
        parse(text, NOW)
    assert sentence in str(caught.value)
    assert caught.value.column == column
    assert f"(column {column})" in str(caught.value)


def test_where_words_are_looked_for_is_written_and_read_again() -> None:
    @effort(300)
    @given(st.text(min_size=1, max_size=20), st.sampled_from(Where))
    def unchanged(phrase: str, where: Where) -> None:
        if words(phrase):
            assert parse(spelled(Text(phrase, where)), NOW) == Text(phrase, where)

    unchanged()


def test_what_was_read_is_written_and_read_again_unchanged() -> None:
    @effort(300)
    @given(strategies.queries() | strategies.documents())
    def unchanged(query: Query) -> None:
        once = parse(spelled(query), NOW)
        assert parse(spelled(once), NOW) == once
        assert spelled(once) == spelled(query)

    unchanged()


def test_what_was_written_means_the_same() -> None:
    @effort(80)
    @given(strategies.queries(), st.lists(strategies.letters() | strategies.arrivals(), min_size=3, max_size=6))
    def alike(query: Query, letters: list[object]) -> None:
        again = parse(spelled(query), NOW)
        assert [matches(again, one) for one in letters] == [matches(query, one) for one in letters]  # type: ignore[arg-type]

    alike()


def test_any_text_is_read_or_refused_in_our_words() -> None:
    refused: list[tuple[str, int]] = []

    @effort(300)
    @given(st.text(max_size=40) | st.text(alphabet='ab:~"()<>=.[]0 \\', max_size=30))
    def no_surprise(text: str) -> None:
        try:
            query = parse(text, NOW)
        except BadQuery as error:
            refused.append((text, error.column))
        else:
            assert parse(spelled(query), NOW) == query

    no_surprise()
    assert refused
    assert all(1 <= column <= len(text) + 1 for text, column in refused)
