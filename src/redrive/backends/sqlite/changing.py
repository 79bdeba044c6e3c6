"""What changes letters: put, amend, purge, each for all who ask at once, with the counts that follow from it.

What a change means is decided by the model. Whatever is done here may be undone and done again with others.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from msgspec.structs import replace

from redrive.backends.sqlite import claims, counts, table, texts
from redrive.backends.sqlite.plan import planned, planned_among
from redrive.backends.sqlite.rows import Numbered
from redrive.model import changes
from redrive.model.amendment import Amended, Amendment
from redrive.model.arrival import Held
from redrive.model.census import Census
from redrive.model.changes import Changes
from redrive.model.instant import micros
from redrive.model.letter import Letter
from redrive.model.query import Query, bounded
from redrive.model.stored import has_other_content
from redrive.model.texts import reads_otherwise


class Changed(NamedTuple):
    """A letter as it was, and as it is then."""

    seq: int
    before: Letter
    after: Letter


def put(connection: sqlite3.Connection, requests: Sequence[tuple[Sequence[Letter], datetime]]) -> list[list[Held]]:
    """Hold letters."""
    written: dict[UUID, Letter] = {}
    answers = [_decided(changes.arrivals(written, letters, now), written).answers for letters, now in requests]
    # As if all were new, which is the usual case; what becomes of those that were not is decided once more.
    new, known = table.insert(connection, list(written.values()))
    changed: dict[UUID, Letter] = {}
    reopened: set[UUID] = set()
    if known:
        latest = {id: letter for id, (_, letter) in known.items()}
        for answer, (letters, now) in zip(answers, requests, strict=True):
            again = [(number, letter) for number, letter in enumerate(letters) if letter.id in known]
            decided = _decided(changes.arrivals(latest, [letter for _, letter in again], now), latest)
            changed |= decided.letters
            reopened |= decided.reopened
            for (number, _), held in zip(again, decided.answers, strict=True):
                answer[number] = held
    pairs = [Changed(*known[id], letter) for id, letter in changed.items()]
    overwrite(connection, pairs)
    claims.unclaim(connection, [known[id].seq for id in reopened])
    claims.schedule(connection, [*new, *(Numbered(known[id].seq, changed[id]) for id in reopened)])
    _count(connection, pairs, [letter for _, letter in new])
    texts.merge_for_new(connection, [seq for seq, _ in new])
    return answers


def amend(connection: sqlite3.Connection, requests: Sequence[tuple[Sequence[Amendment], datetime]]) -> list[list[Amended]]:
    """Change letters that nobody holds."""
    holdings, numbers = table.load_held(connection, {one.id for amendments, _ in requests for one in amendments})
    before = {id: holding.letter for id, holding in holdings.items()}
    changed: dict[UUID, Letter] = {}
    answers = []
    for amendments, now in requests:
        decided = changes.amendments(holdings, amendments, now)
        holdings |= {id: replace(holdings[id], letter=letter) for id, letter in decided.letters.items()}
        changed |= decided.letters
        answers.append(decided.answers)
    pairs = [Changed(numbers[id], before[id], letter) for id, letter in changed.items()]
    overwrite(connection, pairs)
    claims.unclaim(connection, [one.seq for one in pairs])
    claims.schedule(connection, [Numbered(one.seq, one.after) for one in pairs], holdings)
    _count(connection, pairs)
    return answers


def purge(
    connection: sqlite3.Connection, requests: Sequence[tuple[tuple[Query, int, Sequence[UUID] | None], datetime]]
) -> list[list[Letter]]:
    """Remove letters that nobody holds."""
    answers = []
    for (query, limit, among), now in requests:
        plan = planned(connection, query, now) if among is None else planned_among(among, query, now)
        found = table.oldest(connection, plan, micros(now), bounded(limit))
        letters, numbers = [letter for _, letter in found], [seq for seq, _ in found]
        texts.leave(connection, numbers)
        table.remove(connection, numbers)
        claims.unclaim(connection, numbers)
        census = Census()
        census.left(letters)
        # What many leave behind is only noted, and summed up in a transaction of its own.
        write = counts.note if len(letters) > counts.MOST_GROUPS else counts.write
        write(connection, census.change())
        answers.append(letters)
    return answers


def overwrite(connection: sqlite3.Connection, changed: Sequence[Changed]) -> None:
    """Write letters that may differ from what they were in everything."""
    if changed:
        texts.forget(connection, [Numbered(seq, before) for seq, before, after in changed if reads_otherwise(before, after)])
        table.overwrite(connection, [Numbered(seq, after) for seq, _, after in changed])
        contents = [table.content_row(seq, after) for seq, before, after in changed if has_other_content(before, after)]
        table.overwrite_content(connection, contents)


def _count(connection: sqlite3.Connection, changed: Sequence[Changed], new: Sequence[Letter] = ()) -> None:
    census = Census()
    census.came(new)
    for _, before, after in changed:
        census.changed(before, after)
    counts.write(connection, census.change())


def _decided(decided: Changes[Held], letters: dict[UUID, Letter]) -> Changes[Held]:
    """What was decided, with its letters noted as the latest."""
    letters.update(decided.letters)
    return decided
