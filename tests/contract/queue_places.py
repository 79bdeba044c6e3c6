"""The queue stores under test: a line each in this list, and the contract kit runs on them."""

from __future__ import annotations

import asyncio
import os
from itertools import count
from pathlib import Path
from threading import Thread

import asyncpg
import pytest

from redrive import wiring
from redrive.backends.memory.queues import MemoryQueues
from redrive.backends.sqlite.database import Database
from redrive.backends.sqlite.queues import SqliteQueues
from redrive.ports.queues import QueueStore
from tests.contract.backends import own_name


def memory_queues(place: Path) -> QueueStore:
    return MemoryQueues()


def sqlite_queues(place: Path) -> QueueStore:
    return SqliteQueues(Database(str(place / "queues.db")))


def postgres_queues(place: Path) -> QueueStore:
    return _of(f"{os.environ['REDRIVE_TEST_POSTGRES']}?schema={_schema(place)}")


def _schema(place: Path) -> str:
    """The schema of this place. To make one takes a fifth of a second: all but what several processes are to make at once take over
    one that was used some stores before, emptied."""
    if place.name == "fresh":
        return own_name(place)
    note = place / "schema"
    if not note.exists():
        name = f"queues_{os.environ.get('PYTEST_XDIST_WORKER', 'here')}_{next(_turns) % 4}"
        # A store may be opened where an event loop runs.
        emptying = Thread(target=lambda: asyncio.run(_empty(name)))
        emptying.start()
        emptying.join()
        note.write_text(name)
    return note.read_text()


_turns = count()


async def _empty(schema: str) -> None:
    connection = await asyncpg.connect(os.environ["REDRIVE_TEST_POSTGRES"])
    try:
        tables = await connection.fetch(
            "SELECT tablename FROM pg_tables WHERE schemaname = $1 AND tablename LIKE 'queue%'", schema
        )
        names = [f"{schema}.{row['tablename']}" for row in tables if row["tablename"] != "queue_catalogue"]
        if names:
            await connection.execute(f"TRUNCATE {', '.join(names)}")
            await connection.execute(f"UPDATE {schema}.queue_catalogue SET version = 0")
    finally:
        await connection.close()


def redis_queues(place: Path) -> QueueStore:
    return _of(f"{os.environ['REDRIVE_TEST_REDIS']}?prefix={own_name(place)}")


def redis_cluster_queues(place: Path) -> QueueStore:
    return _of(f"{os.environ['REDRIVE_TEST_REDIS_CLUSTER']}?prefix={own_name(place)}")


def _of(url: str) -> QueueStore:
    found = wiring.store(url, desk="memory:").queues
    assert found is not None
    return found


QUEUES = [
    pytest.param(memory_queues, id="memory"),
    pytest.param(sqlite_queues, id="sqlite"),
    pytest.param(postgres_queues, id="postgres", marks=pytest.mark.engine("postgres")),
    pytest.param(redis_queues, id="redis", marks=pytest.mark.engine("redis")),
    pytest.param(redis_cluster_queues, id="redis-cluster", marks=pytest.mark.engine("redis-cluster")),
]

SLOW: tuple[object, ...] = (postgres_queues, redis_queues, redis_cluster_queues)
"""Those that take their time: an ordinary run tries fewer generated sequences on them."""
