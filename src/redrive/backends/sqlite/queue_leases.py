"""Leases: a row for each run of items that were leased together, whatever their number."""

from __future__ import annotations

import sqlite3
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from msgspec import Struct

from redrive.backends.sqlite import queue_rows
from redrive.backends.sqlite.queue_parts import Part, Parts
from redrive.backends.sqlite.queue_rows import DYING, Sum
from redrive.backends.sqlite.rows import filled, marks, pieces, write_rows
from redrive.model.errors import NoSuchItem, NotLeased
from redrive.model.ksuid import LENGTH

_COLUMNS = ("part", "lane", "first", "last", "until_us", "leased_us", "count")
_RECOUNT = (
    "ON CONFLICT (part, lane, first) DO UPDATE SET last = excluded.last, until_us = excluded.until_us, count = excluded.count"
)
_MORE = 4
"""So many times as many as are asked for are read in one go rather than looked up."""

_OVERLAPPING = """
    SELECT group_concat(first || ' ' || last || ' ' || until_us || ' ' || leased_us || ' ' || count) FROM (
        SELECT * FROM queue_leases WHERE part = ?1 AND lane = ?2 AND first <= ?4 AND first >= coalesce(
            (SELECT first FROM queue_leases WHERE part = ?1 AND lane = ?2 AND first <= ?3 ORDER BY first DESC LIMIT 1), ''
        ) ORDER BY first
    )
"""


class Run(Struct, gc=False):
    """A lease: `count` items of a lane, from the first to the last."""

    first: str
    last: str
    until_us: int
    leased_us: int
    count: int


class Held(Struct):
    """Items of one lane that are under live leases."""

    lane: int
    ids: list[str]
    """In order."""
    runs: list[tuple[Run, int]]
    """Their leases, each with how many of them it has."""
    seconds: int
    micros: int
    """When they were created, summed up."""
    is_range: bool
    """Nothing else stands between the first and the last."""


def add(connection: sqlite3.Connection, part: int, runs: Sequence[tuple[int, Run]]) -> None:
    """Write leases, by lane, over what was known of them."""
    rows = [(part, lane, run.first, run.last, run.until_us, run.leased_us, run.count) for lane, run in runs]
    write_rows(connection, "queue_leases", _COLUMNS, rows, _RECOUNT)


def overlapping(connection: sqlite3.Connection, part: int, lane: int, low: str, high: str) -> list[Run]:
    """Leases of which a part may be between these ids, in order."""
    (found,) = connection.execute(_OVERLAPPING, [part, lane, low, high]).fetchone()
    runs = []
    for text in found.split(",") if found else ():
        first, last, until_us, leased_us, count = text.split(" ")
        if last >= low:
            runs.append(Run(first, last, int(until_us), int(leased_us), int(count)))
    return runs


def held(tx: Parts, part: Part, ids: Sequence[str], now_us: int) -> list[Held]:
    """These items, by lane, all of them under live leases. Raises for the first that is not, or is not there."""
    if not ids:
        return []
    tx.inserts.flush()
    wanted = sorted(set(ids))
    found: list[Held] = []
    count = 0
    for number, lane in part.state.lanes.items():
        if lane.leased and wanted[0] <= lane.cursor:
            some = _held_in(tx.connection, part.number, number, wanted[: bisect_right(wanted, lane.cursor)])
            if some.ids:
                found.append(some)
                count += len(some.ids)
    if count != len(wanted) or any(run.until_us <= now_us for some in found for run, _ in some.runs):
        raise _refusal(tx.connection, part, ids, found, now_us)
    return found


def _held_in(connection: sqlite3.Connection, part: int, lane: int, wanted: list[str]) -> Held:
    """Those of the ids, which are sorted, that are leased in this lane, under live leases or not."""
    runs = overlapping(connection, part, lane, wanted[0], wanted[-1])
    if not runs:
        return Held(lane, [], [], 0, 0, is_range=True)
    is_range = False
    if sum(run.count for run in runs) <= _MORE * len(wanted):
        summed = queue_rows.sum_range(connection, part, lane, wanted[0], wanted[-1])
        is_range = summed.ids == "".join(wanted)
    if not is_range:
        summed = queue_rows.sum_listed(connection, part, lane, wanted)
    ids = wanted if is_range else cut(summed)
    counted = ((run, bisect_right(ids, run.last) - bisect_left(ids, run.first)) for run in runs)
    return Held(lane, ids, [(run, count) for run, count in counted if count], summed.seconds, summed.micros, is_range)


def cut(summed: Sum) -> list[str]:
    return [summed.ids[start : start + LENGTH] for start in range(0, len(summed.ids), LENGTH)]


def _refusal(
    connection: sqlite3.Connection, part: Part, ids: Sequence[str], found: Sequence[Held], now_us: int
) -> NotLeased | NoSuchItem:
    live: set[str] = set()
    for some in found:
        for run, _ in some.runs:
            if run.until_us > now_us:
                live.update(some.ids[bisect_left(some.ids, run.first) : bisect_right(some.ids, run.last)])
    bad = next(id for id in ids if id not in live)
    lanes = ",".join(map(str, [*part.state.lanes, *range(DYING - 2, DYING + 1)]))
    sql = f"SELECT 1 FROM queue_items WHERE part = ? AND lane IN ({lanes}) AND id = ? LIMIT 1"
    return NotLeased(bad) if connection.execute(sql, [part.number, bad]).fetchone() else NoSuchItem(bad)


def let_go(tx: Parts, part: Part, lane: int, runs: Sequence[tuple[Run, int]]) -> None:
    """So many items of each of these leases are leased no more."""
    ended, shrunk = [], []
    for run, count in runs:
        part.was_leased(run.leased_us, -count)
        part.lane(lane).leased -= count
        run.count -= count
        if run.count:
            shrunk.append((lane, run))
        else:
            ended.append(run.first)
    part.is_changed = True
    for some in pieces(ended):
        sql = f"DELETE FROM queue_leases WHERE part = ? AND lane = ? AND first IN ({marks(len(some))})"
        tx.connection.execute(sql, [part.number, lane, *filled(some)])
    if shrunk:
        add(tx.connection, part.number, shrunk)


def taken(tx: Parts, part: Part, found: Sequence[Held]) -> None:
    """Delete held items: they are leased no more, and nowhere."""
    for some in found:
        let_go(tx, part, some.lane, some.runs)
        part.state.created_s -= some.seconds
        part.state.created_us -= some.micros
        if some.is_range:
            queue_rows.delete_range(tx.connection, part.number, some.lane, some.ids[0], some.ids[-1])
        else:
            queue_rows.delete_listed(tx.connection, part.number, some.lane, some.ids)


def extend(tx: Parts, part: Part, ids: Sequence[str], now_us: int, until_us: int) -> None:
    """Let the leases of these items end then. Where a lease has others too, it is cut into several."""
    for some in held(tx, part, ids, now_us):
        longer: list[tuple[int, Run]] = []
        for run, count in some.runs:
            if run.count == count:
                run.until_us = until_us
                longer.append((some.lane, run))
                continue
            summed = queue_rows.sum_range(tx.connection, part.number, some.lane, run.first, run.last)
            longer += [(some.lane, piece) for piece in _carved(run, cut(summed), set(some.ids), until_us)]
        add(tx.connection, part.number, longer)
        part.is_changed = True
    part.due(until_us)


def _carved(run: Run, ids: Sequence[str], extended: set[str], until_us: int) -> Iterator[Run]:
    """The lease in pieces, each of which ends as a whole. The first begins where the lease began, so that it is written over."""
    start = 0
    for end in range(1, len(ids) + 1):
        if end < len(ids) and (ids[end] in extended) == (ids[start] in extended):
            continue
        first = run.first if start == 0 else ids[start]
        yield Run(first, ids[end - 1], until_us if ids[start] in extended else run.until_us, run.leased_us, end - start)
        start = end
