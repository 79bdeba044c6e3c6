"""Proof that the counts are those of the letters, looked at in one snapshot beside which others write.

What this takes of memory goes by how many counts are kept, not by how many letters there are: letters are summed as they are read,
and a count that is right is let go of at once.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from redrive.backends.sqlite import counts
from redrive.backends.sqlite.connections import snapshot
from redrive.model.census import ALL, FACETS, HOURS, STORED, Cell, Change, Group, GroupChange, hour_text
from redrive.model.hours import HOUR
from redrive.model.recent import unpacked
from redrive.model.recount import Differences, compared

_AT_ONCE = 1_000

_LETTERS = f"SELECT namespace, fingerprint, dead_lettered_at, status, {', '.join(FACETS)} FROM letters"
_GROUPS = f"SELECT namespace, fingerprint, first_seen, last_seen, hours, {', '.join(STORED)} FROM groups"
_HOURS = "SELECT namespace, fingerprint, hours FROM groups WHERE hours IS NOT NULL"


class Found(Struct, frozen=True):
    """How counts differ from letters, as long as nobody puts them right."""

    differences: Differences
    repairs: int
    """How many times they had been put right before."""


def miscounted(connection: sqlite3.Connection) -> Found:
    """How the counts, with what is noted and not summed up yet, differ from the letters."""
    with snapshot(connection):
        (repairs,) = connection.execute("SELECT number FROM repairs").fetchone()
        known = {(namespace, name): unpacked(hours).first for namespace, name, hours in connection.execute(_HOURS)}
        real, kept = Change({}, {}), Change({}, {})
        letters = connection.execute(_LETTERS)
        while rows := letters.fetchmany(_AT_ONCE):
            _add(rows, known, real)
        noted = counts.noted(connection)
        for cell, count in _kept_cells(connection, noted.cells):
            if real.cells.get(cell) == count:
                del real.cells[cell]
            else:
                kept.cells[cell] = count
        for group, change in _kept_groups(connection, noted.groups):
            if real.groups.get(group) == change:
                del real.groups[group]
            else:
                kept.groups[group] = change
        return Found(compared(real, kept), repairs)


def repaired(connection: sqlite3.Connection, requests: list[Found]) -> list[bool]:
    """Put right what differs, unless somebody has meanwhile."""
    answers = []
    for found in requests:
        raised = connection.execute("UPDATE repairs SET number = number + 1 WHERE number = ?", [found.repairs])
        if raised.rowcount:
            counts.write(connection, found.differences.change)
        answers.append(bool(raised.rowcount))
    return answers


def _add(rows: list[tuple[Any, ...]], known: dict[Group, int], real: Change) -> None:
    """These letters are there too. Hours before the first that is known of a group are not counted."""
    namespaces, names, instants, statuses, *values = zip(*rows, strict=True)
    hours = [at // HOUR for at in instants]
    texts = {hour: hour_text(hour) for hour in set(hours)}
    facets = {facet.value: column for facet, column in zip(FACETS, values, strict=True)}
    facets |= {ALL: ("",) * len(rows), HOURS: tuple(texts[hour] for hour in hours)}
    for facet, column in facets.items():
        for (namespace, value, status), count in Counter(zip(namespaces, column, statuses, strict=True)).items():
            cell = Cell(namespace, facet, value, status)
            real.cells[cell] = real.cells.get(cell, 0) + count
    groups = list(zip(namespaces, names, strict=True))
    for group, at in zip(groups, instants, strict=True):
        change = real.groups.get(group)
        if change is None:
            real.groups[group] = GroupChange(first=at, last=at)
        elif change.first is None or at < change.first:
            change.first = at
        elif change.last is None or at > change.last:
            change.last = at
    for (group, status), count in Counter(zip(groups, statuses, strict=True)).items():
        of_status = real.groups[group].statuses
        of_status[status] = of_status.get(status, 0) + count
    for (group, hour), count in Counter(zip(groups, hours, strict=True)).items():
        if hour >= known.get(group, hour):
            of_hour = real.groups[group].hours
            of_hour[hour] = of_hour.get(hour, 0) + count


def _kept_cells(connection: sqlite3.Connection, noted: dict[Cell, int]) -> Iterator[tuple[Cell, int]]:
    """Each count, with what is noted of it; that is taken out of the notes."""
    for facet, namespace, value, status, count in connection.execute("SELECT * FROM counts"):
        cell = Cell(namespace, facet, value, status)
        yield cell, count + noted.pop(cell, 0)
    yield from noted.items()


def _kept_groups(connection: sqlite3.Connection, noted: dict[Group, GroupChange]) -> Iterator[tuple[Group, GroupChange]]:
    """Each group, with what is noted of it; that is taken out of the notes."""
    for namespace, name, first, last, hours, *statuses in connection.execute(_GROUPS):
        change = GroupChange(first=first, last=last)
        change.statuses = {status.value: count for status, count in zip(STORED, statuses, strict=True) if count}
        recent = None if hours is None else unpacked(hours)
        if recent is not None:
            change.hours = recent.hours()
        if (more := noted.pop((namespace, name), None)) is not None:
            change.add(more)
        if recent is not None:
            change.hours = {hour: count for hour, count in change.hours.items() if hour >= recent.first}
        yield (namespace, name), change
    yield from noted.items()
