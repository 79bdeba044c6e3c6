"""Listings on Redis that the kits' few letters do not reach: many pages, many shards, several indexes at once."""

from __future__ import annotations

import asyncio
import os
import random
from datetime import timedelta
from functools import cache

import pytest

from redrive.backends.redis import RedisLetters
from redrive.model.arrival import Held
from redrive.model.letter import Letter
from redrive.model.query import EVERYTHING, And, Field, Is, Not, Op, Or, Order, Query, matches
from redrive.testing import START, letter
from tests.unit.redis_use import location, used

pytestmark = pytest.mark.engine("redis")

_DICE = random.Random(7)
_TAGS = [(), ("red",), ("blue",), ("red", "blue"), ("blue", "red", "green")]
LETTERS = [
    letter(
        str(number),
        source=_DICE.choice("abcde"),
        tags=_DICE.choice(_TAGS),
        at=START + timedelta(microseconds=_DICE.randrange(500)),
        updated_at=START - timedelta(microseconds=_DICE.randrange(500)),
        body=b"",
    )
    for number in range(3000)
]
QUESTIONS: list[Query] = [
    EVERYTHING,
    Is(Field.SOURCE, "a"),
    Or((Is(Field.TAG, "red"), Is(Field.TAG, "blue"))),
    Or((Is(Field.SOURCE, "b"), Is(Field.TAG, "green"), Is(Field.ID, LETTERS[0].id))),
    And((Is(Field.SOURCE, "c"), Is(Field.TAG, "red"), Not(Is(Field.TAG, "green")))),
    And((Is(Field.STATUS, "pending"), Is(Field.DEAD_LETTERED_AT, START + timedelta(microseconds=400), Op.GT))),
    *(Is(Field.DEAD_LETTERED_AT, START + timedelta(microseconds=77), op) for op in Op),
    *(Is(Field.UPDATED_AT, START - timedelta(microseconds=77), op) for op in Op),
]


async def _listed(letters: RedisLetters, query: Query, order: Order, limit: int) -> list[Letter]:
    page = await letters.find(query, order=order, limit=limit, now=START)
    found = list(page.letters)
    while page.next is not None:
        page = await letters.find(query, order=order, limit=limit, after=page.next, now=START)
        found += page.letters
    return found


@cache
def _expected(query: Query, order: Order) -> list[Letter]:
    def key(one: Letter) -> tuple[object, bytes]:
        return (one.updated_at if order is Order.UPDATED else one.dead_lettered_at), one.id.bytes

    return sorted((one for one in LETTERS if matches(query, one)), key=key, reverse=order is not Order.OLDEST)


@pytest.mark.parametrize("shards", [1, 3])
def test_many_pages_of_many_shards_come_in_order_and_each_letter_once(namespace: str, shards: int) -> None:
    async def scene(letters: RedisLetters) -> None:
        await letters.put(LETTERS, now=START)
        for query in QUESTIONS:
            for order in (Order.NEWEST, Order.OLDEST, Order.UPDATED):
                expected = _expected(query, order)
                assert await _listed(letters, query, order, 5000) == expected, query
                assert await _listed(letters, query, order, 451) == expected, query
            assert await letters.count(query, now=START) == len(_expected(query, Order.OLDEST)), query
        for query in QUESTIONS[1:6]:
            gone = _expected(query, Order.OLDEST)[:600]
            assert await letters.purge(query, limit=600, now=START) == gone
            assert await letters.put(gone, now=START) == [Held.NEW] * len(gone)

    used(location(os.environ["REDRIVE_TEST_REDIS"], prefix=namespace, shards=shards), scene)


def test_puts_that_meet_share_calls_and_each_gets_its_own_answer(namespace: str) -> None:
    async def scene(letters: RedisLetters) -> None:
        await letters.put([letter("known")], now=START)
        batches = [[letter(f"{number}/{item}") for item in range(3)] for number in range(50)]
        batches += [[letter("known"), letter(f"beside {number}")] for number in range(5)]
        batches += [[letter("contested", failed=number)] for number in range(5)]
        answers = await asyncio.gather(*(letters.put(batch, now=START) for batch in batches))
        assert answers[:50] == [[Held.NEW] * 3] * 50
        assert answers[50:55] == [[Held.DUPLICATE, Held.NEW]] * 5
        assert sorted(held for (held,) in answers[55:]) == [Held.ATTEMPT] * 4 + [Held.NEW]
        assert await letters.count() == 1 + 150 + 5 + 1

    used(location(os.environ["REDRIVE_TEST_REDIS"], prefix=namespace), scene)
