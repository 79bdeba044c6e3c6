"""Choose: which letters an operation moves. They are chosen once and written down: what was shown is what is moved."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from redrive.engine.address import Addresses
from redrive.engine.redact import unsendable
from redrive.engine.walk import MOST, up_to, walk
from redrive.model.letter import Letter
from redrive.model.operation import Entry, LedgerRow, Operation
from redrive.model.query import And, Field, Is, Not, Or, Query, looks_behind, matches
from redrive.model.status import OPEN, Status
from redrive.ports.desk import Desk
from redrive.ports.letters import LetterStore

_GROUPS_TOLD = 10


class RedrivePlan(Struct, frozen=True, kw_only=True):
    """What an operation would do. What it will refuse may still be repaired before it begins."""

    operation: Operation
    sources: dict[str, int]
    targets: dict[str, str]
    """Where the letters of each source go."""
    groups: dict[str, int]
    """The failures that most of them are of, by fingerprint."""
    group_count: int
    own_targets: dict[str, int]
    """Where letters go instead that have a target of their own, and how many; most first."""
    refused: dict[str, int]
    """Why letters will not be sent, and how many."""
    seconds: float | None
    """How long it takes at least, at the rate that was asked for."""

    @property
    def total(self) -> int:
        return self.operation.total


Progress = Callable[[int], None]
"""Hears how many letters are chosen so far."""


async def chosen(
    desk: Desk,
    operation: Operation,
    letters: AsyncGenerator[Sequence[Letter | UUID], None],
    addresses: Addresses,
    *,
    is_kept: bool,
    most: int | None = None,
    progress: Progress | None = None,
) -> RedrivePlan:
    """Go through the letters, and write each down unless this is only to see. An id stands for a letter that is not there.

    An operation by rule leaves out what cannot go: it would be chosen again at every look, before others that can.
    """
    survey = _Survey(operation, addresses)
    async with aclosing(letters):
        async for page in letters:
            some = [one for one in page if survey.can_go(one)] if operation.is_by_rule else page
            rows = [survey.row(one) for one in (some if most is None else some[: most - survey.total])]
            if is_kept and rows:
                await desk.record(rows)
            if progress is not None:
                progress(survey.total)
            if survey.total == most:
                break
    return survey.plan()


async def by_query(store: LetterStore, query: Query, until: datetime | None) -> AsyncGenerator[Sequence[Letter | UUID], None]:
    """The open letters that match, oldest first, those that died later left out."""
    is_open = Or(tuple(Is(Field.STATUS, status.value) for status in sorted(OPEN)))
    wanted = up_to(And((query, is_open)), until)
    async for page in walk(store, wanted, is_polite=False):
        yield [letter for letter in page if matches(wanted, letter)] if looks_behind(query) else page


async def by_ids(store: LetterStore, ids: Sequence[UUID]) -> AsyncGenerator[Sequence[Letter | UUID], None]:
    """The letters with these ids, each once, in the order given."""
    wanted = list(dict.fromkeys(ids))
    for start in range(0, len(wanted), MOST):
        some = wanted[start : start + MOST]
        yield [letter or id for id, letter in zip(some, await store.get(some), strict=True)]


def not_quarantined(query: Query) -> Query:
    """The question, of letters that no person has to look at first."""
    return And((query, Not(Is(Field.STATUS, Status.QUARANTINED.value))))


async def out_of_quarantine(store: LetterStore, ids: Iterable[UUID]) -> tuple[UUID, ...]:
    """Those of these letters that nobody has put into quarantine since they were chosen."""
    wanted = tuple(ids)
    found = zip(wanted, await store.get(wanted), strict=True)
    return tuple(id for id, letter in found if letter is None or letter.status is not Status.QUARANTINED)


class _Survey:
    """Numbers letters, and counts them."""

    def __init__(self, operation: Operation, addresses: Addresses) -> None:
        self._operation = operation
        self._addresses = addresses
        self._now = datetime.now(UTC)
        self._sources: Counter[str] = Counter()
        self._groups: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        self._targets: dict[str, str] = {}
        self._own: Counter[str] = Counter()
        self._own_of: dict[str, str] = {}
        self.total = 0

    def row(self, one: Letter | UUID) -> LedgerRow:
        number = self.total
        self.total += 1
        if isinstance(one, Letter):
            self._count(one)
            id, generation = one.id, one.generation
        else:
            self._refused["there is no such letter"] += 1
            id, generation = one, 0
        return LedgerRow(
            operation=self._operation.id, number=number, letter=id, generation=generation, entry=Entry.CHOSEN, at=self._now
        )

    def can_go(self, one: Letter | UUID) -> bool:
        """Will it be sent, or quarantined because it has gone round too often? What will not is counted all the same."""
        why = self._why_not(one) if isinstance(one, Letter) else "there is no such letter"
        if why is None or why == went_round(self._operation.tempo.max_rounds):
            return True
        self._refused[why] += 1
        return False

    def _count(self, letter: Letter) -> None:
        self._sources[letter.source] += 1
        self._groups[letter.failure.fingerprint] += 1
        target = self._addresses.of(letter)
        if target is not None and self._addresses.is_own(letter):
            self._own[target.name] += 1
            self._own_of.setdefault(letter.source, target.name)
        elif target is not None:
            self._targets.setdefault(letter.source, target.name)
        if (why := self._why_not(letter)) is not None:
            self._refused[why] += 1

    def _why_not(self, letter: Letter) -> str | None:
        rounds = self._operation.tempo.max_rounds
        if letter.status not in OPEN:
            return f"it is {letter.status}"
        if self._addresses.of(letter) is None:
            return self._addresses.why_not(letter)
        if letter.redrive.count >= rounds:
            return went_round(rounds)
        return unsendable(letter)

    def plan(self) -> RedrivePlan:
        entries = {Entry.CHOSEN: self.total} if self.total else {}
        return RedrivePlan(
            operation=replace(self._operation, total=self.total, entries=entries),
            sources=dict(self._sources.most_common()),
            targets=self._own_of | self._targets,
            groups=dict(self._groups.most_common(_GROUPS_TOLD)),
            group_count=len(self._groups),
            own_targets=dict(self._own.most_common(_GROUPS_TOLD)),
            refused=dict(self._refused.most_common()),
            seconds=self._operation.tempo.seconds_for(self.total),
        )


def went_round(times: int) -> str:
    return f"it has gone round {times} times, and is quarantined"
