"""The backends under test: a line each in these lists, and the contract kits run on them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from redrive.backends.memory.desk import MemoryDesk
from redrive.backends.memory.letters import MemoryLetters
from redrive.backends.sqlite.database import Database
from redrive.backends.sqlite.desk import SqliteDesk
from redrive.backends.sqlite.letters import SqliteLetters
from redrive.ports import Desk, LetterStore
from redrive.testing import DeskOpener, Opener


def memory_letters(place: Path) -> LetterStore:
    return MemoryLetters()


def sqlite_letters(place: Path) -> LetterStore:
    return SqliteLetters(Database(str(place / "letters.db")))


@contextmanager
def memory_desk(place: Path) -> Iterator[Desk]:
    yield MemoryDesk()


@contextmanager
def sqlite_desk(place: Path) -> Iterator[Desk]:
    database = Database(str(place / "desk.db"))
    yield SqliteDesk(database)
    database.close()


LETTERS: dict[str, Opener] = {
    "memory": memory_letters,
    "sqlite": sqlite_letters,
}

DESKS: dict[str, DeskOpener] = {
    "memory": DeskOpener(open=memory_desk),
    "sqlite": DeskOpener(open=sqlite_desk, is_durable=True),
}
