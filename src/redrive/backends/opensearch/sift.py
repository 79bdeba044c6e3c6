"""Questions about documents, bodies and tracebacks: the engine finds what may match, and each letter is then seen to here."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable
from datetime import datetime

from redrive.backends.opensearch.holdings import SEEN, letters
from redrive.backends.opensearch.index import Index
from redrive.backends.opensearch.query import asked, is_documentary, is_of_statuses
from redrive.backends.opensearch.walk import BY_AGE, walked
from redrive.model.gather import Gathered
from redrive.model.hours import hour_of
from redrive.model.instant import micros
from redrive.model.letter import Letter
from redrive.model.query import Field, Group, Query, matches, tally_key

LETTERS_A_PAGE = 500


def matching(query: Query, found: Iterable[Letter]) -> list[Letter]:
    """Those of the letters that answer the question, where the engine could not tell."""
    is_exact = not is_documentary(query) and not is_of_statuses(query)
    return list(found) if is_exact else [letter for letter in found if matches(query, letter)]


async def counted(index: Index, query: Query, now: datetime) -> int:
    return sum([len(page) async for page in _sifted(index, query, now)])


async def tallied(index: Index, by: Field, query: Query, now: datetime) -> dict[str, int]:
    totals, key = Counter[str](), tally_key(by)
    async for page in _sifted(index, query, now):
        totals.update(map(key, page))
    return dict(totals)


async def hourly(index: Index, query: Query, now: datetime) -> Counter[int]:
    totals = Counter[int]()
    async for page in _sifted(index, query, now):
        totals.update(hour_of(letter.dead_lettered_at) for letter in page)
    return totals


async def grouped(index: Index, query: Query, hour: int, now: datetime) -> list[Group]:
    groups: dict[str, Gathered] = {}
    async for page in _sifted(index, query, now):
        for letter in page:
            name = letter.failure.fingerprint
            if name not in groups:
                groups[name] = Gathered(letter)
            groups[name].add(letter)
    return [one.group(hour) for one in groups.values()]


async def _sifted(index: Index, query: Query, now: datetime) -> AsyncIterator[list[Letter]]:
    """The letters that match, oldest first, a page at a time."""
    async for hits in walked(index, asked(query, micros(now)), BY_AGE, size=LETTERS_A_PAGE, fields=SEEN):
        yield matching(query, (await letters(index, {hit.id: hit.own for hit in hits}, now)).values())
