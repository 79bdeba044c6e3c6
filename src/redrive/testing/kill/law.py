"""The law, checked in a place where no process lives: at every instant after a kill, and at the end of the way."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

from msgspec import Struct

from redrive.model.letter import Letter, letter_id
from redrive.model.message import Message
from redrive.model.operation import Entry, LedgerRow
from redrive.model.query import EVERYTHING, Order
from redrive.model.status import Status
from redrive.ports.inline import drive
from redrive.testing.kill.files import Line, digest
from redrive.testing.kill.harness import LawBroken
from redrive.testing.kill.way import SOURCE, bodies_of, fails, letters_of, messages_of, sink_of, source_of
from redrive.wiring import store

_MANY = 100_000
_LATER = timedelta(days=3650)
"""By then the leases of the dead are over."""

Sending = tuple[UUID, int]
"""A letter that was sent, and its generation then."""


class Scene(Struct, frozen=True, kw_only=True):
    """Everything that is on the disk."""

    messages: dict[str, Message]
    """What was ever put into the source, by id."""
    waiting: list[Message]
    letters: list[Letter]
    bodies: dict[UUID, bytes]
    rows: list[LedgerRow]
    lines: list[Line]


def look(place: Path) -> Scene:
    """What a place holds. The database is looked at as a copy, so that the next child finds it as the last one left it."""
    with tempfile.TemporaryDirectory() as folder:
        letters, rows = _read_store(_copied(letters_of(place), Path(folder)))
    return Scene(
        messages={str(message.id): message for message in messages_of(place)},
        waiting=drive(source_of(place).peek(limit=_MANY)),
        letters=letters,
        bodies={one.id: drive(bodies_of(place).load(one.body_ref)) if one.body_ref else one.body for one in letters},
        rows=rows,
        lines=sink_of(place).lines(),
    )


def holds_the_law(place: Path, is_over: bool) -> None:
    """Raise `LawBroken` unless nothing is lost, nothing is doubled, and nothing is claimed without being so."""
    scene = look(place)
    broken = [complaint for check in (*_ALWAYS, *(_AT_THE_END if is_over else ())) for complaint in check(scene)]
    if broken:
        raise LawBroken("; ".join(broken))


def counts_twice(letter: Letter) -> bool:
    """Is one and the same try twice in its history? No two tries of `failing` have the same message."""
    return len({attempt.message for attempt in letter.history}) != len(letter.history)


def _nothing_is_lost(scene: Scene) -> Iterator[str]:
    somewhere = {message.id for message in scene.waiting} | {letter.source_id for letter in scene.letters}
    for id in scene.messages:
        if id not in somewhere:
            yield f"{id} is lost: neither in the source nor held"


def _each_letter_is_there_once(scene: Scene) -> Iterator[str]:
    for name, count in Counter(letter.source_id for letter in scene.letters).items():
        if count > 1:
            yield f"{name} is held {count} times"
    for letter in scene.letters:
        if letter.id != letter_id("default", SOURCE, letter.source_id):
            yield f"{letter.source_id} is held under a name that is not its own"
        if counts_twice(letter):
            yield f"a failure of {letter.source_id} was counted twice"


def _content_is_whole(scene: Scene) -> Iterator[str]:
    for letter in scene.letters:
        known = scene.messages.get(letter.source_id)
        if known is None or scene.bodies[letter.id] != known.body:
            yield f"the body of {letter.source_id} is not what it was"
    for line in scene.lines:
        known = scene.messages.get(line.id or "")
        if known is None or line.digest != digest(known.body):
            yield f"the body of {line.id} that arrived is not what it was"


def _what_is_settled_has_arrived(scene: Scene) -> Iterator[str]:
    """Completed: its line is in the sink. Redriven: it is in the source, for else it would have been opened again."""
    arrived, returned = _arrived(scene), _returned(scene)
    entries = {(row.letter, row.generation, row.entry) for row in scene.rows}
    for letter in scene.letters:
        match letter.status:
            case Status.COMPLETED:
                places, entry = arrived, Entry.CONFIRMED
            case Status.REDRIVEN:
                places, entry = returned, Entry.SENT
            case _:
                continue
        if (letter.id, letter.generation) not in places:
            yield f"{letter.source_id} is {letter.status}, and never arrived"
        if (letter.id, letter.generation, entry) not in entries:
            yield f"{letter.source_id} is {letter.status}, and the ledger does not know"


def _the_ledger_tells_the_truth(scene: Scene) -> Iterator[str]:
    arrived, returned = _arrived(scene), _returned(scene)
    generations = {letter.id: letter.generation for letter in scene.letters}
    for row in scene.rows:
        match row.entry:
            case Entry.CHOSEN | Entry.INTENDED | Entry.SKIPPED:
                is_true = True
            case Entry.FAILED:
                is_true = generations[row.letter] > row.generation
            case Entry.CONFIRMED:
                is_true = (row.letter, row.generation) in arrived
            case Entry.SENT:
                is_true = (row.letter, row.generation) in returned or generations[row.letter] > row.generation
            case _:
                is_true = False
        if not is_true:
            yield f"the ledger says {row.entry} of {row.letter}, and it never arrived"


def _the_ledger_knew_before(scene: Scene) -> Iterator[str]:
    known: set[Sending] = {(row.letter, row.generation) for row in scene.rows if row.entry not in (Entry.CHOSEN, Entry.SKIPPED)}
    for id, generation in (_arrived(scene) | _returned(scene)) - known:
        yield f"{id} was sent at generation {generation}, and no intent was written"


def _what_came_twice_has_one_name(scene: Scene) -> Iterator[str]:
    ids = {letter.source_id: str(letter.id) for letter in scene.letters}
    for line in scene.lines:
        if line.redrive_id is None or line.redrive_id != ids.get(line.id or ""):
            yield f"{line.id} arrived under the name {line.redrive_id}"


def _nothing_is_left_to_do(scene: Scene) -> Iterator[str]:
    for message in scene.waiting:
        yield f"{message.id} is still in the source"
    for letter in scene.letters:
        if letter.status is not Status.COMPLETED:
            yield f"{letter.source_id} is still {letter.status}"
        if letter.generation != fails(letter):
            yield f"{letter.source_id} was opened {letter.generation} times, not {fails(letter)}"


_ALWAYS = (
    _nothing_is_lost,
    _each_letter_is_there_once,
    _content_is_whole,
    _what_is_settled_has_arrived,
    _the_ledger_tells_the_truth,
    _the_ledger_knew_before,
    _what_came_twice_has_one_name,
)
_AT_THE_END = (_nothing_is_left_to_do,)


def _arrived(scene: Scene) -> set[Sending]:
    return {(UUID(line.redrive_id), line.generation) for line in scene.lines if line.redrive_id is not None}


def _returned(scene: Scene) -> set[Sending]:
    return {(one.redrive_id, one.generation) for one in scene.waiting if one.redrive_id is not None}


def _copied(database: Path, folder: Path) -> Path:
    for path in (database, database.with_name(f"{database.name}-wal")):
        if path.exists():
            shutil.copyfile(path, folder / path.name)
    return folder / database.name


def _read_store(database: Path) -> tuple[list[Letter], list[LedgerRow]]:
    opened = store(f"sqlite:{database}")
    later = datetime.now(UTC) + _LATER
    try:
        page = drive(opened.letters.find(EVERYTHING, order=Order.OLDEST, limit=_MANY, now=later))
        operations = drive(opened.desk.operations(limit=_MANY))
        ledgers = [drive(opened.desk.ledger(one.id, limit=_MANY)) for one in operations]
    finally:
        drive(opened.letters.close())
    return list(page.letters), [row for ledger in ledgers for row in ledger]
