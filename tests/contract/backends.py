"""The backends under test: a line each in these lists, and the contract kits run on them."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pytest

from redrive.backends.memory.desk import MemoryDesk
from redrive.backends.memory.letters import MemoryLetters
from redrive.backends.opensearch import opened as opensearch
from redrive.backends.postgres import opened as postgres
from redrive.backends.sqlite.database import Database
from redrive.backends.sqlite.desk import SqliteDesk
from redrive.backends.sqlite.letters import SqliteLetters
from redrive.ports import Desk, LetterStore
from redrive.testing import DeskOpener, Run
from tests.contract.redis_places import redis_cluster_letters, redis_letters
from tests.contract.schemas import own_name, schema_of


def memory_letters(place: Path) -> LetterStore:
    return MemoryLetters()


def sqlite_letters(place: Path) -> LetterStore:
    return SqliteLetters(Database(str(place / "letters.db")))


def postgres_letters(place: Path) -> LetterStore:
    return postgres(_postgres("REDRIVE_TEST_POSTGRES", place)).letters


def pooled_letters(place: Path) -> LetterStore:
    """PostgreSQL behind pgbouncer in transaction mode, heard directly."""
    direct = urlsplit(os.environ["REDRIVE_TEST_POSTGRES"]).netloc.rpartition("@")[2]
    return postgres(f"{_postgres('REDRIVE_TEST_PGBOUNCER', place)}&listen={direct}").letters


def opensearch_letters(place: Path) -> LetterStore:
    return opensearch(f"{os.environ['REDRIVE_TEST_OPENSEARCH'].partition(':')[2]}/{_index(place)}").letters


def _index(place: Path) -> str:
    """The index of this place. To make one takes a tenth of a second, and a node has room for a thousand: all but what several
    processes are to make at once take over one that was used some stores before, emptied."""
    if place.name == "fresh":
        return own_name(place)
    note = place / "index"
    if not note.exists():
        name = f"kit-{os.getpid()}-{next(_turns) % 8}"
        for verb, body in (("_refresh?", b"{}"), ("_delete_by_query?conflicts=proceed&", b'{"query":{"match_all":{}}}')):
            url = f"{os.environ['REDRIVE_TEST_OPENSEARCH']}/{name}/{verb}ignore_unavailable=true"
            with urlopen(Request(url, body, {"Content-Type": "application/json"}), timeout=60):
                pass
        note.write_text(name)
    return note.read_text()


_turns = itertools.count()


@contextmanager
def memory_desk(place: Path, run: Run) -> Iterator[Desk]:
    yield MemoryDesk()


@contextmanager
def sqlite_desk(place: Path, run: Run) -> Iterator[Desk]:
    database = Database(str(place / "desk.db"))
    yield SqliteDesk(database)
    database.close()


@contextmanager
def postgres_desk(place: Path, run: Run) -> Iterator[Desk]:
    opened = postgres(_postgres("REDRIVE_TEST_POSTGRES", place))
    assert opened.desk is not None
    yield opened.desk
    run(opened.letters.close())


def _postgres(variable: str, place: Path) -> str:
    return f"{os.environ[variable].partition(':')[2]}?schema={schema_of(place)}"


LETTERS = [
    pytest.param(memory_letters, id="memory"),
    pytest.param(sqlite_letters, id="sqlite"),
    pytest.param(postgres_letters, id="postgres", marks=pytest.mark.engine("postgres")),
    pytest.param(pooled_letters, id="pgbouncer", marks=pytest.mark.engine("pgbouncer", "postgres")),
    pytest.param(redis_letters, id="redis", marks=pytest.mark.engine("redis")),
    pytest.param(redis_cluster_letters, id="redis-cluster", marks=pytest.mark.engine("redis-cluster")),
    pytest.param(opensearch_letters, id="opensearch", marks=pytest.mark.engine("opensearch")),
]

DESKS = [
    pytest.param(DeskOpener(open=memory_desk), id="memory"),
    pytest.param(DeskOpener(open=sqlite_desk, is_durable=True), id="sqlite"),
    pytest.param(DeskOpener(open=postgres_desk, is_durable=True), id="postgres", marks=pytest.mark.engine("postgres")),
]
