"""Stores across a network: a line each in this list, and the kit for networks runs on an engine of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from dev.engines.registry import ENGINES
from redrive.backends.opensearch import opened as opensearch
from redrive.backends.postgres import opened as postgres
from redrive.ports import LetterStore
from redrive.testing import At, Remote
from tests.contract.redis_places import on_redis, on_redis_cluster

Starter = Callable[[], AbstractContextManager[Remote]]


def postgres_letters(at: At) -> LetterStore:
    options = f"schema={at.name}&timeout={at.timeout.total_seconds():g}"
    return postgres(f"//postgres@{at.host}:{at.port}/postgres?{options}").letters


@contextmanager
def on_postgres() -> Iterator[Remote]:
    with ENGINES["postgres"].make() as engine:
        yield Remote(engine=engine, open=postgres_letters)


def opensearch_letters(at: At) -> LetterStore:
    return opensearch(f"//{at.host}:{at.port}/{at.name}?timeout={at.timeout.total_seconds():g}").letters


@contextmanager
def on_opensearch() -> Iterator[Remote]:
    with ENGINES["opensearch"].make() as engine:
        yield Remote(engine=engine, open=opensearch_letters)


REMOTES = [
    pytest.param(on_postgres, id="postgres", marks=pytest.mark.engine("postgres", own=True)),
    pytest.param(on_redis, id="redis", marks=pytest.mark.engine("redis", own=True)),
    pytest.param(on_opensearch, id="opensearch", marks=pytest.mark.engine("opensearch", own=True)),
]

CLUSTERS = [
    pytest.param(on_redis_cluster, id="redis-cluster", marks=pytest.mark.engine("redis-cluster", own=True)),
]
