"""Counts on OpenSearch that the kits' few letters do not reach: many groups, many hours, far-off years, many ids."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest

from redrive.backends.memory.letters import MemoryLetters
from redrive.backends.opensearch import OpenSearchLetters
from redrive.model.lease import Claim
from redrive.model.query import EVERYTHING, Field, Group, GroupOrder, Is, Not, Query, Text
from redrive.model.settlement import Completed, Settlement
from redrive.model.texts import Where
from redrive.ports import LetterStore
from redrive.testing import START, letter
from redrive.testing.kit.samples import STORED, failure
from tests.unit.opensearch_use import location, used

pytestmark = pytest.mark.engine("opensearch")

HOUR = timedelta(hours=1)
_DICE = random.Random(11)
LETTERS = [
    letter(
        str(number),
        at=START - _DICE.choice([1, 5, 40]) * _DICE.random() * HOUR,
        due=START,
        source=_DICE.choice("ab"),
        status=_DICE.choice([*STORED, *[STORED[0]] * 7]),
        body=_DICE.choice([b"red", b"blue"]),
        failure=failure(fingerprint=f"{int(_DICE.expovariate(0.002))} of them"),
    )
    for number in range(2500)
]
QUESTIONS: list[Query] = [EVERYTHING, Is(Field.STATUS, "pending"), Is(Field.STATUS, "retrying"), Text("red", Where.BODY)]


async def _groups(store: LetterStore, query: Query, order: GroupOrder, limit: int) -> list[Group]:
    found: list[Group] = []
    after = None
    while True:
        page = await store.groups(query, order=order, limit=limit, after=after, now=START)
        found += page.groups
        if (after := page.next) is None:
            return found


async def _filled(store: LetterStore) -> None:
    await store.put(LETTERS, now=START)
    taken = await store.claim(Claim(owner="ann", lease=HOUR, limit=300, what=EVERYTHING), now=START)
    assert len(taken) == 300
    await store.settle([Settlement.of(one.lease, Completed()) for one in taken[:100]], now=START)


def test_many_groups_are_told_as_the_oracle_tells_them(namespace: str) -> None:
    async def scene(letters: OpenSearchLetters) -> None:
        oracle = MemoryLetters()
        await _filled(letters)
        await _filled(oracle)
        for query in QUESTIONS:
            assert await letters.tally(Field.STATUS, query, now=START) == await oracle.tally(Field.STATUS, query, now=START)
            span = START - 30 * HOUR, START - HOUR
            assert await letters.hourly(*span, query, now=START) == await oracle.hourly(*span, query, now=START), query
            for order in GroupOrder:
                expected = await _groups(oracle, query, order, 5000)
                assert await _groups(letters, query, order, 700) == expected, (query, order)

    used(location(namespace), scene)


def test_hours_are_told_exactly_however_long_a_time_is_asked_for(namespace: str) -> None:
    first, last = datetime(1, 1, 1, tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    # Beyond 2255, a double cannot tell the last instant of an hour from the first of the next.
    edges = [datetime(1500, 1, 1, tzinfo=UTC), datetime(1969, 7, 20, 20, tzinfo=UTC), datetime(3000, 1, 1, tzinfo=UTC)]
    ends = [first, last, *edges, *(edge - timedelta(microseconds=1) for edge in edges)]
    ends += [START + number * HOUR for number in range(2100)]
    letters = [letter(str(number), at=at) for number, at in enumerate(ends)]

    async def scene(store: OpenSearchLetters) -> None:
        await store.put(letters, now=START)
        hours = {at.replace(minute=0, second=0, microsecond=0): 1 for at in ends}
        for query in (EVERYTHING, Is(Field.STATUS, "pending"), Not(Is(Field.SOURCE, "none"))):
            assert await store.hourly(first, last, query, now=START) == hours
        assert await store.hourly(edges[2], edges[2], now=START) == {edges[2]: 1}
        assert await store.hourly(last, first, now=START) == {}

    used(location(namespace), scene)


@pytest.mark.parametrize("query", [EVERYTHING, Is(Field.SOURCE, "a"), Text("red", Where.BODY)])
def test_of_many_ids_only_letters_that_match_are_removed_oldest_first(namespace: str, query: Query) -> None:
    async def scene(letters: OpenSearchLetters) -> None:
        oracle = MemoryLetters()
        ids = [one.id for one in LETTERS[:2200]]
        for store in (letters, oracle):
            await store.put(LETTERS, now=START)
            assert len(await store.claim(Claim(owner="ann", lease=HOUR, limit=100, what=query), now=START)) == 100
        for limit in (300, 5000):
            gone = await letters.purge(query, limit=limit, among=[*ids, *ids], now=START)
            assert gone == await oracle.purge(query, limit=limit, among=ids, now=START)
        assert await letters.purge(query, among=(), now=START) == []
        assert await letters.count(now=START) == await oracle.count(now=START)

    used(location(namespace), scene)
