"""PostgreSQL with letters in a partition for each month: it keeps the whole contract, and gives space back by the month."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

import asyncpg
import pytest

from redrive.backends.postgres import PostgresLetters, opened
from redrive.model.errors import BadSettings
from redrive.model.lease import Claim
from redrive.model.query import EVERYTHING, Field, Is, Op, Order
from redrive.model.settlement import Completed, Settled, Settlement
from redrive.ports import LetterStore
from redrive.testing import START, LetterStoreContract, Opener, letter
from redrive.testing.kit.claiming import Claiming
from redrive.testing.kit.counting import Counting
from redrive.testing.kit.holding import Holding
from redrive.testing.kit.kept import Kept
from redrive.testing.kit.machine import Sequences
from redrive.testing.kit.mending import Mending
from redrive.testing.kit.samples import is_chaos

pytestmark = pytest.mark.engine("postgres")

MONTH = timedelta(days=31)


def location(schema: str, more: str = "&partitions=month") -> str:
    return f"{os.environ['REDRIVE_TEST_POSTGRES'].partition(':')[2]}?schema={schema}{more}"


def parted_letters(place: Path) -> LetterStore:
    return opened(location(f"t{sha256(str(place).encode()).hexdigest()[:12]}")).letters


class Essentials(Holding, Counting, Claiming, Mending, Sequences, Kept):
    """Whatever depends on where a letter lies. The rest of the kit asks the same statements, and is run where thousands are."""


class TestParted(LetterStoreContract if is_chaos() else Essentials):  # type: ignore[misc]  # either is a kit
    @pytest.fixture
    def opener(self) -> Opener:
        return parted_letters

    @pytest.fixture
    def share(self) -> float:
        return 0.3


@asynccontextmanager
async def used(schema: str, more: str = "&partitions=month") -> AsyncIterator[PostgresLetters]:
    letters = opened(location(schema, more)).letters
    assert isinstance(letters, PostgresLetters)
    try:
        yield letters
    finally:
        await letters.close()


@asynccontextmanager
async def connected() -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(os.environ["REDRIVE_TEST_POSTGRES"])
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def reading(schema: str) -> AsyncIterator[None]:
    """Somebody has read all letters, and goes on with what they read before they let go of the table."""
    async with connected() as connection, connection.transaction():
        await connection.fetch(f"SELECT id FROM {schema}.letters")
        yield


async def partitions(schema: str) -> set[str]:
    async with connected() as connection:
        rows = await connection.fetch(
            "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = to_regclass($1)",
            f"{schema}.letters",
        )
    return {name for (name,) in rows}


async def number_of_others(schema: str) -> int:
    """Letters of months that have no partition."""
    async with connected() as connection:
        return int(await connection.fetchval(f"SELECT count(*) FROM {schema}.letters_others"))


def test_months_are_made_when_letters_of_them_come_and_removed_when_none_is_left(namespace: str) -> None:
    async def scene() -> None:
        now = datetime.now(UTC)
        async with used(namespace) as store:
            times = [START + number * MONTH for number in range(4)]
            await store.put([letter(str(number), at=at) for number, at in enumerate(times)], now=START)
            expected = {"letters_2025_01", "letters_2025_02", "letters_2025_03", "letters_2025_04", "letters_others"}
            assert await partitions(namespace) == expected
            assert [one.source_id for one in (await store.find(order=Order.OLDEST)).letters] == ["0", "1", "2", "3"]
            await store.purge(Is(Field.DEAD_LETTERED_AT, times[2], Op.LT), now=START)
            while await store.tidy():
                pass
            soon = {f"letters_{month:%Y_%m}" for month in (now, (now.replace(day=1) + MONTH))}
            assert await partitions(namespace) == (expected | soon) - {"letters_2025_01", "letters_2025_02"}
            # What comes late has no month any more, and is held all the same.
            await store.put([letter("late", at=START)], now=START)
            assert await store.count() == 3
            assert await store.recount() == []

    asyncio.run(scene())


def test_a_month_is_made_by_one_of_those_who_need_it(namespace: str) -> None:
    async def scene() -> None:
        async with used(namespace) as store, used(namespace) as second, used(namespace) as third:
            stores = (store, second, third)
            await asyncio.gather(*(one.count() for one in stores))
            for number in range(8):
                at = START + number * MONTH
                await asyncio.gather(*(one.put([letter(f"{number} {place}", at=at)]) for place, one in enumerate(stores)))
            assert {f"letters_{START + number * MONTH:%Y_%m}" for number in range(8)} < await partitions(namespace)
            assert await number_of_others(namespace) == 0
            assert await store.count() == 24

    asyncio.run(scene())


def test_while_a_month_cannot_be_made_letters_of_other_months_wait_for_nobody(namespace: str) -> None:
    async def scene() -> None:
        async with used(namespace) as store, used(namespace) as later:
            await store.put([letter()], now=START)
            async with reading(namespace):
                new = asyncio.create_task(store.put([letter("new", at=START + MONTH)], now=START))
                for number in range(5):
                    await store.put([letter(f"known {number}")], now=START)
                    assert not new.done()
                await new
            assert "letters_2025_02" not in await partitions(namespace)
            await later.put([letter("newer", at=START + MONTH)], now=START)
            assert await number_of_others(namespace) == 2, "the month is not made any more, for letters of it lie elsewhere"
            assert await store.count() == 8
            assert await store.recount() == []

    asyncio.run(scene())


def test_a_month_that_somebody_reads_is_removed_another_time(namespace: str) -> None:
    async def scene() -> None:
        async with used(namespace) as store:
            await store.put([letter()], now=START)
            await store.purge(EVERYTHING, now=START)
            async with reading(namespace):
                while await store.tidy():
                    pass
                assert "letters_2025_01" in await partitions(namespace)
        async with used(namespace) as store:
            await store.tidy()
            assert "letters_2025_01" not in await partitions(namespace)

    asyncio.run(scene())


@pytest.mark.parametrize("more", ["", "&partitions=month"], ids=["one table", "months"])
def test_what_autovacuum_cleans_up_behind_a_purge_it_cleans_up_slowly(namespace: str, more: str) -> None:
    """Else a checkpoint has much to make durable at once, and captures wait for it."""

    async def scene() -> None:
        async with used(namespace, more) as store:
            await store.put([letter()], now=START)
        async with connected() as connection:
            rows = await connection.fetch(
                "SELECT c.relname, 'autovacuum_vacuum_cost_delay=10' = ANY (c.reloptions) AS is_slow,"
                " t.oid IS NULL OR coalesce('autovacuum_vacuum_cost_delay=10' = ANY (t.reloptions), false) AS is_slow_behind"
                " FROM pg_class c LEFT JOIN pg_class t ON t.oid = c.reltoastrelid AND c.relname <> 'group_hours'"
                " WHERE c.relkind = 'r' AND c.relnamespace = to_regnamespace($1)"
                " AND (c.relname LIKE 'letters%' OR c.relname IN ('texts', 'group_hours'))",
                namespace,
            )
        slow = {row["relname"] for row in rows if row["is_slow"] and row["is_slow_behind"]}
        lying = {"letters_2025_01", "letters_others"} if more else {"letters"}
        assert slow == {row["relname"] for row in rows} == {*lying, "texts", "group_hours"}

    asyncio.run(scene())


def test_the_month_that_it_is_now_is_kept(namespace: str) -> None:
    async def scene() -> None:
        now = datetime.now(UTC)
        async with used(namespace) as store:
            await store.put([letter(at=now)])
            await store.purge(EVERYTHING)
            await store.tidy()
            assert f"letters_{now:%Y_%m}" in await partitions(namespace)

    asyncio.run(scene())


def test_a_letter_that_is_opened_again_in_another_month_is_the_same(namespace: str) -> None:
    async def scene() -> None:
        async with used(namespace) as store:
            await store.put([letter()], now=START)
            (claimed,) = await store.claim(Claim(owner="ann", lease=MONTH, what=(letter().id,)), now=START)
            assert await store.settle([Settlement.of(claimed.lease, Completed())], now=START) == [Settled.DONE]
            later = letter(failed=2, at=START + 2 * MONTH)
            await store.put([later], now=START + 2 * MONTH)
            (found,) = await store.get([letter().id])
            assert found is not None
            assert (found.generation, found.dead_lettered_at) == (2, later.dead_lettered_at)
            assert await store.count() == 1
            assert await store.recount() == []

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("first", "second", "sentence"),
    [
        ("&partitions=month", "", "lie in months; say partitions=month"),
        ("", "&partitions=month", "do not lie in months; leave out partitions=month"),
    ],
)
def test_a_schema_that_was_made_otherwise_is_refused(namespace: str, first: str, second: str, sentence: str) -> None:
    async def scene() -> None:
        async with used(namespace, first) as store:
            await store.put([letter()], now=START)
        async with used(namespace, second) as store:
            with pytest.raises(BadSettings, match=sentence):
                await store.count()

    asyncio.run(scene())
