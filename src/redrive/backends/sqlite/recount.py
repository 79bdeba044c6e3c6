"""Proof that the counts are those of the letters, looked at in one snapshot beside which others write."""

from __future__ import annotations

import sqlite3

from redrive.backends.sqlite import counts
from redrive.backends.sqlite.connections import snapshot
from redrive.backends.sqlite.groups import hour_in
from redrive.model.census import STORED, Cell, Census, Change, Group, GroupChange, Kind, summed
from redrive.model.recent import unpacked
from redrive.model.recount import Differences, compared

_AT_ONCE = 10_000

_LETTERS = f"""
    SELECT namespace, source, category, error, policy, status, {hour_in("dead_lettered_at")}, fingerprint, dead_lettered_at
    FROM letters
"""


def miscounted(connection: sqlite3.Connection) -> Differences:
    """How the counts differ from the letters."""
    with snapshot(connection):
        real = Census()
        letters = connection.execute(_LETTERS)
        while rows := letters.fetchmany(_AT_ONCE):
            for *kind, at in rows:
                real.seen(Kind(*kind), at)
        return _compared(real.change(), connection)


def repaired(connection: sqlite3.Connection, requests: list[Differences]) -> list[None]:
    """Put right what differs."""
    for found in requests:
        counts.write(connection, found.change)
    return [None] * len(requests)


def _compared(real: Change, connection: sqlite3.Connection) -> Differences:
    """How the counts, with what is noted and not summed up yet, differ from what is there."""
    cells = {
        Cell(namespace, facet, value, status): count
        for facet, namespace, value, status, count in connection.execute("SELECT * FROM counts")
    }
    groups: dict[Group, GroupChange] = {}
    known: dict[Group, int] = {}
    columns = ", ".join(STORED)
    for namespace, name, first, last, hours, *statuses in connection.execute(
        f"SELECT namespace, fingerprint, first_seen, last_seen, hours, {columns} FROM groups"
    ):
        change = groups[namespace, name] = GroupChange(first=first, last=last)
        change.statuses.update({status.value: count for status, count in zip(STORED, statuses, strict=True) if count})
        if hours is not None:
            recent = unpacked(hours)
            change.hours.update(recent.hours())
            known[namespace, name] = recent.first
    kept = summed([Change(cells, groups), counts.noted(connection)])
    for group, first in known.items():
        for change in (kept.groups[group], real.groups.get(group, GroupChange())):
            change.hours = {hour: count for hour, count in change.hours.items() if hour >= first}
    return compared(real, kept)
