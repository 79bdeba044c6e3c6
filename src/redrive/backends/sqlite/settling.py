"""How claims end on SQLite.

What is to be written is worked out by whoever asks, before its turn to write comes: then the one thread that writes has only to look
whether the claims still hold.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from itertools import chain
from typing import Any
from uuid import UUID

from msgspec import Struct

from redrive.backends.sqlite import claims, counts, table
from redrive.backends.sqlite.changing import Changed, overwrite
from redrive.backends.sqlite.rows import Numbered
from redrive.model import changes
from redrive.model.census import Census, Change, summed
from redrive.model.changes import Holding, claimable_at
from redrive.model.instant import micros
from redrive.model.letter import Letter
from redrive.model.settlement import Settled, Settlement, settled
from redrive.ports.aside import giving_way


class Writing(Struct, frozen=True, kw_only=True):
    """What is written when claims end."""

    settled: list[tuple[Any, ...]]
    """Of letters whose failure is the same as before: the columns that change."""
    contents: list[tuple[int, bytes]]
    """Those of them that were tried again."""
    others: list[Changed]
    numbers: list[int]
    due: list[Numbered]
    """Those that wait for a retry then."""
    change: Change


class Ends(Struct, frozen=True, kw_only=True):
    """The claims that one caller ends."""

    settlements: Sequence[Settlement]
    given: datetime | None
    """The instant it is done at, if a test gave one."""
    claimed: list[tuple[Any, ...]]
    """What must be so that the letters are as they were when they were claimed."""
    writing: Writing | None
    """What is written if it is so; None: not all of the letters are known."""


def ends(settlements: Sequence[Settlement], given: datetime | None, now: datetime) -> Ends:
    """Work out what is to be written."""
    known = [(one, one.known) for one in settlements if one.known is not None]
    if len(known) < len(settlements):
        return Ends(settlements=settlements, given=given, claimed=[], writing=None)
    return Ends(
        settlements=settlements,
        given=given,
        claimed=[table.claimed_row(one, *letter) for one, letter in known],
        writing=_writing([Changed(seq, letter, settled(letter, one.outcome, now)) for one, (seq, letter) in giving_way(known)]),
    )


def settle(connection: sqlite3.Connection, requests: Sequence[tuple[Ends, datetime]]) -> list[list[Settled]]:
    """End claims."""
    if _are_as_claimed(connection, requests):
        _write(connection, [one.writing for one, _ in requests if one.writing is not None])
        return [[Settled.DONE] * len(one.settlements) for one, _ in requests]
    answers, changed = _looked_at(connection, requests)
    _write(connection, [_writing(changed)])
    return answers


def _are_as_claimed(connection: sqlite3.Connection, requests: Sequence[tuple[Ends, datetime]]) -> bool:
    """Do all of these claims hold, and was none of the letters changed since it was claimed? Then none has to be read again."""
    rows = [row for one, _ in requests for row in one.claimed]
    number = sum(len(one.settlements) for one, _ in requests)
    # One that is settled twice, or that nobody remembers, is looked at.
    if len(rows) < number or len({row[0] for row in rows}) < number:
        return False
    return table.are_as_claimed(connection, rows, max(now for _, now in requests))


def _looked_at(
    connection: sqlite3.Connection, requests: Sequence[tuple[Ends, datetime]]
) -> tuple[list[list[Settled]], list[Changed]]:
    holdings, numbers = table.load_held(connection, {settlement.id for one, _ in requests for settlement in one.settlements})
    before = {id: holding.letter for id, holding in holdings.items()}
    changed: dict[UUID, Letter] = {}
    answers = []
    for one, now in requests:
        decided = changes.settlements(holdings, one.settlements, now)
        holdings |= {id: Holding(letter) for id, letter in decided.letters.items()}
        changed |= decided.letters
        answers.append(decided.answers)
    return answers, [Changed(numbers[id], before[id], letter) for id, letter in changed.items()]


def _writing(changed: Sequence[Changed]) -> Writing:
    census = Census()
    alike, others, contents = [], [], []
    at, moment = None, 0
    for one in giving_way(changed):
        seq, before, after = one
        if after.updated_at is not at:  # mostly it is one instant for all
            at, moment = after.updated_at, micros(after.updated_at)
        census.changed(before, after)
        if after.failure is not before.failure:
            others.append(one)
            continue
        alike.append(table.settled_row(seq, after, moment))
        if after.history is not before.history:
            contents.append(table.content_row(seq, after))
    return Writing(
        settled=alike,
        contents=contents,
        others=others,
        numbers=[one.seq for one in changed],
        due=[Numbered(one.seq, one.after) for one in changed if claimable_at(one.after) is not None],
        change=census.change(),
    )


def _write(connection: sqlite3.Connection, several: Sequence[Writing]) -> None:
    table.overwrite_settled(connection, list(chain.from_iterable(one.settled for one in several)))
    table.overwrite_content(connection, list(chain.from_iterable(one.contents for one in several)))
    overwrite(connection, list(chain.from_iterable(one.others for one in several)))
    claims.unclaim(connection, list(chain.from_iterable(one.numbers for one in several)))
    claims.schedule(connection, chain.from_iterable(one.due for one in several))
    counts.write(connection, summed(one.change for one in several))
