"""Counts that a store keeps: what a change of letters does to them, and which questions they answer.

Pure, so that every store counts alike. A store writes the differences in the transaction of the change itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import product
from math import prod
from typing import NamedTuple

from msgspec import Struct, field

from redrive.model.hours import hour_of
from redrive.model.instant import micros
from redrive.model.letter import Letter
from redrive.model.query import TALLIED, And, Field, Is, Op, Or, Query, conjuncts
from redrive.model.status import Status

ALL = "all"
"""The facet of the counts of all letters; its value is empty."""
HOURS = "hour"
"""The facet of the counts by hour; its values are `hour_text`."""
FACETS = (Field.SOURCE, Field.CATEGORY, Field.ERROR, Field.POLICY)
"""Fields that letters are counted by, besides namespace, status, group and hour. An error is counted by its full name."""

_FACETS = (ALL, *(facet.value for facet in FACETS), HOURS)
"""In the order that `Census.cells` has them."""

_MOST_SCOPES = 16
"""Among more, it is quicker to count the letters."""

STORED = tuple(status for status in Status if status is not Status.RETRYING)
"""Statuses that letters are stored with, and so counted by. `retrying` is seen from leases."""


class Cell(NamedTuple):
    """What one count is of."""

    namespace: str
    facet: str
    value: str
    status: str


class Kind(NamedTuple):
    """All of a letter that counts."""

    namespace: str
    source: str
    category: str
    error: str
    policy: str
    status: str
    hour: int
    group: str


def kind_of(letter: Letter) -> Kind:
    failure = letter.failure
    return Kind(
        letter.namespace,
        letter.source,
        failure.category._value_,  # `value` of an enum is slow, and this is done for every letter
        failure.type,
        letter.retry.policy,
        letter.status._value_,
        hour_of(letter.dead_lettered_at),
        failure.fingerprint,
    )


def hour_text(hour: int) -> str:
    """An hour as the value of a cell: these texts sort as the hours do."""
    return f"{hour + 10**9:010d}"


def hour_number(text: str) -> int:
    """The hour that `hour_text` made this of."""
    return int(text) - 10**9


Group = tuple[str, str]
"""A namespace and a fingerprint."""


class GroupChange(Struct):
    """What happened to a group within one namespace."""

    statuses: dict[str, int] = field(default_factory=dict)
    hours: dict[int, int] = field(default_factory=dict)
    first: int | None = None
    """The earliest and the latest instant of those that came, in microseconds."""
    last: int | None = None
    is_shaken: bool = False
    """Some left it, so that its first and its last letter have to be looked up."""

    def count(self, status: str, hour: int, by: int) -> None:
        """So many more of a status, that came in an hour."""
        self.statuses[status] = self.statuses.get(status, 0) + by
        self.hours[hour] = self.hours.get(hour, 0) + by

    def add(self, other: GroupChange) -> None:
        """What happened to it besides."""
        for status, by in other.statuses.items():
            self.statuses[status] = self.statuses.get(status, 0) + by
        for hour, by in other.hours.items():
            self.hours[hour] = self.hours.get(hour, 0) + by
        self.is_shaken |= other.is_shaken
        if other.first is not None and other.last is not None:
            self.first = other.first if self.first is None else min(self.first, other.first)
            self.last = other.last if self.last is None else max(self.last, other.last)


class Change(Struct):
    """By how much counts change, and what happens to groups."""

    cells: dict[Cell, int] = {}
    groups: dict[Group, GroupChange] = {}

    def __bool__(self) -> bool:
        return bool(self.cells or self.groups)


def summed(changes: Iterable[Change]) -> Change:
    """Several changes as one. Of a group's ends, those of letters that came are known; whether they are still there is not."""
    several = [change for change in changes if change]
    if len(several) == 1:
        return several[0]
    cells: dict[Cell, int] = {}
    groups: dict[Group, GroupChange] = {}
    for change in several:
        for cell, count in change.cells.items():
            cells[cell] = cells.get(cell, 0) + count
        for name, one in change.groups.items():
            groups.setdefault(name, GroupChange()).add(one)
    return Change({cell: count for cell, count in cells.items() if count}, groups)


class Census:
    """What a transaction changes, summed: as few rows as there are kinds of letters in it."""

    def __init__(self) -> None:
        self._kinds: Counter[Kind] = Counter()
        self._moves: Counter[tuple[Kind, str]] = Counter()
        self._spans: dict[Group, tuple[int, int]] = {}
        self._shaken: set[Group] = set()

    def came(self, letters: Iterable[Letter]) -> None:
        """These letters are new."""
        for letter in letters:
            self.seen(kind_of(letter), micros(letter.dead_lettered_at))

    def seen(self, kind: Kind, at: int) -> None:
        """A letter of this kind, of this instant in microseconds, is there."""
        self._kinds[kind] += 1
        group, spans = (kind.namespace, kind.group), self._spans
        span = spans.get(group)
        if span is None:
            spans[group] = at, at
        elif at < span[0]:
            spans[group] = at, span[1]
        elif at > span[1]:
            spans[group] = span[0], at

    def left(self, letters: Iterable[Letter]) -> None:
        """These letters are gone, and were last stored like this."""
        for letter in letters:
            kind = kind_of(letter)
            self._kinds[kind] -= 1
            self._shaken.add((kind.namespace, kind.group))

    def changed(self, before: Letter, after: Letter) -> None:
        """A letter is stored otherwise than before."""
        is_alike = after.failure is before.failure and after.retry.policy == before.retry.policy
        if is_alike and after.dead_lettered_at is before.dead_lettered_at:
            # The usual case, a thousand times over: only its status, or nothing that counts, is another.
            self._moves[kind_of(before), after.status._value_] += 1
            return
        old, new = kind_of(before), kind_of(after)
        if old.group == new.group and before.dead_lettered_at == after.dead_lettered_at:
            self._kinds[old] -= 1
            self._kinds[new] += 1
        else:
            self.left([before])
            self.came([after])

    def change(self) -> Change:
        """All of it."""
        return Change(self.cells(), self.groups())

    def _counted(self) -> Counter[Kind]:
        """By how much there are more of each kind."""
        for (kind, status), count in self._moves.items():
            self._kinds[kind] -= count
            self._kinds[kind._replace(status=status)] += count
        self._moves.clear()
        return self._kinds

    def cells(self) -> dict[Cell, int]:
        """By how much each count changes; none by nothing."""
        cells: dict[Cell, int] = {}
        for kind, count in self._counted().items():
            if count:
                namespace, source, category, error, policy, status, hour, _ = kind
                values = ("", source, category, error, policy, hour_text(hour))
                for facet, value in zip(_FACETS, values, strict=True):
                    cell = Cell(namespace, facet, value, status)
                    cells[cell] = cells.get(cell, 0) + count
        return {cell: count for cell, count in cells.items() if count}

    def groups(self) -> dict[Group, GroupChange]:
        """What happened to each group; those to which nothing did are left out."""
        groups: dict[Group, GroupChange] = {}
        for kind, count in self._counted().items():
            if count:
                groups.setdefault((kind.namespace, kind.group), GroupChange()).count(kind.status, kind.hour, count)
        for group in self._shaken:
            groups.setdefault(group, GroupChange()).is_shaken = True
        for group, change in groups.items():
            change.first, change.last = self._spans.get(group, (None, None))
        return groups


class Scope(Struct, frozen=True):
    """A question that counts alone can answer: all letters, of a namespace, of one value, of a status."""

    namespace: str | None = None
    facet: Field | None = None
    """One of `FACETS`, or the group."""
    value: str = ""
    status: str | None = None
    """As it is seen: `retrying` is one too."""

    @property
    def is_of_groups(self) -> bool:
        """Is it about whole groups, all of a namespace or a single one, of which everything is kept that a list of groups tells?"""
        return self.status is None and self.facet in (None, Field.GROUP)

    def holds(self, values: Mapping[str, str]) -> bool:
        """Do letters with these values of fields belong to it, whatever their status?"""
        return (self.namespace is None or values[Field.NAMESPACE] == self.namespace) and (
            self.facet is None or values[self.facet] == self.value
        )


def scope_of(query: Query) -> Scope | None:
    """What a question is about, if counts can answer it: `namespace:…`, one field and a status, all together or none."""
    values: dict[Field, str] = {}
    for part in conjuncts(query):
        if not isinstance(part, Is) or part.op is not Op.EQ or part.field not in TALLIED:
            return None
        if part.field is Field.ERROR and "." not in part.value:
            return None
        if values.setdefault(part.field, str(part.value)) != str(part.value):
            return None
    namespace, status = values.pop(Field.NAMESPACE, None), values.pop(Field.STATUS, None)
    if len(values) > 1:
        return None
    facet, value = next(iter(values.items()), (None, ""))
    return Scope(namespace, facet, value, status)


def scopes_of(query: Query) -> list[Scope] | None:
    """The same for a question that leaves a choice between values of a field, as `status:a or status:b` does: each by itself. No letter belongs
    to two of them."""
    choices = [_choice(part) for part in conjuncts(query)]
    if prod(map(len, choices)) > _MOST_SCOPES:
        return None
    scopes = [scope_of(And(chosen)) for chosen in product(*choices)]
    return None if None in scopes else [scope for scope in scopes if scope is not None]


def _choice(part: Query) -> tuple[Query, ...]:
    """The parts of which one has to hold, and no two can."""
    if not isinstance(part, Or):
        return (part,)
    values = {(one.field, str(one.value)): one for one in part.parts if isinstance(one, Is) and one.op is Op.EQ}
    is_of_one_field = len({field for field, _ in values}) == 1 and len(values) == len(set(part.parts))
    return tuple(values.values()) if is_of_one_field else (part,)


class Miscount(Struct, frozen=True, kw_only=True):
    """A count that a store keeps and that is not what is there."""

    what: str
    """Such as `source orders, pending`."""
    kept: int
    real: int


class Backlog(Struct, frozen=True, kw_only=True):
    """What a store has put off, to be done by `LetterStore.tidy`."""

    texts: int = 0
    """Letters whose body and traceback are not indexed yet; of many thousands a store may tell about how many."""
    counts: int = 0
    """Changes of counts that are not summed up yet. They are in every answer; only the more there are, the longer it takes."""
    space: int = 0
    """Bytes that are free in the store and not given back yet."""

    def __bool__(self) -> bool:
        return bool(self.texts or self.counts or self.space)
