"""Groups made of letters that are at hand, one by one: for stores that keep no counts, and for questions that counts do not answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime

from redrive.model.hours import SHOWN, hour_of
from redrive.model.letter import Letter
from redrive.model.paging import LastGroup, group, group_page, listed_at
from redrive.model.query import Group, GroupOrder, GroupPage


class Gathered:
    """Letters of one group, as they are seen; only the latest is kept."""

    def __init__(self, letter: Letter) -> None:
        self._latest = letter
        self._first = letter.dead_lettered_at
        self._statuses: Counter[str] = Counter()
        self._hours: Counter[int] = Counter()

    def add(self, letter: Letter) -> None:
        self._latest = max(self._latest, letter, key=_age)
        self._first = min(self._first, letter.dead_lettered_at)
        self._statuses[letter.status.value] += 1
        self._hours[hour_of(letter.dead_lettered_at)] += 1

    def group(self, hour: int) -> Group:
        """The group, its sparkline ending with this hour."""
        shown = [self._hours[hour - SHOWN + 1 + number] for number in range(SHOWN)]
        return group(self._latest, self._statuses.total(), self._first, self._statuses, shown)


def gathered(letters: Iterable[Letter], hour: int) -> list[Group]:
    """The groups that these letters make."""
    groups: dict[str, Gathered] = {}
    for letter in letters:
        name = letter.failure.fingerprint
        if name not in groups:
            groups[name] = Gathered(letter)
        groups[name].add(letter)
    return [one.group(hour) for one in groups.values()]


def listed(groups: Iterable[Group], order: GroupOrder, limit: int, last: LastGroup | None, hour: int) -> GroupPage:
    """The page of these groups that comes after the last one of the page before."""

    def key(one: Group) -> tuple[int, str]:
        return listed_at(one, order), one.fingerprint

    found = sorted(groups, key=key, reverse=True)
    if last is not None:
        found = [one for one in found if key(one) < (last.value, last.fingerprint)]
    return group_page(found, limit, order, hour)


def _age(letter: Letter) -> tuple[datetime, bytes]:
    return letter.dead_lettered_at, letter.id.bytes
