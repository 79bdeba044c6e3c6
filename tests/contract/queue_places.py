"""The queue stores under test: a line each in this list, and the contract kit runs on them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from redrive import wiring
from redrive.backends.memory.queues import MemoryQueues
from redrive.backends.sqlite.database import Database
from redrive.backends.sqlite.queues import SqliteQueues
from redrive.ports.queues import QueueStore
from tests.contract.schemas import own_name, schema_of


def memory_queues(place: Path) -> QueueStore:
    return MemoryQueues()


def sqlite_queues(place: Path) -> QueueStore:
    return SqliteQueues(Database(str(place / "queues.db")))


def postgres_queues(place: Path) -> QueueStore:
    return _of(f"{os.environ['REDRIVE_TEST_POSTGRES']}?schema={schema_of(place)}")


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
