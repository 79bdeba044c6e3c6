"""Every backend fits its port: for mypy by assignment, and at run time by name and signature."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import pytest
from mypy import api

from redrive.backends.memory.desk import MemoryDesk
from redrive.backends.memory.letters import MemoryLetters
from redrive.backends.memory.transport import MemoryTransport
from redrive.backends.sqlite.database import Database
from redrive.backends.sqlite.desk import SqliteDesk
from redrive.backends.sqlite.letters import SqliteLetters
from redrive.ports import Desk, LetterStore, Transport
from redrive.testing import Faulty, Outage


def stores(database: Database) -> list[LetterStore]:
    memory = MemoryLetters()
    return [memory, SqliteLetters(database), Faulty(memory), Outage(memory)]


def desks(database: Database) -> list[Desk]:
    return [MemoryDesk(), SqliteDesk(database)]


def transports() -> list[Transport]:
    return [MemoryTransport()]


FITS = [
    *((type(store), LetterStore) for store in stores(Database(":memory:"))),
    *((type(desk), Desk) for desk in desks(Database(":memory:"))),
    *((type(transport), Transport) for transport in transports()),
]


@pytest.mark.parametrize(("backend", "port"), FITS, ids=lambda kind: kind.__name__)
def test_a_backend_has_every_verb_of_its_port_with_the_same_signature(backend: type, port: type) -> None:
    verbs = {name: verb for name, verb in vars(port).items() if inspect.iscoroutinefunction(verb)}
    assert verbs
    for name, verb in verbs.items():
        own = getattr(backend, name)
        assert inspect.iscoroutinefunction(own), name
        assert inspect.signature(own, eval_str=False).parameters == inspect.signature(verb).parameters, name


def test_mypy_agrees_that_every_backend_fits_its_port(tmp_path: Path) -> None:
    report, trouble, status = api.run(
        [
            "--config-file",
            "",
            "--follow-imports=silent",
            "--cache-dir",
            str(tmp_path),
            "--python-executable",
            sys.executable,
            __file__,
        ]
    )
    assert (status, trouble) == (0, ""), report
