"""Statistics: what is there, what comes in, and what the store has put off; asked of counts, not of letters."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from redrive.model.census import Backlog
from redrive.model.hours import SHOWN, hour_of, start_of
from redrive.model.query import And, Field, Is, Query
from redrive.ports.letters import LetterStore


class Hour(Struct, frozen=True):
    """A clock hour, and how many letters were dead-lettered in it."""

    start: datetime
    count: int


class Statistics(Struct, frozen=True, kw_only=True):
    """How a namespace stands. The counts are taken one after another, so that they may differ by what moved meanwhile.

    Where values are counted, the most frequent come first; one of which there is none is left out.
    """

    namespace: str
    at: datetime
    total: int
    statuses: dict[str, int]
    sources: dict[str, dict[str, int]]
    """For each source its letters by status."""
    categories: dict[str, int]
    errors: dict[str, int]
    """By the error's full name."""
    hours: tuple[Hour, ...]
    """The last 24 hours without a gap; the last one is not over yet."""
    this_hour: int
    """Letters of the clock hour that it is."""
    hour_before: int
    backlog: Backlog
    """What the store has put off, for all its namespaces."""


class Rates(Struct, frozen=True, kw_only=True):
    """By how many letters a second counts change: those that come, less those that go."""

    total: float
    statuses: dict[str, float]
    sources: dict[str, float]


async def statistics(letters: LetterStore, namespace: str, *, now: datetime | None = None) -> Statistics:
    """How a namespace of this store stands."""
    at = now or datetime.now(UTC)
    within = Is(Field.NAMESPACE, namespace)
    statuses = await letters.tally(Field.STATUS, within, now=now)
    sources: dict[str, dict[str, int]] = {}
    # By status and not by source: there are few of these, whatever people call their sources.
    for status in _sorted(statuses):
        of_status: Query = And((within, Is(Field.STATUS, status)))
        for source, count in (await letters.tally(Field.SOURCE, of_status, now=now)).items():
            sources.setdefault(source, {})[status] = count
    categories = await letters.tally(Field.CATEGORY, within, now=now)
    errors = await letters.tally(Field.ERROR, within, now=now)
    hours = await _last_hours(letters, within, at, now)
    return Statistics(
        namespace=namespace,
        at=at,
        total=sum(statuses.values()),
        statuses=_sorted(statuses),
        sources=dict(sorted(sources.items(), key=lambda source: (-sum(source[1].values()), source[0]))),
        categories=_sorted(categories),
        errors=_sorted(errors),
        hours=hours,
        this_hour=hours[-1].count,
        hour_before=hours[-2].count,
        backlog=await letters.tidy(0),
    )


async def _last_hours(letters: LetterStore, within: Query, at: datetime, now: datetime | None) -> tuple[Hour, ...]:
    last = hour_of(at)
    starts = [start_of(hour) for hour in range(last - SHOWN + 1, last + 1)]
    counts = await letters.hourly(starts[0], starts[-1], within, now=now)
    return tuple(Hour(start, counts.get(start, 0)) for start in starts)


def rates(before: Statistics, after: Statistics, took: timedelta) -> Rates:
    """How fast counts changed from one look to the next; what stands still is in it with 0."""
    seconds = max(took.total_seconds(), 1e-6)

    def changed(old: Mapping[str, int], new: Mapping[str, int]) -> dict[str, float]:
        return {
            name: (new.get(name, 0) - old.get(name, 0)) / seconds for name in [*new, *(gone for gone in old if gone not in new)]
        }

    return Rates(
        total=(after.total - before.total) / seconds,
        statuses=changed(before.statuses, after.statuses),
        sources=changed(
            {source: sum(counts.values()) for source, counts in before.sources.items()},
            {source: sum(counts.values()) for source, counts in after.sources.items()},
        ),
    )


def _sorted(counts: Mapping[str, int]) -> dict[str, int]:
    return {name: count for name, count in sorted(counts.items(), key=lambda one: (-one[1], one[0])) if count}
