"""`put`, `settle`, `amend` and `purge`: each brings what it knows, the model decides, and what met others is decided again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Protocol, TypeVar
from uuid import UUID

from redrive.backends.opensearch.document import changing, document, own_changing, without_views
from redrive.backends.opensearch.holdings import Kept, kept
from redrive.backends.opensearch.index import Index, Write, created, deleted, replaced, updated
from redrive.backends.opensearch.query import asked, is_documentary, leased
from redrive.backends.opensearch.scripts import SETTLE
from redrive.backends.opensearch.walk import BY_AGE, walked
from redrive.backends.remote.claimed import Copies
from redrive.model.amendment import Amended, Amendment
from redrive.model.arrival import Held
from redrive.model.changes import Changes, Holding, amendments, arrivals, settlements
from redrive.model.errors import StoreUnavailable
from redrive.model.instant import micros
from redrive.model.letter import Letter
from redrive.model.query import Query, matches
from redrive.model.settlement import Settled, Settlement

_FOREVER = datetime(9999, 1, 1, tzinfo=UTC)
_MOST_ROUNDS = 500
_PATIENT_ROUNDS = 3
_MOST_A_PAGE = 1000


class _Item(Protocol):
    @property
    def id(self) -> UUID: ...


Item = TypeVar("Item", bound=_Item)
Answer = TypeVar("Answer")


async def put(index: Index, letters: Sequence[Letter], now: datetime | None) -> list[Held]:
    """Taken to be new at first: when they are, which is the usual case, one request holds them."""
    moment = await index.now(now)

    def decide(known: Mapping[UUID, Kept], some: Sequence[Letter]) -> Changes[Held]:
        return arrivals({id: one.letter for id, one in known.items()}, some, moment)

    def write(known: Mapping[UUID, Kept], changes: Changes[Held]) -> list[Write]:
        return [_write(letter, known.get(id), void=id in changes.reopened) for id, letter in changes.letters.items()]

    return await _carried_out(index, letters, {}, decide, write)


async def amend(index: Index, items: Sequence[Amendment], now: datetime | None) -> list[Amended]:
    """On letters that are read first, and that nobody has changed or claimed when the change is written."""
    known = await kept(index, (item.id for item in items))
    moment = await index.now(now)

    def decide(known: Mapping[UUID, Kept], some: Sequence[Amendment]) -> Changes[Amended]:
        return amendments(_holdings(known), some, moment)

    def write(known: Mapping[UUID, Kept], changes: Changes[Amended]) -> list[Write]:
        return [_write(letter, known[id]) for id, letter in changes.letters.items()]

    return await _carried_out(index, items, known, decide, write)


async def settle(index: Index, items: Sequence[Settlement], now: datetime | None, copies: Copies[int]) -> list[Settled]:
    """By what was remembered when the letters were claimed, where that is at hand. The lease is judged where they are."""
    known = _remembered(items, copies)
    known |= await kept(index, [item.id for item in items if item.id not in known])
    moment = await index.now(now)
    given = None if now is None else micros(now)
    answers: dict[int, Settled] = {}
    places = list(range(len(items)))
    with index.partly(lambda: Settled.DONE in answers.values()):
        for round in range(_MOST_ROUNDS):
            changes = settlements(_holdings(known), [items[place] for place in places], moment)
            decided = dict(zip(places, changes.answers, strict=True))
            writes = [Write(id, _settling(letter, known[id], given)) for id, letter in changes.letters.items()]
            again: set[UUID] = set()
            for write, result in zip(writes, await index.write(writes, {"_source_includes": "redrive.token"}), strict=True):
                if result.is_missing or result.is_lost:
                    told = Settled.MISSING if result.is_missing else Settled.LEASE_LOST
                    decided |= {place: told for place in places if items[place].id == write.id}
                elif not result.is_done:
                    again.add(write.id)
            places = [place for place in places if items[place].id in again]
            answers |= {place: answer for place, answer in decided.items() if place not in places}
            if not again:
                return [answers[place] for place in range(len(items))]
            known = await _learned(index, again, round)
            moment = await index.now(now)
        raise _busy(index)


async def purge(index: Index, query: Query, limit: int, among: Sequence[UUID] | None, now: datetime | None) -> list[Letter]:
    """The oldest that match are found first, then read and removed; others make up for what could not be."""
    if limit == 0:
        return []
    moment = await index.now(now)
    removed: list[Letter] = []
    found = _found(index, query, limit, moment) if among is None else _found_among(index, query, among, moment)
    with index.partly(lambda: bool(removed)):
        async for ids in found:
            while ids and len(removed) < limit:
                missing = limit - len(removed)
                await _remove(index, ids[:missing], query, moment, removed)
                ids = ids[missing:]
            if len(removed) >= limit:
                break
    removed.sort(key=_age)
    return removed


async def _found(index: Index, query: Query, limit: int, moment: datetime) -> AsyncIterator[list[UUID]]:
    """Letters that may match and that nobody holds, oldest first."""
    await index.fresh()
    free = {"bool": {"must_not": [leased(micros(moment))]}}
    size = _MOST_A_PAGE if is_documentary(query) else min(limit, _MOST_A_PAGE)
    async for page in walked(index, asked(query, micros(moment), free), BY_AGE, size=size):
        yield [hit.id for hit in page]


async def _found_among(index: Index, query: Query, among: Sequence[UUID], moment: datetime) -> AsyncIterator[list[UUID]]:
    """Those of these letters that match and that nobody holds, oldest first; read by their ids, so nothing lags."""
    wanted = list(dict.fromkeys(among))
    ages: list[tuple[datetime, bytes]] = []
    for start in range(0, len(wanted), _MOST_A_PAGE):
        known = await kept(index, wanted[start : start + _MOST_A_PAGE])
        ages += [_age(one.letter) for one in known.values() if _is_removable(one, query, moment)]
    yield [UUID(bytes=id) for _, id in sorted(ages)]


def _age(letter: Letter) -> tuple[datetime, bytes]:
    return letter.dead_lettered_at, letter.id.bytes


def _is_removable(one: Kept, query: Query, moment: datetime) -> bool:
    return not one.is_held(moment) and matches(query, one.letter)


async def _remove(index: Index, ids: Sequence[UUID], query: Query, moment: datetime, removed: list[Letter]) -> None:
    """Remove those of the letters that still match and that nobody holds."""
    left: Collection[UUID] = ids
    for round in range(_MOST_ROUNDS):
        known = await (kept(index, left) if round == 0 else _learned(index, left, round))
        free = {id: one for id, one in known.items() if _is_removable(one, query, moment)}
        writes = [Write(id, deleted(id, *one.document)) for id, one in free.items()]
        left = []
        for write, result in zip(writes, await index.write(writes), strict=True):
            if result.is_done:
                removed.append(free[write.id].letter)
            elif result.is_conflict:
                left.append(write.id)
        if not left:
            return
    raise _busy(index)


async def _carried_out(
    index: Index,
    items: Sequence[Item],
    known: Mapping[UUID, Kept],
    decide: Callable[[Mapping[UUID, Kept], Sequence[Item]], Changes[Answer]],
    write: Callable[[Mapping[UUID, Kept], Changes[Answer]], list[Write]],
) -> list[Answer]:
    """An answer for each item; a letter that another changed meanwhile is read and decided again."""
    answers: dict[int, Answer] = {}
    places = list(range(len(items)))
    has_written = False
    with index.partly(lambda: has_written):
        for round in range(_MOST_ROUNDS):
            changes = decide(known, [items[place] for place in places])
            answers |= zip(places, changes.answers, strict=True)
            writes = write(known, changes)
            results = await index.write(writes)
            again = {write.id for write, result in zip(writes, results, strict=True) if not result.is_done}
            if not again:
                return [answers[place] for place in range(len(items))]
            has_written = has_written or len(again) < len(writes)
            places = [place for place in places if items[place].id in again]
            known = await _learned(index, again, round)
        raise _busy(index)


async def _learned(index: Index, ids: Collection[UUID], round: int) -> dict[UUID, Kept]:
    """How the letters are now that somebody else has changed."""
    if round > _PATIENT_ROUNDS:
        # One of those who meet always gets through; this parts the rest.
        await asyncio.sleep(random.uniform(0, 0.002 * min(round, 50)))  # noqa: S311  # no secret
    return await kept(index, ids)


def _busy(index: Index) -> StoreUnavailable:
    return StoreUnavailable(f"others keep changing the same letters in the {index.name}; try again")


def _write(letter: Letter, before: Kept | None, *, void: bool = False) -> Write:
    """The letter as it is to be; `void`: every lease on it ends."""
    if before is None:
        whole = document(letter, None, 1)
        return Write(letter.id, created(letter.id, whole), lambda: created(letter.id, without_views(whole)))
    holding = Holding(letter, before.token, None if void else before.until)
    whole = document(letter, holding, before.version + 1, before.owner)
    lines = partial(replaced, letter.id, seq=before.document[0], term=before.document[1])
    return Write(letter.id, lines(whole), lambda: lines(without_views(whole)))


def _settling(letter: Letter, before: Kept, now: int | None) -> bytes:
    params = {
        "now": now,
        "token": before.token,
        "version": before.version,
        "view": changing(letter),
        "own": own_changing(letter, None, before.version + 1),
    }
    return updated(letter.id, SETTLE, params)


def _remembered(items: Iterable[Settlement], copies: Copies[int]) -> dict[UUID, Kept]:
    """What was claimed here. Whether the lease is live is seen at the server."""
    found = {}
    for item in items:
        if item.id not in found and (copy := copies.take(item.id, item.token)):
            found[item.id] = Kept(copy.letter, copy.version, (0, 0), copy.token, _FOREVER)
    return found


def _holdings(known: Mapping[UUID, Kept]) -> dict[UUID, Holding]:
    return {id: one.holding for id, one in known.items()}
