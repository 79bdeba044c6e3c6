"""Redis for the kits: a prefix of its own for every test, on a server or a cluster that tests share or on one of their own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from dev.engines.registry import ENGINES
from redrive.backends.redis import opened
from redrive.ports import LetterStore
from redrive.testing import At, Remote


def redis_letters(place: Path) -> LetterStore:
    return _letters("REDRIVE_TEST_REDIS", place, "&shards=1")


def redis_cluster_letters(place: Path) -> LetterStore:
    return _letters("REDRIVE_TEST_REDIS_CLUSTER", place)


def redis_letters_at(at: At) -> LetterStore:
    return opened(f"//{at.host}:{at.port}?prefix={at.name}&timeout={at.timeout.total_seconds():g}&shards=1").letters


def redis_letters_at_cluster(at: At) -> LetterStore:
    return opened(f"//{at.host}:{at.port}?prefix={at.name}&timeout={at.timeout.total_seconds():g}").letters


@contextmanager
def on_redis() -> Iterator[Remote]:
    with ENGINES["redis"].make() as engine:
        yield Remote(engine=engine, open=redis_letters_at)


@contextmanager
def on_redis_cluster() -> Iterator[Remote]:
    """One of its nodes is killed."""
    with ENGINES["redis-cluster"].make() as engine:
        yield Remote(engine=engine, open=redis_letters_at_cluster, victim=engine.nodes[1])


def _letters(variable: str, place: Path, more: str = "") -> LetterStore:
    prefix = sha256(str(place).encode()).hexdigest()[:16]
    location = os.environ[variable].removeprefix("redis:")
    mark = "&" if "?" in location else "?"
    return opened(f"{location}{mark}prefix={prefix}{more}").letters
