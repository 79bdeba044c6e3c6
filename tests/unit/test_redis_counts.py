"""Counts on Redis that the kits' few letters do not reach: many letters an hour, many hours, many shards."""

from __future__ import annotations

import os
import random
from datetime import UTC, datetime, timedelta

import pytest

from redrive.backends.memory.letters import MemoryLetters
from redrive.backends.redis import RedisLetters
from redrive.model.amendment import Amended, Amendment
from redrive.model.lease import Claim
from redrive.model.letter import Letter
from redrive.model.query import EVERYTHING, And, Field, Group, GroupOrder, Is, Not, Query, Text
from redrive.model.settlement import Completed, Failed, Settlement
from redrive.model.status import Act
from redrive.model.texts import Where
from redrive.ports import LetterStore
from redrive.testing import START, letter
from redrive.testing.kit.samples import STORED, attempt, failure
from tests.unit.redis_use import location, used

pytestmark = pytest.mark.engine("redis")

HOUR = timedelta(hours=1)
_DICE = random.Random(11)
_STATUSES = [*STORED, *[STORED[0]] * 7]
LETTERS = [
    letter(
        str(number),
        at=START - _DICE.choice([1, 5, 40]) * _DICE.random() * HOUR,
        due=START,
        source=_DICE.choice("ab"),
        status=_DICE.choice(_STATUSES),
        body=_DICE.choice([b"red", b"blue"]),
        # One of the groups has most of them, and some have one.
        failure=failure(fingerprint=f"{int(_DICE.expovariate(0.3))} of them"),
    )
    for number in range(2500)
]
QUESTIONS: list[Query] = [
    EVERYTHING,
    *(Is(Field.STATUS, status) for status in ("pending", "retrying", "completed")),
    And((Is(Field.STATUS, "pending"),)),
    Is(Field.SOURCE, "a"),
    Is(Field.NAMESPACE, "default"),
    Not(Is(Field.SOURCE, "a")),
    Text("red", Where.BODY),
]


async def _groups(store: LetterStore, query: Query, order: GroupOrder, limit: int) -> list[Group]:
    found: list[Group] = []
    after = None
    while True:
        page = await store.groups(query, order=order, limit=limit, after=after, now=START)
        found += page.groups
        if (after := page.next) is None:
            return found


async def _compare(ours: LetterStore, oracle: LetterStore) -> None:
    for query in QUESTIONS:
        span = START - 30 * HOUR, START - HOUR
        assert await ours.hourly(*span, query, now=START) == await oracle.hourly(*span, query, now=START), query
        assert await ours.tally(Field.GROUP, query, now=START) == await oracle.tally(Field.GROUP, query, now=START), query
        for order in GroupOrder:
            # The oracle gathers all groups for each page of them: one is enough.
            assert await _groups(ours, query, order, 7) == await _groups(oracle, query, order, len(LETTERS)), (query, order)


@pytest.mark.parametrize("shards", [1, 3])
def test_many_letters_are_counted_as_the_oracle_counts_them(namespace: str, shards: int) -> None:
    async def scene(letters: RedisLetters) -> None:
        oracle = MemoryLetters()
        both: list[LetterStore] = [letters, oracle]
        claim = Claim(owner="ann", lease=HOUR, limit=300, what=EVERYTHING)
        later = failure(fingerprint="2 of them")
        end = Failed(attempt=attempt("again"), failure=failure(fingerprint="0 of them"), next_retry_at=START)
        for store in both:
            await store.put(LETTERS, now=START)
            await store.put(
                [letter(one.source_id, source=one.source, failed=2, failure=later) for one in LETTERS[:400]], now=START
            )
            taken = await store.claim(claim, now=START)
            assert len(taken) == 300
            await store.settle([Settlement.of(one.lease, Completed()) for one in taken[:100]], now=START)
            await store.settle([Settlement.of(one.lease, end) for one in taken[100:200]], now=START)
        await _compare(letters, oracle)
        amendments = [Amendment(id=one.id, act=Act.ARCHIVE, tags=("old",)) for one in LETTERS[400:700]]
        for store in both:
            assert Amended.DONE in await store.amend(amendments, now=START)
            await store.purge(Is(Field.GROUP, "1 of them"), now=START)
            await store.purge(Text("red", Where.BODY), limit=500, now=START)
        await _compare(letters, oracle)

    used(location(os.environ["REDRIVE_TEST_REDIS"], prefix=namespace, shards=shards), scene)


def test_hours_are_found_however_long_a_time_is_asked_for(namespace: str) -> None:
    ends = [datetime(1, 1, 1, tzinfo=UTC), datetime(1969, 7, 20, 20, 17, tzinfo=UTC), START, START + HOUR]
    ends.append(datetime.max.replace(tzinfo=UTC))
    letters = [letter(f"{number}/{name}", at=at) for number, at in enumerate(ends) for name in range(number + 1)]

    async def scene(store: RedisLetters) -> None:
        await store.put(letters, now=START)
        hours = {at.replace(minute=0, second=0, microsecond=0): number + 1 for number, at in enumerate(ends)}
        for query in (EVERYTHING, Is(Field.STATUS, "pending"), Not(Is(Field.SOURCE, "none"))):
            assert await store.hourly(ends[0], ends[-1], query, now=START) == hours

    used(location(os.environ["REDRIVE_TEST_REDIS"], prefix=namespace), scene)


@pytest.mark.parametrize("query", [EVERYTHING, Is(Field.SOURCE, "a"), Text("red", Where.BODY)])
def test_of_many_ids_only_letters_that_match_are_removed_oldest_first(namespace: str, query: Query) -> None:
    def key(one: Letter) -> tuple[datetime, bytes]:
        return one.dead_lettered_at, one.id.bytes

    async def scene(letters: RedisLetters) -> None:
        oracle = MemoryLetters()
        ids = [one.id for one in LETTERS[:2200]]
        for store in (letters, oracle):
            await store.put(LETTERS, now=START)
            assert len(await store.claim(Claim(owner="ann", lease=HOUR, limit=100, what=query), now=START)) == 100
        for limit in (300, 5000):
            gone = await letters.purge(query, limit=limit, among=[*ids, *ids], now=START)
            assert gone == sorted(gone, key=key) == await oracle.purge(query, limit=limit, among=ids, now=START)
        assert await letters.purge(query, among=(), now=START) == []
        assert await letters.count(now=START) == await oracle.count(now=START)

    used(location(os.environ["REDRIVE_TEST_REDIS"], prefix=namespace, shards=3), scene)
