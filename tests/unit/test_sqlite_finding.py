"""What looking costs on SQLite, in steps of its engine: the same however many letters there are."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from datetime import timedelta
from functools import lru_cache
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from redrive.backends.sqlite import changing, finding, groups, sifting, table, texts, upkeep
from redrive.backends.sqlite.plan import Along, planned, planned_among
from redrive.model.instant import instant, micros
from redrive.model.letter import Letter
from redrive.model.paging import is_newest_first, listed_by
from redrive.model.query import EVERYTHING, And, Field, GroupOrder, Is, Not, Op, Or, Order, Query, Text, matches
from redrive.model.status import Status
from redrive.model.texts import Where
from redrive.testing import START, failure, letter
from redrive.testing.kit import strategies
from tests.unit.sqlite_use import filled, steps

FEW, MANY = 400, 4000
NOW = START + timedelta(days=400)


def made(number: int, count: int) -> Letter:
    """Of all letters five are of a source, an error and a status of their own, and have words of their own; they are the oldest."""
    is_rare = number < 5
    return letter(
        str(number),
        source="rare" if is_rare else "orders",
        at=START + timedelta(minutes=number),
        status=Status.EXHAUSTED if is_rare else Status.PENDING,
        failure=failure(
            "a.Rare" if is_rare else "a.Common",
            "a needle in common hay" if is_rare else f"common hay {number}",
            fingerprint="rare" if is_rare else f"group {number % 40}",
        ),
        body=b"needle in common" if is_rare else b"common",
    )


def lookups(connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], object]) -> int:
    """How many times the index of texts is asked where a word begins in it."""
    asked: list[str] = []
    connection.set_trace_callback(asked.append)
    work(connection)
    connection.set_trace_callback(None)
    return sum("letter_texts_idx" in sql for sql in asked)


@lru_cache
def stored(count: int) -> sqlite3.Connection:
    connection = filled([made(number, count) for number in range(count)])
    upkeep.tidied(connection, [count])
    return connection


BEGINNING = made(3, MANY).id

QUESTIONS: dict[str, Query] = {
    "everything": EVERYTHING,
    "a common status": Is(Field.STATUS, "pending"),
    "a rare status": Is(Field.STATUS, "exhausted"),
    "a rare source of a namespace": And((Is(Field.NAMESPACE, "default"), Is(Field.SOURCE, "rare"))),
    "a rare error": Is(Field.ERROR, "Rare"),
    "a rare error in full": Is(Field.ERROR, "a.Rare"),
    "a rare source with a common error": And((Is(Field.ERROR, "Common"), Is(Field.SOURCE, "rare"))),
    "a common source with a rare error": And((Is(Field.SOURCE, "orders"), Is(Field.ERROR, "Rare"))),
    "a rare group with a common status": And((Is(Field.STATUS, "pending"), Is(Field.GROUP, "rare"))),
    "one of two rare sources": Or((Is(Field.SOURCE, "rare"), Is(Field.SOURCE, "nobody"))),
    "a common source of one of two rare errors": And(
        (Is(Field.SOURCE, "rare"), Or((Is(Field.ERROR, "Rare"), Is(Field.ERROR, "Rarer"))))
    ),
    "one of two, by their ids": Or((Is(Field.ID, made(1, MANY).id), Is(Field.ID, made(2, MANY).id))),
    "rare words, or a rare source": Or((Text("needle"), Is(Field.SOURCE, "rare"))),
    "what begins like an id": And((Is(Field.ID, BEGINNING, Op.GE), Is(Field.ID, UUID(int=BEGINNING.int + (1 << 64)), Op.LE))),
    "what somebody holds": Is(Field.STATUS, "retrying"),
    "rare words": Text("a needle"),
    "rare words of a common status": And((Is(Field.STATUS, "pending"), Text("needle"))),
    "rare words in bodies": Text("needle", Where.BODY),
    "rare words anywhere": Text("needle", Where.ANYWHERE),
}


@pytest.mark.parametrize("limit", [1, 10])
@pytest.mark.parametrize("order", [Order.NEWEST, Order.UPDATED])
@pytest.mark.parametrize("question", QUESTIONS)
def test_a_page_costs_the_same_however_many_letters_there_are(question: str, order: Order, limit: int) -> None:
    def look(connection: sqlite3.Connection) -> None:
        finding.page(connection, QUESTIONS[question], order, limit, None, NOW)

    # An index of words grows in levels.
    assert steps(stored(MANY), look) <= 3 * steps(stored(FEW), look)


COMMON: dict[str, Query] = {
    "one of two statuses": Or((Is(Field.STATUS, "pending"), Is(Field.STATUS, "exhausted"))),
    "one of one": Or((Is(Field.STATUS, "pending"),)),
    "a category": Is(Field.CATEGORY, made(9, MANY).failure.category.value),
    "not a status": Not(Is(Field.STATUS, "exhausted")),
    "a large group": Is(Field.GROUP, "group 7"),
    "changed since": Is(Field.UPDATED_AT, START + timedelta(minutes=5), Op.GT),
    "dead since": Is(Field.DEAD_LETTERED_AT, START + timedelta(minutes=5), Op.GT),
}


@pytest.mark.parametrize("limit", [1, 8])
@pytest.mark.parametrize("order", [Order.NEWEST, Order.OLDEST, Order.UPDATED])
@pytest.mark.parametrize("question", COMMON)
def test_what_is_common_is_looked_for_along_the_order(
    monkeypatch: pytest.MonkeyPatch, question: str, order: Order, limit: int
) -> None:
    monkeypatch.setattr(texts, "FEW", 5)

    def look(connection: sqlite3.Connection) -> None:
        assert len(finding.page(connection, COMMON[question], order, limit, None, NOW).letters) == limit

    assert steps(stored(MANY), look) <= 2 * steps(stored(FEW), look)


@pytest.mark.parametrize(("asked", "order"), [(Field.UPDATED_AT, Order.OLDEST), (Field.DEAD_LETTERED_AT, Order.UPDATED)])
def test_a_short_time_by_another_clock_than_the_order_s_is_looked_at_first(asked: Field, order: Order) -> None:
    def look(connection: sqlite3.Connection) -> None:
        (last,) = connection.execute(f"SELECT {asked} FROM letters ORDER BY {asked} DESC LIMIT 1 OFFSET 9").fetchone()
        since = Is(asked, instant(last), Op.GE)
        assert len(finding.page(connection, since, order, 10, None, NOW).letters) == 10

    assert steps(stored(MANY), look) <= 2 * steps(stored(FEW), look)


@pytest.mark.parametrize("order", [Order.NEWEST, Order.OLDEST, Order.UPDATED])
def test_every_order_comes_from_an_index(order: Order) -> None:
    def look(connection: sqlite3.Connection) -> None:
        page = finding.page(connection, EVERYTHING, order, 10, None, NOW)
        finding.page(connection, EVERYTHING, order, 10, page.next, NOW)

    assert steps(stored(MANY), look) <= 1.2 * steps(stored(FEW), look)


@pytest.mark.parametrize("where", [Where.MESSAGE, Where.BODY, Where.ANYWHERE])
def test_words_that_most_letters_have_are_looked_for_in_one_letter_after_another(
    monkeypatch: pytest.MonkeyPatch, where: Where
) -> None:
    monkeypatch.setattr(texts, "FEW", 50)

    def look(connection: sqlite3.Connection) -> None:
        assert len(finding.page(connection, Text("common", where), Order.NEWEST, 10, None, NOW).letters) == 10

    # The index still has to say that they are many.
    assert steps(stored(MANY), look) <= 3 * steps(stored(FEW), look)


@pytest.mark.parametrize(
    "query",
    [
        EVERYTHING,
        Is(Field.NAMESPACE, "default"),
        Is(Field.SOURCE, "orders"),
        Is(Field.STATUS, "pending"),
        Or((Is(Field.STATUS, "pending"), Is(Field.STATUS, "exhausted"))),
    ],
    ids=["everything", "a namespace", "a source", "a status", "one of two statuses"],
)
def test_counts_are_kept(query: Query) -> None:
    def count(connection: sqlite3.Connection) -> None:
        assert finding.count(connection, query, NOW) > 100
        finding.tally(connection, Field.STATUS, query, NOW)

    assert steps(stored(MANY), count) <= 1.2 * steps(stored(FEW), count)


@pytest.mark.parametrize("by", [Field.SOURCE, Field.CATEGORY, Field.ERROR, Field.GROUP, Field.NAMESPACE, Field.POLICY])
def test_tallies_are_kept(by: Field) -> None:
    def count(connection: sqlite3.Connection) -> None:
        assert finding.tally(connection, by, Is(Field.NAMESPACE, "default"), NOW)

    assert steps(stored(MANY), count) <= 1.2 * steps(stored(FEW), count)


@pytest.mark.parametrize("order", list(GroupOrder))
def test_groups_are_kept(order: GroupOrder) -> None:
    def look(connection: sqlite3.Connection) -> None:
        page = groups.listed(connection, EVERYTHING, order, 10, None, NOW)
        assert len(page.groups) == 10

    assert steps(stored(MANY), look) <= 1.5 * steps(stored(FEW), look)


@pytest.mark.parametrize("order", list(GroupOrder))
@pytest.mark.parametrize("question", [question for question in QUESTIONS if question not in ("everything", "a common status")])
def test_groups_of_few_letters_cost_the_same_however_many_there_are(question: str, order: GroupOrder) -> None:
    def look(connection: sqlite3.Connection) -> None:
        groups.listed(connection, QUESTIONS[question], order, 10, None, NOW)

    assert steps(stored(MANY), look) <= 3 * steps(stored(FEW), look)


@lru_cache
def storm(count: int) -> sqlite3.Connection:
    """Letters of one failure, most of them of the last day."""
    letters = [made(number, count) for number in range(count)]
    connection = filled([replace(one, failure=replace(one.failure, fingerprint="storm")) for one in letters])
    upkeep.tidied(connection, [count])
    return connection


@pytest.mark.parametrize("question", ["a rare status", "a rare source of a namespace", "a rare error", "rare words"])
def test_few_letters_of_a_large_group_cost_the_same_however_large_it_is(question: str) -> None:
    until = made(MANY, MANY).dead_lettered_at

    def look(connection: sqlite3.Connection) -> None:
        (group,) = groups.listed(connection, QUESTIONS[question], GroupOrder.COUNT, 10, None, until).groups
        assert group.count == 5

    assert steps(storm(MANY), look) <= 3 * steps(storm(FEW), look)


@lru_cache
def shaken(count: int) -> sqlite3.Connection:
    """Two large groups, each of which a letter has left that is not summed up yet."""
    made = [(str(number), START + timedelta(minutes=number), failure(fingerprint=f"{number % 2}")) for number in range(count)]
    connection = filled([letter(name, at=at, failure=failed) for name, at, failed in made])
    upkeep.tidied(connection, [count])
    for name in "78":
        assert changing.purge(connection, [((Is(Field.SOURCE_ID, name), 1, None), NOW)])[0]
    return connection


@pytest.mark.parametrize("query", [EVERYTHING, Is(Field.NAMESPACE, "default"), Is(Field.GROUP, "1")], ids=str)
def test_the_ends_of_a_group_that_a_letter_has_left_are_looked_up_at_once(query: Query) -> None:
    def look(connection: sqlite3.Connection) -> None:
        assert groups.listed(connection, query, GroupOrder.LAST_SEEN, 10, None, NOW).groups

    assert steps(shaken(MANY), look) <= 1.5 * steps(shaken(FEW), look)


@pytest.mark.parametrize("order", [Order.NEWEST, Order.OLDEST, Order.UPDATED])
@pytest.mark.parametrize("more", [EVERYTHING, Is(Field.STATUS, "pending"), Is(Field.SOURCE, "orders")], ids=str)
def test_letters_of_other_namespaces_are_passed_over_without_being_read(order: Order, more: Query) -> None:
    by, way = listed_by(order), "DESC" if is_newest_first(order) else "ASC"
    plan = planned(stored(MANY), And((Is(Field.NAMESPACE, "small"), more)), NOW, Field(by))
    sql, parameters = Along(plan, f"l.{by}", way).numbers(None, 50)
    done = [(name, cursor) for _, name, cursor, *_ in stored(MANY).execute(f"EXPLAIN {sql}", parameters)]
    (index,) = (cursor for name, cursor in done if name == "DeferredSeek")
    read = [cursor for name, cursor in done[done.index(("DeferredSeek", index)) :] if name == "Column"]
    assert read[0] == index, "what is compared first stands in the index"


@pytest.mark.parametrize("question", COMMON)
def test_groups_of_many_letters_are_found_by_going_through_them_once(monkeypatch: pytest.MonkeyPatch, question: str) -> None:
    """In the order in which they lie in the file: group by group, each would be on another page of it."""
    monkeypatch.setattr(texts, "FEW", 5)
    connection = stored(MANY)
    asked: list[str] = []
    connection.set_trace_callback(asked.append)
    assert groups.listed(connection, COMMON[question], GroupOrder.COUNT, 10, None, NOW).groups
    connection.set_trace_callback(None)
    plans = [
        told for sql in asked if sql.lstrip().startswith("SELECT") for *_, told in connection.execute(f"EXPLAIN QUERY PLAN {sql}")
    ]
    assert [told for told in plans if told.startswith("SCAN l")] in (["SCAN l"], [])


WORDY: dict[str, Query] = {
    "a common word of bodies": Text("common", Where.BODY),
    "without a rare word of bodies": Not(Text("needle", Where.BODY)),
    "a common word anywhere": Text("common", Where.ANYWHERE),
    "a common word of bodies, of a source": And((Is(Field.SOURCE, "orders"), Text("common", Where.BODY))),
}


@pytest.mark.parametrize("question", WORDY)
def test_who_goes_through_many_letters_looks_for_words_of_bodies_once(monkeypatch: pytest.MonkeyPatch, question: str) -> None:
    monkeypatch.setattr(texts, "FEW", 3)

    def look(connection: sqlite3.Connection) -> None:
        assert groups.listed(connection, WORDY[question], GroupOrder.COUNT, 10, None, NOW).groups
        assert len(finding.page(connection, WORDY[question], Order.NEAREST, 10, None, NOW).letters) == 10

    # In each of the parts that the index has, and in the letters that are shown.
    assert lookups(stored(MANY), look) < MANY / 10


NOBODY: dict[str, Query] = {
    "without a word that all bodies have": Not(Text("common", Where.BODY)),
    "without a word that all letters have": Not(Text("common", Where.ANYWHERE)),
    "with it and without it": And((Text("common", Where.BODY), Not(Text("common", Where.BODY)))),
    "without it, and with it or of another source": And(
        (Not(Text("common", Where.BODY)), Or((Text("common", Where.ANYWHERE), Is(Field.SOURCE, "nobody"))))
    ),
}


@pytest.mark.parametrize("order", [Order.NEWEST, Order.UPDATED])
@pytest.mark.parametrize("question", NOBODY)
def test_that_nobody_is_without_a_common_word_is_known_without_looking_into_each(
    monkeypatch: pytest.MonkeyPatch, question: str, order: Order
) -> None:
    monkeypatch.setattr(texts, "FEW", 3)

    def look(connection: sqlite3.Connection) -> None:
        assert not finding.page(connection, NOBODY[question], order, 10, None, NOW).letters

    assert lookups(stored(MANY), look) < MANY / 10


LEAVES = [
    Text("common", Where.BODY),
    Text("needle", Where.BODY),
    Text("needle", Where.ANYWHERE),
    Text("hay", Where.ANYWHERE),
    Text("nothing", Where.TRACEBACK),
    Text("hay"),
    Is(Field.SOURCE, "rare"),
    Is(Field.STATUS, "pending"),
    Is(Field.GROUP, "group 7"),
]


def test_the_nearest_of_a_hundred_and_thirty_words_are_found() -> None:
    """SQLite takes no more than 127 arguments for a function."""
    query = Or(tuple(Text(word, Where.ANYWHERE) for word in ["needle", *(f"word{number}" for number in range(129))]))
    found = finding.page(stored(FEW), query, Order.NEAREST, 10, None, NOW).letters
    assert {one.id for one in found} == {made(number, FEW).id for number in range(5)}


@strategies.effort(60)
@given(
    strategies.nested(st.sampled_from(LEAVES)),
    st.sampled_from([Order.NEWEST, Order.OLDEST, Order.UPDATED]),
    st.sampled_from([1, 7, 300]),
)
def test_pages_of_words_that_many_have_are_those_that_the_question_means(query: Query, order: Order, limit: int) -> None:
    connection, wanted = stored(FEW), {made(number, FEW).id for number in range(FEW) if matches(query, made(number, FEW))}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(texts, "FEW", 3)
        patch.setattr(sifting, "_LEAST", 8)
        patch.setattr(sifting, "_TIMES", 1)
        found, after = [], None
        while True:
            page = finding.page(connection, query, order, limit, after, NOW)
            found += [one.id for one in page.letters]
            if (after := page.next) is None or len(found) > 20 * limit:
                break
    assert len(set(found)) == len(found)
    assert set(found) == wanted if after is None else set(found) < wanted


@pytest.mark.parametrize("question", QUESTIONS | WORDY)
def test_a_purge_among_letters_that_are_known_looks_at_no_others(question: str) -> None:
    ids = [made(number, MANY).id for number in range(100, 120)]

    def look(connection: sqlite3.Connection) -> None:
        plan = planned_among(ids, (QUESTIONS | WORDY)[question], NOW)
        table.oldest(connection, plan, micros(NOW), 100)

    assert steps(stored(MANY), look) <= 3 * steps(stored(FEW), look)


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_oldest_are_found_without_looking_at_all(question: str) -> None:
    def look(connection: sqlite3.Connection) -> None:
        table.oldest(connection, planned(connection, QUESTIONS[question], NOW), micros(NOW), 10)

    assert steps(stored(MANY), look) <= 3 * steps(stored(FEW), look)
