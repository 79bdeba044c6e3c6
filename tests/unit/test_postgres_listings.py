"""PostgreSQL: pages of questions with several parts, and what large letters are compressed by."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta

import asyncpg
import pytest

from redrive.backends.postgres.address import address
from redrive.backends.postgres.database import Database
from redrive.backends.postgres.query import Condition, likely
from redrive.engine.housekeeper import tidied
from redrive.model.errors import StoreError
from redrive.model.query import And, Field, Is, Order, Query, Text
from redrive.model.texts import Where
from redrive.testing import START, failure, letter
from tests.unit.postgres_use import used, used_queues
from tests.unit.waiting import until

pytestmark = pytest.mark.engine("postgres")

MINUTE = timedelta(minutes=1)
SAME_ERROR = Is(Field.ERROR, failure().type)
FROM_BILLS = Is(Field.SOURCE, "bills")


@pytest.fixture
def url(namespace: str) -> str:
    return f"{os.environ['REDRIVE_TEST_POSTGRES']}?schema={namespace}"


# Farther away than what is looked at one by one first, and not as far.
@pytest.mark.parametrize("between", [1000, 10])
@pytest.mark.parametrize("order", [Order.NEWEST, Order.OLDEST, Order.UPDATED])
@pytest.mark.parametrize(
    "query", [And((SAME_ERROR, FROM_BILLS)), And((Text("once"), SAME_ERROR)), And((Is(Field.STATUS, "pending"), FROM_BILLS))]
)
def test_a_page_has_all_that_meet_every_part_however_far_they_lie_apart(
    url: str, query: Query, order: Order, between: int
) -> None:
    wanted = [
        letter(f"wanted {number}", source="bills", at=START + at, failure=failure(message="only once"))
        for number, at in enumerate([timedelta(), between * MINUTE, 2 * between * MINUTE])
    ]
    others = [letter(str(number), at=START + (number % (2 * between)) * MINUTE) for number in range(2 * between)]

    async def story() -> None:
        async with used(url) as letters:
            await letters.put([*wanted, *others], now=START)
            found, page = [], await letters.find(query, order=order, limit=2)
            found += page.letters
            assert page.next is not None
            page = await letters.find(query, order=order, limit=2, after=page.next)
            assert page.next is None
            assert sorted(one.source_id for one in [*found, *page.letters]) == [one.source_id for one in wanted]

    asyncio.run(story())


def test_of_many_letters_that_are_not_indexed_yet_it_is_told_about_how_many(url: str, namespace: str) -> None:
    async def story() -> None:
        connection = await asyncpg.connect(os.environ["REDRIVE_TEST_POSTGRES"])
        try:
            async with used(url) as letters:
                await letters.put([letter("1"), letter("2")], now=START)

                async def told() -> int:
                    return (await letters.find(Text("heron", Where.BODY))).unsearched

                assert await told() == 2
                await connection.execute(
                    f"INSERT INTO {namespace}.unread (id) SELECT gen_random_uuid() FROM generate_series(1, 11998)"
                )
                assert 5000 <= await told() <= 12000

                async def is_known() -> bool:
                    return abs(await told() - 12000) < 600

                await until(is_known)
                assert abs((await letters.tidy(0)).texts - 12000) < 600
                # However late it tells how many are left: who goes on until nothing is left does not give up.
                first, left = await tidied(letters)
                assert (first.texts > 5000, left.texts) == (True, 0)
                assert await told() == 0
        finally:
            await connection.close()

    asyncio.run(story())


@pytest.mark.parametrize("also", [None, SAME_ERROR, FROM_BILLS])
@pytest.mark.parametrize("where", [Where.BODY, Where.ANYWHERE])
@pytest.mark.parametrize("count", [3, 250])
def test_a_page_has_all_with_a_word_in_their_bodies_be_they_few_or_many(
    url: str, count: int, where: Where, also: Query | None
) -> None:
    wanted = [letter(f"wanted {number}", source="bills", body=b'{"bird": "heron"}') for number in range(count)]
    others = [letter(f"other {number}", source="bills", body=b'{"bird": "wren"}') for number in range(10)]
    if where is Where.ANYWHERE:
        wanted += [letter(f"told {number}", source="bills", failure=failure(message="a heron")) for number in range(count // 2)]
        wanted.append(letter("both", source="bills", body=b"heron", failure=failure(message="a heron")))
    text = Text("heron", where)

    async def story() -> None:
        async with used(url) as letters:
            await letters.put([*wanted, *others], now=START)
            while await letters.tidy():
                pass
            query = text if also is None else And((also, text))
            page = await letters.find(query, limit=400)
            assert sorted(one.source_id for one in page.letters) == sorted(one.source_id for one in wanted)
            assert await letters.count(query) == len(wanted)
            gone = await letters.purge(query, among=[one.id for one in [*wanted[:5], *others]])
            assert sorted(one.source_id for one in gone) == sorted(one.source_id for one in wanted[:5])

    asyncio.run(story())


@pytest.mark.parametrize("where", [Where.BODY, Where.TRACEBACK, Where.ANYWHERE])
def test_texts_of_a_few_letters_are_looked_into_and_no_others(url: str, namespace: str, where: Where) -> None:
    """Left to itself the planner goes through all texts, as soon as the few are a thousand."""
    made = [letter(str(number)) for number in range(300)]

    async def story() -> None:
        async with used(url) as letters:
            await letters.put(made, now=START)
        connection = await asyncpg.connect(os.environ["REDRIVE_TEST_POSTGRES"])
        try:
            await connection.execute(
                f"INSERT INTO {namespace}.texts SELECT gen_random_uuid(), ' heron ', ' heron ' FROM generate_series(1, 5000)"
            )
            await connection.execute(f"ANALYZE {namespace}.letters, {namespace}.texts")
            condition = Condition(namespace, Text("heron", where), None, is_for_few=True)
            few = f"(SELECT l.* FROM {namespace}.letters l ORDER BY l.dead_lettered_at LIMIT 2000) l"
            plan = await connection.fetch(f"EXPLAIN SELECT 1 FROM {few} WHERE {likely(condition.sql)}", *condition.arguments)
            (look,) = (line for (line,) in plan if " on texts " in line)
            assert "Index Scan using texts_pkey" in look
        finally:
            await connection.close()

    asyncio.run(story())


def test_who_goes_through_texts_by_their_index_leaves_nothing_behind_in_the_session(url: str) -> None:
    async def story() -> None:
        database = Database(address(url.partition(":")[2] + "&pool=1"))
        try:
            for is_of_texts, expected in ((True, "off"), (False, "on")):
                assert await database.read("SHOW enable_seqscan", is_of_texts=is_of_texts) == [(expected,)]
            with pytest.raises(StoreError):
                await database.read("SELECT 1 / 0", is_of_texts=True)
            assert await database.read("SHOW enable_seqscan") == [("on",)]
        finally:
            await database.close()

    asyncio.run(story())


@pytest.mark.parametrize("more", ["", "&partitions=month"])
def test_what_is_large_is_compressed_fast_where_the_server_can(url: str, namespace: str, more: str) -> None:
    async def story() -> None:
        async with used(url, more) as letters, used_queues(url + more) as store:
            await letters.put([letter("a", body=b"as said before, " * 1000)])
            await store.catalogue()
            connection = await asyncpg.connect(os.environ["REDRIVE_TEST_POSTGRES"])
            try:
                is_able = await connection.fetchval(
                    "SELECT EXISTS (SELECT 1 FROM pg_settings WHERE name = 'default_toast_compression' AND 'lz4' = ANY (enumvals))"
                )
                assert is_able, "this server was built without lz4: nothing is tested here"
                sizes = await connection.fetch(
                    f"SELECT pg_column_compression(data) AS way, pg_column_size(data) AS size FROM {namespace}.letters"
                )
                assert [(row["way"], row["size"] < 1000) for row in sizes] == [("lz4", True)]
                others = await connection.fetch(
                    "SELECT c.relname || '.' || a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid"
                    " JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND a.attcompression = 'l'",
                    namespace,
                )
                assert {name for (name,) in others} >= {"texts.body", "texts.traceback", "queue_items.payload"}
            finally:
                await connection.close()

    asyncio.run(story())
