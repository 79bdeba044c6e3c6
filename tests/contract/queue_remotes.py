"""Queues across a network: a line each in these lists, and the kit for them runs on an engine of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count

import pytest
from msgspec.structs import replace
from redis.crc import key_slot

from dev.engines.redis_cluster import SLOTS
from dev.engines.registry import ENGINES
from redrive.backends.postgres import opened as postgres
from redrive.backends.redis import opened as redis
from redrive.backends.redis.queue_keys import QueueKeys
from redrive.ports.queues import QueueStore
from redrive.testing import At
from redrive.testing.kit.queue_lines import QueueRemote

QueueStarter = Callable[[], AbstractContextManager[QueueRemote]]


def postgres_queues(at: At, more: str = "") -> QueueStore:
    options = f"schema={at.name}&timeout={at.timeout.total_seconds():g}{more}"
    return _there(postgres(f"//postgres@{at.host}:{at.port}/postgres?{options}").queues)


def listening_queues(at: At) -> QueueStore:
    return postgres_queues(at, "&listen=yes")


@contextmanager
def on_postgres() -> Iterator[QueueRemote]:
    with ENGINES["postgres"].make() as engine:
        yield QueueRemote(engine=engine, open=postgres_queues, attentive=listening_queues)


def redis_queues(at: At) -> QueueStore:
    return _there(redis(f"//{at.host}:{at.port}?prefix={at.name}&timeout={at.timeout.total_seconds():g}").queues)


@contextmanager
def on_redis() -> Iterator[QueueRemote]:
    with ENGINES["redis"].make() as engine:
        yield QueueRemote(engine=engine, open=redis_queues)


def redis_queues_on_a_cluster(at: At) -> QueueStore:
    """All queues of a store lie on one node: here, on the second."""
    slots = range(SLOTS // 3, 2 * SLOTS // 3)
    prefixes = (f"{at.name}{number}" for number in count())
    prefix = next(one for one in prefixes if key_slot(QueueKeys(one, is_cluster=True).tag) in slots)
    return redis_queues(replace(at, name=prefix))


@contextmanager
def on_redis_cluster() -> Iterator[QueueRemote]:
    """The node that has the queues is killed."""
    with ENGINES["redis-cluster"].make() as engine:
        yield QueueRemote(engine=engine, open=redis_queues_on_a_cluster, victim=engine.nodes[1])


def _there(queues: QueueStore | None) -> QueueStore:
    assert queues is not None
    return queues


QUEUE_REMOTES = [
    pytest.param(on_postgres, id="postgres", marks=pytest.mark.engine("postgres", own=True)),
    pytest.param(on_redis, id="redis", marks=pytest.mark.engine("redis", own=True)),
]

QUEUE_CLUSTERS = [
    pytest.param(on_redis_cluster, id="redis-cluster", marks=pytest.mark.engine("redis-cluster", own=True)),
]
