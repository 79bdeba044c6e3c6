"""Queues on PostgreSQL: what the contract does not say, of positions, of what a lease costs, and of those who wait for a lock."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import asyncpg
import pytest
from msgspec import json

from redrive import AnswerLost, StoreUnavailable
from redrive.backends.postgres import PostgresQueues
from redrive.model.errors import NoSuchItem
from redrive.model.item import Again, Fresh, Place
from redrive.model.ksuid import positions, what_is_wrong
from redrive.model.queue import Shard
from redrive.testing import START, Proxy
from redrive.testing.servers import Server
from tests.engines import OwnEngine
from tests.unit.postgres_use import administrator, own_server, used_queues

pytestmark = pytest.mark.engine("postgres", "pgbouncer", own=True)

PATIENCE_SECONDS = 60
HELD_UP = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'redrive' AND wait_event_type = 'Lock'"
ORDERS = Shard(queue="orders", partitions=(0,), lease_us=60_000_000)
PAIR = Shard(queue="pair", partitions=(0, 1), lease_us=60_000_000)
SECOND = timedelta(seconds=1)
EXPLAINED = "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON)"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A PostgreSQL of these tests' own, since they end other people's sessions."""
    yield from own_server()


async def until_held_up(admin: asyncpg.Connection, waiting: asyncio.Future[Any]) -> None:
    while not await admin.fetch(HELD_UP):
        assert not waiting.done()


def many(count: int) -> list[Fresh]:
    return [Fresh(payload=str(number).encode()) for number in range(count)]


def test_positions_are_ksuids_of_their_second_and_increase_through_all_runs(server: Server, namespace: str) -> None:
    async def scene() -> None:
        async with used_queues(f"{server.url}?schema={namespace}") as queues:
            ids: list[str] = []
            for number in range(3):
                now = START + number * SECOND
                # More than a run has, so that the next is counted up to.
                put = await queues.put(ORDERS, many(10_000), now=now)
                assert not any(what_is_wrong(id) for id in put)
                # No id of this second is above all that the next one could begin with.
                assert ids[-1:] < put[:1]
                assert put[-1] < positions("", 1, int((now + SECOND).timestamp() * 1e6))[0]
                ids += put
            # A clock that went back changes nothing.
            ids += await queues.put(ORDERS, many(2), now=START)
            assert ids == sorted(set(ids))

    asyncio.run(scene())


@pytest.mark.parametrize("digits", ["zz", "0z", "zy"])
def test_a_run_is_followed_by_the_next(server: Server, namespace: str, digits: str) -> None:
    """As the model counts, where carries go through several digits."""

    async def scene() -> None:
        async with used_queues(f"{server.url}?schema={namespace}") as queues, administrator(server) as admin:
            await queues.check()
            (last,) = positions("", 1, int(START.timestamp() * 1e6))
            last = f"{last[:20]}{'z' * 5}{digits}"
            asked = f"SELECT {namespace}.queue_positions($1, 1, 5000, 1)"
            assert await admin.fetchval(asked, last) == positions(last, 5000, int(START.timestamp() * 1e6))

    asyncio.run(scene())


def test_a_lease_reads_what_it_gives_and_writes_no_item_however_much_is_there(server: Server, namespace: str) -> None:
    lease = f"SELECT * FROM {namespace}.queue_lease(NULL, 'orders', '{{0}}', 10, 60000000, 0, 0, false)"
    touched = "SELECT seq_tup_read, idx_tup_fetch, n_tup_upd FROM pg_stat_xact_user_tables WHERE relid = $1::regclass"

    async def scene() -> None:
        async with used_queues(f"{server.url}?schema={namespace}") as queues, administrator(server) as admin:
            # None of these stands in the way: scheduled, dying, of another priority, leased, completed.
            later = int((START + timedelta(days=1)).timestamp() * 1e6)
            await queues.put(ORDERS, [Fresh(enqueue_us=later)] * 3000, now=START)
            await queues.put(ORDERS, many(2000), now=START)
            leased = await queues.lease(ORDERS, 1000, now=START)
            await queues.retry(ORDERS, 0, [Again(id=item.id, dead=True) for item in leased.items[:500]], now=START)
            await queues.complete(ORDERS, 0, [item.id for item in leased.items[500:900]], now=START)
            await queues.put(ORDERS, many(5000), now=START)
            async with admin.transaction():
                assert len(await admin.fetch(lease)) == 11
                ((in_all, by_index, changed),) = await admin.fetch(touched, f"{namespace}.queue_items")
                assert (in_all, changed) == (0, 0)
                assert by_index <= 20

    asyncio.run(scene())


def test_a_lease_and_its_end_touch_as_much_of_the_store_at_any_backlog(server: Server, namespace: str) -> None:
    """Not only items that are read count, also entries of indexes that are passed over: so, by blocks."""

    async def scene() -> None:
        async with used_queues(f"{server.url}?schema={namespace}") as queues, administrator(server) as admin:

            async def blocks(sql: str, *args: object) -> int:
                (told,) = json.decode(await admin.fetchval(f"{EXPLAINED} {sql}", *args))
                return int(told["Plan"]["Shared Hit Blocks"] + told["Plan"]["Shared Read Blocks"])

            async def touched() -> list[int]:
                lease = await blocks(f"SELECT * FROM {namespace}.queue_lease(NULL, 'pair', '{{0}}', 10, 60000000, 0, 0, false)")
                held = await queues.items(PAIR, 0, frozenset([Place.LEASED]))
                complete = f"SELECT * FROM {namespace}.queue_complete(NULL, 'pair', 0, $1)"
                return [lease, await blocks(complete, [item.id for item in held])]

            await queues.put(PAIR, [Fresh(partition=0)] * 100)
            await touched()
            before = await touched()
            for _ in range(6):
                await queues.put(PAIR, [Fresh(partition=number) for number in (0, 1)] * 5000)
            assert all(after < 50 + then for after, then in zip(await touched(), before, strict=True))

    asyncio.run(scene())


def test_a_lease_of_which_some_are_held_longer_is_one_for_each(server: Server, namespace: str) -> None:
    async def scene() -> None:
        async with used_queues(f"{server.url}?schema={namespace}") as queues:
            await queues.put(ORDERS, many(5), now=START)
            ids = [item.id for item in (await queues.lease(ORDERS, 5, now=START)).items]
            for id in (ids[0], ids[3]):
                await queues.extend(ORDERS, 0, [id], 7_200_000_000, now=START)
            swept = await queues.sweep(ORDERS, now=START + timedelta(hours=1))
            assert swept.ready == 3
            held = await queues.items(ORDERS, 0, frozenset([Place.LEASED]))
            assert [item.id for item in held] == [ids[0], ids[3]]
            await queues.complete(ORDERS, 0, [ids[3], ids[0]], now=START + timedelta(hours=1))
            assert [stats.leased for stats in await queues.stats(ORDERS)] == [0]

    asyncio.run(scene())


def test_who_waited_for_the_fullest_partition_and_finds_it_empty_gets_the_others(server: Server, namespace: str) -> None:
    async def scene() -> None:
        async with used_queues(f"{server.url}?schema={namespace}") as queues, administrator(server) as admin:
            await queues.put(PAIR, [Fresh(payload=b"a", partition=0), Fresh(payload=b"b", partition=0), Fresh(partition=1)])
            async with admin.transaction():
                taken = f"SELECT * FROM {namespace}.queue_lease(NULL, 'pair', '{{0}}', 10, 60000000, 0, 0, false)"
                assert len(await admin.fetch(taken)) == 3
                waiting = asyncio.ensure_future(queues.lease(PAIR, 10))
                await until_held_up(admin, waiting)
            leased = await waiting
            assert (leased.partition, len(leased.items)) == (1, 1)

    asyncio.run(scene())


def test_texts_that_the_server_cannot_hold_come_back_as_they_were(server: Server, namespace: str) -> None:
    odd = "nul \0, one \1, both \1\0, and ü"

    async def scene() -> None:
        async with used_queues(f"{server.url}?schema={namespace}") as queues:
            shard = Shard(queue=odd, partitions=(0,), lease_us=60_000_000, dedupe_us=1)
            fresh = Fresh(
                payload=b"\0", reference=odd, encoding=odd, kind=odd, key=odd, story=b"\0", message_id=odd, source_id=odd
            )
            await queues.put(shard, [fresh])
            (item,) = (await queues.lease(shard, 1)).items
            names = ("reference", "encoding", "kind", "key", "message_id", "source_id")
            assert {getattr(item, name) for name in names} == {odd}
            assert [due.queue for due in await queues.next_due()] == [odd]
            with pytest.raises(NoSuchItem) as refused:
                await queues.delete(shard, 0, [odd])
            assert refused.value.id == odd

    asyncio.run(scene())


def test_a_session_that_is_ended_while_it_waits_has_put_nothing(server: Server, namespace: str) -> None:
    async def scene() -> None:
        async with used_queues(f"{server.url}?schema={namespace}") as queues, administrator(server) as admin:
            await queues.put(ORDERS, many(1))
            async with admin.transaction():
                await admin.execute(f"SELECT 1 FROM {namespace}.queue_parts FOR UPDATE")
                waiting = asyncio.ensure_future(queues.put(ORDERS, many(1)))
                await until_held_up(admin, waiting)
                await admin.execute(HELD_UP.replace("SELECT 1", "SELECT pg_terminate_backend(pid)"))
                with pytest.raises(StoreUnavailable):
                    await waiting
            assert [stats.ready for stats in await queues.stats(ORDERS)] == [1]

    asyncio.run(scene())


def test_a_line_that_is_cut_while_it_is_put_loses_the_answer(server: Server, namespace: str) -> None:
    async def scene(line: Proxy) -> None:
        through = f"{server.url}?schema={namespace}".replace(f":{server.port}/", f":{line.port}/")
        async with used_queues(through) as queues, administrator(server) as admin:
            await queues.put(ORDERS, many(1))
            async with admin.transaction():
                await admin.execute(f"SELECT 1 FROM {namespace}.queue_parts FOR UPDATE")
                waiting = asyncio.ensure_future(queues.put(ORDERS, many(1)))
                await until_held_up(admin, waiting)
                line.cut()
                with pytest.raises(AnswerLost):
                    await waiting

    with Proxy(server.host, server.port) as line:
        asyncio.run(scene(line))


def test_many_callers_share_a_small_pooler(own_engine: OwnEngine, server: Server, namespace: str) -> None:
    pooler = own_engine("pgbouncer", target=server.url, pool=2)

    async def work(queues: PostgresQueues, number: int) -> list[bytes]:
        done: list[bytes] = []
        for item in range(5):
            await queues.put(PAIR, [Fresh(payload=f"{number}/{item}".encode())])
            leased = await queues.lease(PAIR, 2)
            await queues.complete(PAIR, leased.partition, [one.id for one in leased.items])
            done += [one.payload for one in leased.items]
        return done

    async def scene() -> None:
        where = f"{pooler.url}?schema={namespace}&pool=4"
        async with used_queues(where) as one, used_queues(where) as other:
            done = await asyncio.gather(*(work(queues, number) for number, queues in enumerate([one, other] * 5)))
            rest = [(await one.lease(PAIR, 100)).items for _ in range(2)]
            finished = [payload for some in done for payload in some] + [item.payload for some in rest for item in some]
            assert sorted(finished) == sorted(f"{number}/{item}".encode() for number in range(10) for item in range(5))

    asyncio.run(scene())


def test_those_who_wait_are_woken_by_a_notice(server: Server, namespace: str) -> None:
    async def scene() -> None:
        where = f"{server.url}?schema={namespace}&listen=yes"
        async with used_queues(where) as ours, used_queues(where) as theirs:
            await theirs.check()
            waiting = asyncio.ensure_future(ours.changed(timedelta(seconds=PATIENCE_SECONDS / 3)))
            async with administrator(server) as admin:
                while not await admin.fetch("SELECT 1 FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND state = 'idle'"):
                    assert not waiting.done()
            await theirs.put(ORDERS, many(1))
            await asyncio.wait_for(waiting, PATIENCE_SECONDS / 6)

    asyncio.run(scene())
