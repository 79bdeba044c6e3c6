"""The way over the journal: the store is down while messages fail, and is back when the journal is drained."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from redrive.backends.memory.letters import MemoryLetters
from redrive.engine.dead_letters import DeadLetters
from redrive.engine.journal import Journal, set_aside
from redrive.engine.journal_file import journal_files
from redrive.model.letter import Letter
from redrive.model.query import EVERYTHING
from redrive.ports.inline import drive
from redrive.ports.letters import LetterStore
from redrive.testing.faults import Outage
from redrive.testing.kill.harness import LawBroken, Life
from redrive.testing.kill.law import counts_twice, look
from redrive.testing.kill.points import Visit, watched, watched_transport
from redrive.testing.kill.way import Consume, letters_of, one_by_one, source_of
from redrive.wiring import store

JOURNAL_POINTS = tuple(
    f"{moment} {verb}" for verb in ("append", "acknowledge", "drain", "put", "removal") for moment in ("before", "after")
)

_BATCH = 3
_MANY = 100_000
_STORE = "a store across the network"


def journal_of(place: Path) -> Journal:
    return Journal(place / "journal", _STORE)


async def journaled_way(life: Life, visit: Visit, *, consume: Consume = one_by_one) -> None:
    """Empty the source while the store is down; then it is back, and all that waits in journals goes there."""
    _watch_removals(life.place / "journal", visit)
    opened = store(f"sqlite:{letters_of(life.place)}")
    outage = Outage(watched(opened.letters, visit))
    journal = journal_of(life.place)
    # Holding may try to drain at any time; the points are those of the drain at the end.
    async with DeadLetters(outage, opened.desk, journal=watched(journal, visit, drain="try")) as dlq:
        outage.down()
        await consume(dlq, watched_transport(source_of(life.place), visit))
        outage.up()
        await watched(journal, visit).drain(outage, _BATCH)


def holds_the_journals_law(place: Path, is_over: bool) -> None:
    """Raise `LawBroken` unless each message is in the source, in a journal or in the store, and no failure counts twice."""
    broken = list(_broken(place, is_over))
    if broken:
        raise LawBroken("; ".join(broken))


def in_journals(place: Path) -> list[Letter]:
    """The letters that wait in journals; those are drained as copies, so that the next child finds them as they were."""
    folder = place / "journal"
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "journal"
        if folder.exists():
            shutil.copytree(folder, copy)
        letters: LetterStore = MemoryLetters()
        journal = Journal(copy, _STORE)
        drive(journal.drain(letters))
        journal.close()
    return list(drive(letters.find(EVERYTHING, limit=_MANY)).letters)


def _broken(place: Path, is_over: bool) -> Iterator[str]:
    scene, journaled = look(place), in_journals(place)
    held = {letter.source_id for letter in scene.letters}
    somewhere = held | {letter.source_id for letter in journaled} | {message.id for message in scene.waiting}
    for id in scene.messages:
        if id not in somewhere:
            yield f"{id} is lost: neither in the source nor in a journal nor held"
    if len(held) != len(scene.letters):
        yield "a message is held twice"
    for letter in chain(scene.letters, journaled):
        if counts_twice(letter):
            yield f"a failure of {letter.source_id} was counted twice"
        if letter.body != scene.messages[letter.source_id].body:
            yield f"the body of {letter.source_id} is not what it was"
    for path in set_aside(place / "journal"):
        yield f"{path.name} was set aside as damaged"
    if is_over:
        for message in scene.waiting:
            yield f"{message.id} is still in the source"
        for path in journal_files(place / "journal"):
            yield f"{path.name} was not drained"
        for id in scene.messages.keys() - held:
            yield f"{id} did not reach the store"


def _watch_removals(folder: Path, visit: Visit) -> None:
    """Points around the removal of a journal, which no port shows: Python itself tells of it.

    The folder is opened for its fsync right after a removal.
    """
    was_removed = False

    def hear(event: str, args: tuple[Any, ...]) -> None:
        nonlocal was_removed
        if event == "os.remove" and os.fspath(args[0]).endswith(".journal"):
            visit("before removal")
            was_removed = True
        elif event == "open" and was_removed and args[0] == folder.as_posix():
            was_removed = False
            visit("after removal")

    sys.addaudithook(hear)
