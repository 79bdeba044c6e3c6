"""Proof that the counts are those of the letters, looked at in one snapshot beside which others write."""

from __future__ import annotations

import sqlite3

from redrive.backends.sqlite import counts
from redrive.backends.sqlite.connections import snapshot
from redrive.backends.sqlite.groups import hour_in
from redrive.model.census import STORED, Cell, Census, Change, Group, GroupChange, Kind, summed
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
        return compared(real.change(), _kept(connection))


def repaired(connection: sqlite3.Connection, requests: list[Differences]) -> list[None]:
    """Put right what differs."""
    for found in requests:
        counts.write(connection, found.change)
    return [None] * len(requests)


def _kept(connection: sqlite3.Connection) -> Change:
    """The counts as they are kept, with what is noted and not summed up yet."""
    cells = {
        Cell(namespace, facet, value, status): count
        for facet, namespace, value, status, count in connection.execute("SELECT * FROM counts")
    }
    groups: dict[Group, GroupChange] = {}
    columns = ", ".join(STORED)
    for namespace, name, first, last, *statuses in connection.execute(
        f"SELECT namespace, fingerprint, first_seen, last_seen, {columns} FROM groups"
    ):
        change = GroupChange(first=first, last=last)
        change.statuses.update({status.value: count for status, count in zip(STORED, statuses, strict=True) if count})
        groups[namespace, name] = change
    for hour, namespace, name, count in connection.execute("SELECT * FROM group_hours"):
        groups.setdefault((namespace, name), GroupChange()).hours[hour] = count
    return summed([Change(cells, groups), counts.noted(connection)])
