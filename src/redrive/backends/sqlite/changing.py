"""What changes letters: put, settle, amend, purge, each for all who ask at once, with the counts that follow from it.

What a change means is decided by the model. Whatever is done here may be undone and done again with others.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from msgspec.structs import replace

from redrive.backends.sqlite import claims, counts, table, texts
from redrive.backends.sqlite.plan import planned, planned_among
from redrive.model import changes
from redrive.model.amendment import Amended, Amendment
from redrive.model.arrival import Held
from redrive.model.census import Census
from redrive.model.changes import Changes, Holding
from redrive.model.instant import micros
from redrive.model.letter import Letter
from redrive.model.query import Query, bounded
from redrive.model.settlement import Settled, Settlement, settled
from redrive.model.texts import reads_otherwise

_Changed = tuple[Letter, Letter]
"""A letter as it was, and as it is then."""


def put(connection: sqlite3.Connection, requests: Sequence[tuple[Sequence[Letter], datetime]]) -> list[list[Held]]:
    """Hold letters."""
    written: dict[UUID, Letter] = {}
    answers = [_decided(changes.arrivals(written, letters, now), written).answers for letters, now in requests]
    # As if all were new, which is the usual case; what becomes of those that were not is decided once more.
    known = table.insert(connection, list(written.values()))
    changed: dict[UUID, Letter] = {}
    reopened: set[UUID] = set()
    if known:
        latest = dict(known)
        for answer, (letters, now) in zip(answers, requests, strict=True):
            again = [(number, letter) for number, letter in enumerate(letters) if letter.id in known]
            decided = _decided(changes.arrivals(latest, [letter for _, letter in again], now), latest)
            changed |= decided.letters
            reopened |= decided.reopened
            for (number, _), held in zip(again, decided.answers, strict=True):
                answer[number] = held
        _overwrite(connection, [(known[id], letter) for id, letter in changed.items()])
        claims.unclaim(connection, [id.bytes for id in reopened])
    new = [letter for id, letter in written.items() if id not in known]
    claims.schedule(connection, [*new, *(changed[id] for id in reopened)])
    _count(connection, [(known[id], letter) for id, letter in changed.items()], new)
    return answers


def settle(connection: sqlite3.Connection, requests: Sequence[tuple[Sequence[Settlement], datetime]]) -> list[list[Settled]]:
    """End claims."""
    changed = _as_claimed(connection, requests)
    if changed is not None:
        answers = [[Settled.DONE] * len(settlements) for settlements, _ in requests]
    else:
        answers, changed = _looked_at(connection, requests)
    alike = [after for before, after in changed if after.failure is before.failure]
    table.overwrite_settled(connection, alike)
    if len(alike) < len(changed):
        _overwrite(connection, [(before, after) for before, after in changed if after.failure is not before.failure])
    claims.unclaim(connection, [after.id.bytes for _, after in changed])
    claims.schedule(connection, [after for _, after in changed])
    _count(connection, changed)
    return answers


def _as_claimed(
    connection: sqlite3.Connection, requests: Sequence[tuple[Sequence[Settlement], datetime]]
) -> list[_Changed] | None:
    """What becomes of letters, if all of these claims hold and none was changed since it was claimed: then none has to be read
    again, which is the usual case."""
    known = [one for settlements, _ in requests for one in settlements if one.stored is not None]
    # One that is settled twice, or that nobody remembers, is looked at.
    if len({one.id for one in known}) != sum(len(settlements) for settlements, _ in requests):
        return None
    if not table.are_as_claimed(connection, known, max(now for _, now in requests)):
        return None
    return [
        (one.stored, settled(one.stored, one.outcome, now))
        for settlements, now in requests
        for one in settlements
        if one.stored is not None
    ]


def _looked_at(
    connection: sqlite3.Connection, requests: Sequence[tuple[Sequence[Settlement], datetime]]
) -> tuple[list[list[Settled]], list[_Changed]]:
    holdings = table.load_held(connection, {settlement.id for settlements, _ in requests for settlement in settlements})
    before = {id: holding.letter for id, holding in holdings.items()}
    changed: dict[UUID, Letter] = {}
    answers = []
    for settlements, now in requests:
        decided = changes.settlements(holdings, settlements, now)
        holdings |= {id: Holding(letter) for id, letter in decided.letters.items()}
        changed |= decided.letters
        answers.append(decided.answers)
    return answers, [(before[id], letter) for id, letter in changed.items()]


def amend(connection: sqlite3.Connection, requests: Sequence[tuple[Sequence[Amendment], datetime]]) -> list[list[Amended]]:
    """Change letters that nobody holds."""
    holdings = table.load_held(connection, {amendment.id for amendments, _ in requests for amendment in amendments})
    before = {id: holding.letter for id, holding in holdings.items()}
    changed: dict[UUID, Letter] = {}
    answers = []
    for amendments, now in requests:
        decided = changes.amendments(holdings, amendments, now)
        holdings |= {id: replace(holdings[id], letter=letter) for id, letter in decided.letters.items()}
        changed |= decided.letters
        answers.append(decided.answers)
    pairs = [(before[id], letter) for id, letter in changed.items()]
    _overwrite(connection, pairs)
    claims.unclaim(connection, [id.bytes for id in changed])
    claims.schedule(connection, changed.values(), holdings)
    _count(connection, pairs)
    return answers


def purge(
    connection: sqlite3.Connection, requests: Sequence[tuple[tuple[Query, int, Sequence[UUID] | None], datetime]]
) -> list[list[Letter]]:
    """Remove letters that nobody holds."""
    answers = []
    for (query, limit, among), now in requests:
        plan = planned(connection, query, now) if among is None else planned_among(among, query, now)
        letters = table.oldest(connection, plan, micros(now), bounded(limit))
        keys = [letter.id.bytes for letter in letters]
        texts.leave(connection, keys)
        table.remove(connection, keys)
        claims.unclaim(connection, keys)
        census = Census()
        census.left(letters)
        counts.write(connection, census.change())
        answers.append(letters)
    return answers


def _overwrite(connection: sqlite3.Connection, changed: Sequence[_Changed]) -> None:
    texts.forget(connection, [before for before, after in changed if reads_otherwise(before, after)])
    table.overwrite(connection, [after for _, after in changed])


def _count(connection: sqlite3.Connection, changed: Sequence[_Changed], new: Sequence[Letter] = ()) -> None:
    census = Census()
    census.came(new)
    for before, after in changed:
        census.changed(before, after)
    counts.write(connection, census.change())


def _decided(decided: Changes[Held], letters: dict[UUID, Letter]) -> Changes[Held]:
    """What was decided, with its letters noted as the latest."""
    letters.update(decided.letters)
    return decided
