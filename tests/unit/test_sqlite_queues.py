"""Queues on SQLite: what is its own, beyond the contract. Callers who share a transaction, processes that share a file, costs."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from redrive.backends.sqlite import Database, SqliteQueues, opened
from redrive.backends.sqlite.queue_rows import read
from redrive.model.errors import NoSuchItem, NotLeased, QueueGone
from redrive.model.item import Again, Fresh, Leased, Place, Swept
from redrive.model.queue import Shard
from redrive.ports.inline import drive
from redrive.testing import START
from tests.unit.sqlite_use import steps

ORDERS = Shard(queue="orders", partitions=(0,), lease_us=60_000_000, expire_us=3_600_000_000, max_attempts=2)
READY, LEASED = frozenset({Place.READY}), frozenset({Place.LEASED})


def fresh(count: int, **changes: Any) -> list[Fresh]:
    return [Fresh(**{"payload": b"%d" % number, **changes}) for number in range(count)]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "redrive.db")


@asynccontextmanager
async def opened_at(path: str) -> AsyncIterator[SqliteQueues]:
    queues = SqliteQueues(Database(path))
    yield queues
    await queues.close()


def on(path: str, work: Callable[[SqliteQueues], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        async with opened_at(path) as queues:
            await work(queues)

    asyncio.run(run())


async def stand(queues: SqliteQueues) -> tuple[int, int]:
    """Ready and leased, as they are counted, which must be what is there."""
    (stats,) = await queues.stats(ORDERS)
    ready, leased = [await queues.items(ORDERS, 0, places, limit=100_000) for places in (READY, LEASED)]
    assert (stats.ready, stats.leased) == (len(ready), len(leased))
    return stats.ready, stats.leased


def test_callers_at_the_same_time_never_get_the_same_item(path: str) -> None:
    async def work(queues: SqliteQueues) -> None:
        await queues.put(ORDERS, fresh(95))
        leased = await asyncio.gather(*(queues.lease(ORDERS, 10) for _ in range(12)))
        assert [len(one.items) for one in leased] == [10] * 9 + [5, 0, 0]
        assert len({item.id for one in leased for item in one.items}) == 95
        assert await stand(queues) == (0, 95)

    on(path, work)


def test_one_who_is_refused_does_not_disturb_those_who_asked_with_him(path: str) -> None:
    async def work(queues: SqliteQueues) -> None:
        ids = await queues.put(ORDERS, fresh(30))
        await queues.lease(ORDERS, 29)
        asked = [ids[:10], [*ids[10:12], ids[29]], ids[12:20], ["0" * 27], ids[5:8]]
        answers = await asyncio.gather(*(queues.complete(ORDERS, 0, some) for some in asked), return_exceptions=True)
        assert [type(answer) for answer in answers] == [type(None), NotLeased, type(None), NoSuchItem, NoSuchItem]
        assert await stand(queues) == (1, 11)

    on(path, work)


def test_what_is_done_at_the_same_time_is_done_as_one_after_another(path: str) -> None:
    async def worker(queues: SqliteQueues, number: int) -> None:
        for turn in range(6):
            await queues.put(ORDERS, fresh(10, reference=str(number), priority=number % 3))
            leased = await queues.lease(ORDERS, 10)
            ids = [item.id for item in leased.items]
            await queues.extend(ORDERS, 0, ids[turn : turn + 3], 90_000_000)
            await queues.complete(ORDERS, 0, ids[::2])
            await queues.retry(ORDERS, 0, [Again(id=id, dead=turn == 3) for id in ids[1:8:2]])
            await queues.delete(ORDERS, 0, ids[9:])

    async def work(queues: SqliteQueues) -> None:
        await asyncio.gather(*(worker(queues, number) for number in range(6)))
        ready, leased = await stand(queues)
        (stats,) = await queues.stats(ORDERS)
        assert leased == 0
        assert ready + stats.dying == 6 * 6 * 10 - 6 * 6 * 6

    on(path, work)


def test_a_lease_of_which_parts_were_extended_and_done_ends_part_by_part(path: str) -> None:
    async def work(queues: SqliteQueues) -> None:
        await queues.put(ORDERS, fresh(10), now=START)
        ids = [item.id for item in (await queues.lease(ORDERS, 10, now=START)).items]
        await queues.extend(ORDERS, 0, [ids[2], ids[3], ids[7]], 120_000_000, now=START)
        await queues.complete(ORDERS, 0, [ids[0], ids[3], ids[9]], now=START)
        await queues.delete(ORDERS, 0, [ids[4]], now=START)
        assert await queues.sweep(ORDERS, now=START + timedelta(seconds=61)) == Swept(ready=4)
        assert [item.id for item in await queues.items(ORDERS, 0, LEASED)] == [ids[2], ids[7]]
        await queues.complete(ORDERS, 0, [ids[7], ids[2]], now=START + timedelta(seconds=61))
        assert await stand(queues) == (4, 0)

    on(path, work)


def test_a_lease_and_its_end_cost_the_same_at_any_backlog(path: str) -> None:
    def cost(backlog: int) -> tuple[int, int]:
        database = Database(f"{path}.{backlog}")
        queues = SqliteQueues(database)
        for _ in range(backlog // 500):
            drive(queues.put(ORDERS, fresh(500), now=START))
        leased: list[Leased] = []
        with sqlite3.connect(database.path, isolation_level=None) as connection:
            one = steps(connection, lambda connection: leased.extend(act(connection, queues, "lease")))
            ids = [item.id for item in leased[0].items]
            other = steps(connection, lambda connection: act(connection, queues, "complete", ids))
        connection.close()
        drive(queues.close())
        return one, other

    def act(connection: sqlite3.Connection, queues: SqliteQueues, what: str, ids: list[str] | None = None) -> list[Any]:
        from redrive.backends.sqlite import queues as module

        request = module._Lease(ORDERS, 100, 0, START) if what == "lease" else module._Complete(ORDERS, 0, ids or [], START)
        return queues._run(connection, [request])

    assert cost(500) == cost(20_000)


def test_items_too_large_to_be_read_at_once_are_read_one_by_one(path: str) -> None:
    drive(SqliteQueues(Database(path)).put(ORDERS, fresh(9, payload=b"x" * 1000)))
    with sqlite3.connect(path) as connection:
        whole = read(connection, "lane = 9", [])
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 5000)
        assert read(connection, "lane = 9", []) == whole
        assert len(whole) == 9
    connection.close()


def test_the_clock_does_not_go_back_behind_what_a_queue_has_seen(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() + 3600 * 10**9)
    queues = SqliteQueues(Database(path))
    drive(queues.put(ORDERS, fresh(1)))
    ahead = drive(queues.lease(ORDERS, 1)).until_us
    drive(queues.close())
    monkeypatch.undo()
    queues = SqliteQueues(Database(path))
    drive(queues.put(ORDERS, fresh(1)))
    assert drive(queues.lease(ORDERS, 1)).until_us >= ahead
    drive(queues.close())


def test_another_process_is_heard_and_oneself_is_not(path: str) -> None:
    async def work(queues: SqliteQueues) -> None:
        await queues.put(ORDERS, fresh(1))
        await queues.changed(timedelta())
        waiting = asyncio.create_task(queues.changed(timedelta(seconds=30)))
        await queues.put(ORDERS, fresh(1))
        done, _ = await asyncio.wait([waiting], timeout=0.3)
        assert not done
        async with opened_at(path) as other:
            await other.put(ORDERS, fresh(1))
        await asyncio.wait_for(waiting, 10)

    on(path, work)


def test_queues_lie_in_the_file_of_the_letters(tmp_path: Path) -> None:
    store = opened(f"{tmp_path}/redrive.db")
    assert store.queues is not None
    (id,) = drive(store.queues.put(ORDERS, fresh(1)))
    assert [item.id for item in drive(store.queues.items(ORDERS, 0, READY))] == [id]
    assert drive(store.letters.count()) == 0
    drive(store.letters.close())


def test_what_was_removed_stays_gone_for_another_process(path: str) -> None:
    async def work(queues: SqliteQueues) -> None:
        await queues.put(ORDERS, fresh(3))
        async with opened_at(path) as other:
            await other.put(ORDERS, fresh(3))
            await queues.remove(ORDERS)
            with pytest.raises(QueueGone):
                await other.put(ORDERS, fresh(3))
            with pytest.raises(QueueGone):
                await other.put(replace(ORDERS, partitions=(1, 0)), fresh(3))
            answers = await asyncio.gather(
                other.lease(ORDERS, 1), other.put(replace(ORDERS, queue="others"), fresh(1)), return_exceptions=True
            )
            assert isinstance(answers[0], QueueGone)
            assert isinstance(answers[1], list)

    on(path, work)
