"""Connections to PostgreSQL: who waits for one takes the first that there is, and none is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import asyncpg
import pytest

from redrive.backends.postgres import pool as pools
from redrive.backends.postgres.pool import FAILURES, Pool
from redrive.model.amendment import Amendment
from redrive.model.arrival import Held
from redrive.testing import START, letter
from redrive.testing.servers import Server
from tests.unit.postgres_use import PATIENCE_SECONDS, administrator, own_server, used
from tests.unit.waiting import until

pytestmark = pytest.mark.engine("postgres", own=True)

server = pytest.fixture(scope="module")(own_server)


class Door:
    """Opens connections, each when it is let in; or fails."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.asked = 0
        self.error: Exception | None = None
        """What everybody hears."""
        self.errors: list[Exception] = []
        """What those who are next hear, each one of it."""
        self.rehearsed: list[int] = []

    async def connected(self) -> asyncpg.Connection:
        self.asked += 1
        await self.is_open.wait()
        if self.errors:
            raise self.errors.pop()
        if self.error is not None:
            raise self.error
        return await asyncpg.connect(self._url, server_settings={"application_name": "pooled"})

    async def rehearse(self, connection: asyncpg.Connection) -> None:
        self.rehearsed.append(connection.get_server_pid())


@asynccontextmanager
async def opened(server: Server, most: int = 2, patience_seconds: float = PATIENCE_SECONDS) -> AsyncIterator[tuple[Pool, Door]]:
    async with asyncio.timeout(PATIENCE_SECONDS):
        door = Door(server.url)
        pool = Pool(most, open=door.connected, rehearse=door.rehearse, patience_seconds=patience_seconds)
        try:
            yield pool, door
        finally:
            door.is_open.set()
            await pool.close()


async def number(pool: Pool) -> int:
    """Use a connection; which process of the server it is of."""
    async with pool.connection() as connection:
        pid: int = await connection.fetchval("SELECT pg_backend_pid()")
        return pid


async def sessions(server: Server) -> int:
    async with administrator(server) as admin:
        count: int = await admin.fetchval("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pooled'")
        return count


def played(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scene())


def test_who_finds_none_free_takes_the_one_that_comes_free_before_a_new_one_is_there(server: Server) -> None:
    async def scene() -> None:
        async with opened(server) as (pool, door):
            async with pool.connection() as first:
                door.is_open.clear()
                second = asyncio.create_task(number(pool))
                await until(lambda: door.asked == 2)
                assert not second.done()
            assert await second == first.get_server_pid()
            assert not door.is_open.is_set(), "the new one is still not there"
            door.is_open.set()

    played(scene)


def test_what_is_made_beside_others_rehearses_before_anybody_has_it(server: Server) -> None:
    async def scene() -> None:
        async with opened(server) as (pool, door), pool.connection(), pool.connection() as second:
            assert door.rehearsed == [second.get_server_pid()], "the first of all is needed at once"

    played(scene)


def test_there_are_never_more_than_may_be(server: Server) -> None:
    async def scene() -> None:
        async with opened(server, most=3) as (pool, door):
            async with pool.connection(), pool.connection(), pool.connection():
                waiting = [asyncio.create_task(number(pool)) for _ in range(60)]
                await until(lambda: len(pool._waiting) == 60)
                assert door.asked == 3
            assert len(set(await asyncio.gather(*waiting))) <= 3
            assert door.asked == 3
            assert await sessions(server) == 3
        await until(partial(_none_left, server))

    played(scene)


async def _none_left(server: Server) -> bool:
    return await sessions(server) == 0


def test_they_are_made_one_after_another(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "_OPENING_SECONDS", PATIENCE_SECONDS)

    async def scene() -> None:
        async with opened(server, most=5) as (pool, door), pool.connection():
            door.is_open.clear()
            waiting = [asyncio.create_task(number(pool)) for _ in range(4)]
            await until(lambda: door.asked == 2)
            for _ in range(10):
                await asyncio.sleep(0)
            assert door.asked == 2, "another is made when this one is there, if anybody still waits"
            door.is_open.set()
            await asyncio.gather(*waiting)

    played(scene)


def test_one_that_takes_long_keeps_nobody_from_another(server: Server) -> None:
    async def scene() -> None:
        async with opened(server, most=4) as (pool, door), pool.connection():
            door.is_open.clear()
            waiting = [asyncio.create_task(number(pool)) for _ in range(9)]
            await until(lambda: door.asked == 4)
            door.is_open.set()
            assert len(await asyncio.gather(*waiting)) == 9
            assert door.asked == 4

    played(scene)


def test_each_who_waits_hears_that_none_can_be_made_and_the_next_one_tries_anew(server: Server) -> None:
    async def scene() -> None:
        async with opened(server) as (pool, door):
            door.error = ConnectionRefusedError("nobody is there")
            became = await asyncio.gather(*(number(pool) for _ in range(5)), return_exceptions=True)
            assert [type(one) for one in became] == [ConnectionRefusedError] * 5
            door.error = None
            assert await number(pool)

    played(scene)


def test_who_came_after_a_connection_was_begun_does_not_hear_that_it_failed(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "_OPENING_SECONDS", PATIENCE_SECONDS)

    async def scene() -> None:
        async with opened(server) as (pool, door):
            door.is_open.clear()
            early = asyncio.create_task(number(pool))
            await until(lambda: door.asked == 1)
            early.cancel()
            await asyncio.gather(early, return_exceptions=True)
            late = asyncio.create_task(number(pool))
            await until(lambda: pool._waiting)
            door.errors = [TimeoutError("the line was silent")]
            door.is_open.set()
            assert await late

    played(scene)


def test_a_connection_that_comes_when_nobody_wants_it_any_more_is_kept(server: Server) -> None:
    async def scene() -> None:
        async with opened(server, most=1) as (pool, door):
            async with pool.connection() as only:
                late = asyncio.create_task(number(pool))
                await until(lambda: pool._waiting)
            # It was handed over just now, and who wanted it was not told yet.
            late.cancel()
            with pytest.raises(asyncio.CancelledError):
                await late
            assert await number(pool) == only.get_server_pid()
            assert door.asked == 1

    played(scene)


def test_who_has_waited_for_too_long_is_told(server: Server) -> None:
    async def scene() -> None:
        async with opened(server, most=1, patience_seconds=0.05) as (pool, _):
            async with pool.connection():
                with pytest.raises(TimeoutError):
                    await number(pool)
            assert await number(pool)

    played(scene)


def test_what_was_given_up_is_ended_at_the_server_before_another_has_the_connection(server: Server) -> None:
    async def scene() -> None:
        async with opened(server, most=1) as (pool, door):
            pid = await number(pool)

            async def long() -> None:
                async with pool.connection() as connection:
                    await connection.execute("SELECT pg_sleep(600)")

            task = asyncio.create_task(long())
            async with administrator(server) as admin:
                query = "SELECT 1 FROM pg_stat_activity WHERE pid = $1 AND state = 'active'"
                await until(lambda: admin.fetch(query, pid))
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert not await admin.fetch(query, pid)
            assert await number(pool) == pid
            assert door.asked == 1

    played(scene)


def test_a_connection_that_somebody_left_within_a_transaction_is_not_lent_again(server: Server) -> None:
    async def scene() -> None:
        async with opened(server, most=1) as (pool, door):
            async with pool.connection() as connection:
                pid = connection.get_server_pid()
                await connection.execute("BEGIN")
            assert await number(pool) != pid
            assert door.asked == 2

    played(scene)


@pytest.mark.parametrize("verb", ["amend", "put"])
def test_what_is_given_up_at_any_moment_takes_nothing_that_follows_with_it(server: Server, namespace: str, verb: str) -> None:
    async def scene() -> None:
        async with used(f"{server.url}?schema={namespace}&pool=1") as letters, administrator(server) as admin:

            async def given_up(steps: int) -> bool:
                acts = {
                    "amend": partial(letters.amend, [Amendment(id=letter("first").id, body=str(steps).encode())]),
                    "put": partial(letters.put, [letter(f"given up {steps}")]),
                }
                task = asyncio.ensure_future(acts[verb]())
                for _ in range(steps):
                    await asyncio.sleep(0)
                is_in_time = task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                return is_in_time

            await letters.put([letter("first")])
            in_time = 0
            for steps in range(60):
                in_time += await given_up(steps)
                kept = letter(f"kept {steps}")
                assert await letters.put([kept]) == [Held.NEW]
                assert await admin.fetchval(f"SELECT count(*) FROM {namespace}.letters WHERE id = $1", kept.id) == 1
            assert in_time > 5, "it was not given up while it was under way"

    played(scene)


def test_what_the_server_has_ended_is_replaced_for_those_who_wait(server: Server) -> None:
    async def ended(pool: Pool, waiting: list[asyncio.Task[int]]) -> None:
        async with pool.connection() as connection, administrator(server) as admin:
            waiting += [asyncio.create_task(number(pool)) for _ in range(3)]
            await until(lambda: len(pool._waiting) == 3)
            await admin.execute("SELECT pg_terminate_backend($1)", connection.get_server_pid())
            await connection.fetch("SELECT")

    async def scene() -> None:
        async with opened(server, most=1) as (pool, door):
            waiting: list[asyncio.Task[int]] = []
            with pytest.raises(FAILURES):
                await ended(pool, waiting)
            assert len(set(await asyncio.gather(*waiting))) == 1
            assert door.asked == 2

    played(scene)


def test_what_nobody_has_used_for_long_is_closed(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        async with opened(server) as (pool, _):
            async with pool.connection(), pool.connection():
                assert await sessions(server) == 2
            await until(partial(_none_left, server))
            assert await number(pool)

    monkeypatch.setattr(pools, "_IDLE_SECONDS", 0.2)
    played(scene)


def test_closing_waits_for_those_who_are_at_work_and_lets_nobody_in(server: Server) -> None:
    async def scene() -> None:
        async with opened(server, most=1) as (pool, _):
            async with pool.connection() as connection:
                late = asyncio.create_task(number(pool))
                await until(lambda: pool._waiting)
                closing = asyncio.create_task(pool.close())
                with pytest.raises(asyncpg.InterfaceError):
                    await late
                assert await connection.fetchval("SELECT 1") == 1
                assert not closing.done()
            await closing
            assert connection.is_closed()
            with pytest.raises(asyncpg.InterfaceError):
                await number(pool)

    played(scene)


def test_a_connection_that_was_made_while_others_are_at_work_has_done_a_put_before(server: Server, namespace: str) -> None:
    async def scene() -> None:
        async with used(f"{server.url}?schema={namespace}") as letters:
            await letters.put([letter("first")], now=START)
            pool = await letters._database._pools.get()
            async with pool.connection(), pool.connection() as second:
                known = await second.fetch("SELECT statement FROM pg_prepared_statements")
                assert letters._sql.insert_new_soon in {statement for (statement,) in known}
            assert await letters.count(now=START) == 1, "and changed nothing by it"

    played(scene)
