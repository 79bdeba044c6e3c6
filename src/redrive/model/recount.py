"""Proof that kept counts are those of the letters: what was counted anew, compared with what a store keeps.

What differs in one snapshot differs by as much later on, for every change since has been counted: so it is put right by adding
the difference, and nobody has to wait.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

from msgspec import Struct

from redrive.model.census import ALL, HOURS, Cell, Change, Group, GroupChange, Miscount, hour_number
from redrive.model.hours import start_of

Key = TypeVar("Key")


class Differences(Struct, frozen=True):
    """What has to be added to the counts to put them right, and what that is in words."""

    change: Change
    miscounts: list[Miscount]


def compared(real: Change, kept: Change) -> Differences:
    """How kept counts differ from real ones. A group whose ends may be wrong is shaken: they have to be looked up."""
    miscounts: list[Miscount] = []
    cells: dict[Cell, int] = {}
    for cell, before, after in _pairs(kept.cells, real.cells):
        cells[cell] = after - before
        miscounts.append(Miscount(what=_told(cell), kept=before, real=after))
    groups: dict[Group, GroupChange] = {}
    for group in kept.groups.keys() | real.groups.keys():
        was, now = kept.groups.get(group, GroupChange()), real.groups.get(group, GroupChange())
        change = GroupChange()
        name = f"group {group[1]}" if group[0] == "default" else f"group {group[1]} of namespace {group[0]}"
        for status, before, after in _pairs(was.statuses, now.statuses):
            change.statuses[status] = after - before
            miscounts.append(Miscount(what=f"{name}, {status}", kept=before, real=after))
        for hour, before, after in _pairs(was.hours, now.hours):
            change.hours[hour] = after - before
            miscounts.append(Miscount(what=f"{name}, hour {start_of(hour):%Y-%m-%d %H:00}", kept=before, real=after))
        # Whose letters have left since the ends were looked up does not claim to know them.
        has_wrong_ends = not was.is_shaken and (was.first, was.last) != (now.first, now.last)
        if has_wrong_ends:
            ends = [(end, before, after) for end, before, after in _ends(was, now) if before != after]
            miscounts += [Miscount(what=f"{name}, {end} seen", kept=before, real=after) for end, before, after in ends]
        if change.statuses or change.hours or has_wrong_ends:
            change.is_shaken = True
            groups[group] = change
    return Differences(Change(cells, groups), sorted(miscounts, key=lambda one: one.what))


def _pairs(kept: Mapping[Key, int], real: Mapping[Key, int]) -> Iterator[tuple[Key, int, int]]:
    """What differs, with both numbers."""
    for key in kept.keys() | real.keys():
        if kept.get(key, 0) != real.get(key, 0):
            yield key, kept.get(key, 0), real.get(key, 0)


def _ends(was: GroupChange, now: GroupChange) -> Iterator[tuple[str, int, int]]:
    yield "first", was.first or 0, now.first or 0
    yield "last", was.last or 0, now.last or 0


def _told(cell: Cell) -> str:
    """What a count is of, in words."""
    value = f"{start_of(hour_number(cell.value)):%Y-%m-%d %H:00}" if cell.facet == HOURS else cell.value
    what = "all letters" if cell.facet == ALL else f"{cell.facet} {value}"
    return f"{what}, {cell.status}" if cell.namespace == "default" else f"{what} of namespace {cell.namespace}, {cell.status}"
