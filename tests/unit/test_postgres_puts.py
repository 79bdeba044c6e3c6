"""Puts on PostgreSQL: those that meet are written by one transaction, and each has its own answer."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

import pytest

from redrive.backends.postgres import PostgresLetters
from redrive.backends.postgres.puts import columns
from redrive.backends.postgres.statements import statements
from redrive.backends.postgres.tables import Tables
from redrive.model.arrival import Held
from redrive.model.errors import AnswerLost, StoreUnavailable
from redrive.model.letter import Letter
from redrive.testing import START, letter
from redrive.testing.servers import Server
from tests.unit.postgres_use import administrator, own_server, used

pytestmark = pytest.mark.engine("postgres", own=True)

server = pytest.fixture(scope="module")(own_server)


async def put_at_once(letters: PostgresLetters, some: Sequence[Letter]) -> list[Held]:
    """Each by a caller of its own."""
    return [held for (held,) in await asyncio.gather(*(letters.put([one], now=START) for one in some))]


async def transactions(server: Server, schema: str) -> int:
    """How many have written the letters that are there."""
    async with administrator(server) as admin:
        count: int = await admin.fetchval(f"SELECT count(DISTINCT xmin::text) FROM {schema}.letters")
        return count


def test_a_hundred_callers_share_a_few_transactions(server: Server) -> None:
    async def scene() -> None:
        async with used(server.url, "?schema=meeting") as letters:
            some = [letter(f"order-{number}") for number in range(100)]
            assert await put_at_once(letters, some) == [Held.NEW] * 100
            assert await letters.count() == 100
            assert await transactions(server, "meeting") <= 4
            assert await letters.recount() == []

    asyncio.run(scene())


def test_who_meets_somebody_with_a_letter_that_is_there_is_answered_for_its_own(server: Server) -> None:
    async def scene() -> None:
        async with used(server.url, "?schema=mixed") as letters:
            before = [letter(f"order-{number}") for number in range(0, 30, 3)]
            await letters.put(before, now=START)
            answers = await put_at_once(letters, [letter(f"order-{number}") for number in range(30)])
            assert answers == [Held.NEW if number % 3 else Held.DUPLICATE for number in range(30)]
            assert await letters.count() == 30
            assert await letters.recount() == []

    asyncio.run(scene())


def test_those_who_meet_go_together_though_one_letter_is_there(server: Server) -> None:
    async def scene() -> None:
        async with used(server.url, "?schema=one_known") as letters:
            await letters.put([letter("order-50")], now=START)
            answers = await put_at_once(letters, [letter(f"order-{number}") for number in range(100)])
            assert Counter(answers) == {Held.NEW: 99, Held.DUPLICATE: 1}
            assert await transactions(server, "one_known") <= 5
            assert await letters.recount() == []

    asyncio.run(scene())


@pytest.mark.parametrize("more", ["", "&partitions=month"])
def test_nobody_waits_for_anothers_letter_that_somebody_is_about_to_write(server: Server, more: str) -> None:
    """As a process that is frozen within its transaction may be for long: only who has the same letter waits for it."""

    async def scene() -> None:
        schema = "blocked_months" if more else "blocked"
        async with used(server.url, f"?schema={schema}{more}") as letters, administrator(server) as frozen:
            await letters.put([letter("first")], now=START)
            block = letter("order-5")
            await frozen.execute("BEGIN")
            await frozen.fetch(statements(Tables(schema, bool(more))).insert_new, *columns([block]))
            some = [letter(f"order-{number}") for number in range(20)]
            waiting = {one.id: asyncio.create_task(letters.put([one], now=START)) for one in some}
            blocked = waiting.pop(block.id)
            assert await asyncio.gather(*waiting.values()) == [[Held.NEW]] * 19
            assert await put_at_once(letters, [letter("late-1"), letter("late-2")]) == [Held.NEW] * 2
            assert not blocked.done()
            await frozen.execute("ROLLBACK")
            assert await blocked == [Held.NEW]
            assert await letters.count() == 23
            assert await letters.recount() == []

    asyncio.run(scene())


def test_a_server_that_stands_still_holds_nobody_up_for_more_than_one_call(server: Server) -> None:
    """However many put: the last of them does not wait for the calls of all the others."""

    async def scene() -> None:
        async with used(server.url, "?schema=still&timeout=2") as letters:
            await letters.put([letter("first")], now=START)
            server.pause()
            try:
                puts = (letters.put([letter(f"order-{number}")], now=START) for number in range(1000))
                async with asyncio.timeout(10):
                    answers = await asyncio.gather(*puts, return_exceptions=True)
            finally:
                server.resume()
            kinds = Counter(type(answer) for answer in answers)
            assert kinds.keys() == {AnswerLost, StoreUnavailable}
            assert kinds[StoreUnavailable] >= 799, "of most it is known that they were not sent"

    asyncio.run(scene())


def test_the_same_letter_from_many_callers_is_there_once(server: Server) -> None:
    async def scene() -> None:
        async with used(server.url, "?schema=same") as letters:
            answers = await put_at_once(letters, [letter("order-1") for _ in range(20)])
            assert Counter(answers) == {Held.NEW: 1, Held.DUPLICATE: 19}
            assert await letters.count() == 1

    asyncio.run(scene())


def test_who_puts_many_waits_for_nobody(server: Server) -> None:
    """A batch goes by itself, and neither holds up nor waits for those who gather."""

    async def scene() -> None:
        async with used(server.url, "?schema=many") as letters:
            many = [letter(f"batch-{number}") for number in range(100)]
            single = [letter(f"order-{number}") for number in range(40)]
            batch, answers = await asyncio.gather(letters.put(many, now=START), put_at_once(letters, single))
            assert set(batch) == set(answers) == {Held.NEW}
            async with administrator(server) as admin:
                of_batch = "SELECT count(DISTINCT xmin::text), count(*) FROM many.letters WHERE source_id LIKE 'batch%'"
                assert tuple(await admin.fetchrow(of_batch)) == (1, 100)
                of_all = "SELECT count(DISTINCT xmin::text), count(*) FROM many.letters"
                written, held = await admin.fetchrow(of_all)
                assert (1 < written <= 5, held) == (True, 140)

    asyncio.run(scene())
