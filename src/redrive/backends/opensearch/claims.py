"""Giving leases out: what is due, what is named, what is asked for."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from redrive.backends.opensearch.holdings import SEEN, whole
from redrive.backends.opensearch.index import Index, Write, updated
from redrive.backends.opensearch.query import Clause, asked, is_documentary, leased
from redrive.backends.opensearch.scripts import CLAIM, EXTEND
from redrive.backends.opensearch.walk import BY_AGE, Hit, Sort, page
from redrive.backends.remote.claimed import Copies, Copy
from redrive.model.errors import StoreUnavailable
from redrive.model.instant import instant, micros
from redrive.model.lane import Lane
from redrive.model.lease import Claim, Claimed, Due, Lease
from redrive.model.letter import Letter
from redrive.model.query import And, Field, Is, Or, Query, bounded, matches
from redrive.model.status import OPEN, Status

_LONGEST = timedelta(days=36_500)
_MICROSECOND = timedelta(microseconds=1)
_MOST_A_PAGE = 1000
_WIDER = 8
"""Who met others looks so many times further, and begins somewhere in there."""
_OPEN: Clause = {"terms": {"status": sorted(status.value for status in OPEN)}}
_BY_PRIORITY: Sort = (("priority", "desc"), ("claimable_at", "asc"), ("id_high", "asc"), ("id_low", "asc"))
_BY_PATIENCE: Sort = (("claimable_at", "asc"), ("id_high", "asc"), ("id_low", "asc"))


class _Wish(Struct, frozen=True, gc=False):
    """A letter somebody wants, and the version of its document at which it was seen to be free."""

    id: UUID
    version: tuple[int, int]


class _Wanted(Struct, frozen=True):
    """What is looked for, in which order; and what has to be seen to in each letter, where the engine cannot tell."""

    query: Clause
    sort: Sort
    documentary: Query | None = None

    async def page(self, index: Index, size: int, after: Sequence[Any] | None) -> tuple[list[Hit], list[Hit]]:
        """The next ones, and those of them that are meant."""
        if self.documentary is None:
            hits = await page(index, self.query, self.sort, size=size, after=after, versions=True)
            return hits, hits
        hits = await page(index, self.query, self.sort, size=size, after=after, fields=SEEN, versions=True)
        found = await whole(index, {hit.id: hit.own for hit in hits})
        return hits, [hit for hit in hits if hit.id in found and matches(self.documentary, found[hit.id])]


async def claim(index: Index, claim: Claim, now: datetime | None, copies: Copies[int]) -> list[Claimed]:
    """Lease what can be had of what is wanted."""
    if bounded(claim.limit) == 0:
        return []
    match claim.what:
        case tuple() as ids:
            return await _claim_ids(index, claim, tuple(dict.fromkeys(ids)), now, copies)
        case Due(lane=lane, longest=longest):
            moment = micros(await index.now(now))
            due: Clause = {"range": {"redrive.claimable_at": {"lte": moment}}}
            wanted = _Wanted(asked(_in_lane(lane), moment, due), _BY_PATIENCE if longest else _BY_PRIORITY)
        case query:
            moment = micros(await index.now(now))
            free: Clause = {"bool": {"must_not": [leased(moment)]}}
            wanted = _Wanted(asked(query, moment, _OPEN, free), BY_AGE, query if is_documentary(query) else None)
    return await _claim_found(index, claim, wanted, now, copies)


async def due_in(index: Index, lanes: Sequence[Lane]) -> timedelta | None:
    """How long until a letter of these lanes may be claimed as due; None: none waits for a retry."""
    moment = await index.now()
    await index.fresh()
    wanted = asked(Or(tuple(map(_in_lane, lanes))), micros(moment), {"exists": {"field": "redrive.claimable_at"}})
    first = await page(index, wanted, _BY_PATIENCE, size=1)
    return instant(first[0].place[0]) - moment if first else None


def _in_lane(lane: Lane) -> Query:
    return And((Is(Field.NAMESPACE, lane.namespace), Is(Field.SOURCE, lane.source)))


async def extend(index: Index, leases: Sequence[Lease], by: timedelta, now: datetime | None) -> list[Lease | None]:
    """Move the ends of live leases; None for each that is lost."""
    params = {"now": None if now is None else micros(now), "by": _bounded(by)}
    left = {(lease.id, lease.token, lease.generation) for lease in leases}
    ends: dict[tuple[UUID, int, int], datetime] = {}
    with index.partly(lambda: bool(ends)):
        while left:
            keys = sorted(left)
            writes = [
                Write(id, updated(id, EXTEND, {**params, "token": token, "generation": generation}))
                for id, token, generation in keys
            ]
            for key, result in zip(
                keys, await index.write(writes, {"_source_includes": "redrive.token,redrive.until"}), strict=True
            ):
                if result.is_conflict:
                    continue
                left.discard(key)
                if not (result.is_missing or result.is_lost):
                    ends[key] = instant(result.source["until"])
    found = [(lease, ends.get((lease.id, lease.token, lease.generation))) for lease in leases]
    return [None if end is None else replace(lease, until=end) for lease, end in found]


async def _claim_ids(index: Index, claim: Claim, ids: Sequence[UUID], now: datetime | None, copies: Copies[int]) -> list[Claimed]:
    """In slices of what is still wanted, so that nothing is taken which comes later in the order given."""
    limit, found, start = bounded(claim.limit), list[Claimed](), 0
    while start < len(ids) and len(found) < limit:
        some = ids[start : start + limit - len(found)]
        start += len(some)
        taken: dict[UUID, Claimed] = {}
        met: Sequence[UUID] = some
        try:
            while met:
                wishes = await _named(index, met, await index.now(now))
                got, met = await _taken(index, claim, wishes, now, copies)
                taken |= {one.letter.id: one for one in got}
        except StoreUnavailable:
            if not (found or taken):
                raise
            start = len(ids)  # what was leased already is given to its owner, who may ask for the rest again
        found += [taken[id] for id in some if id in taken]
    return found


async def _named(index: Index, ids: Sequence[UUID], moment: datetime) -> list[_Wish]:
    """Those of the letters that are open and that nobody holds."""
    wishes = []
    for id, one in zip(ids, await index.read(ids), strict=True):
        source = one.get("_source", {})
        until = source.get("redrive", {}).get("until")
        if source.get("status") in OPEN and (until is None or until <= micros(moment)):
            wishes.append(_Wish(id, (one["_seq_no"], one["_primary_term"])))
    return wishes


async def _claim_found(index: Index, claim: Claim, wanted: _Wanted, now: datetime | None, copies: Copies[int]) -> list[Claimed]:
    """The first in order. What another took meanwhile is passed over; who finds too few looks again at what others wrote."""
    found: list[Claimed] = []
    try:
        await _find_and_take(index, claim, wanted, now, copies, found)
    except StoreUnavailable:
        # What was leased already is given to its owner, who may ask for the rest again.
        if not found:
            raise
    return found


async def _find_and_take(
    index: Index, claim: Claim, wanted: _Wanted, now: datetime | None, copies: Copies[int], found: list[Claimed]
) -> None:
    limit = bounded(claim.limit)
    after: Sequence[Any] | None = None
    tried: set[tuple[UUID, tuple[int, int]]] = set()
    has_met, is_last_look = False, await index.fresh()
    while len(found) < limit:
        missing = limit - len(found)
        is_wider = has_met or wanted.documentary is not None
        size = min(missing * _WIDER if is_wider else missing, _MOST_A_PAGE)
        hits, meant = await wanted.page(index, size, after)
        new = [_Wish(hit.id, hit.version) for hit in meant if (hit.id, hit.version) not in tried]
        start = random.randrange(len(new) - missing + 1) if has_met and len(new) > missing else 0  # noqa: S311  # no secret
        wishes = new[start : start + missing]
        tried.update((wish.id, wish.version) for wish in wishes)
        got, met = await _taken(index, claim, wishes, now, copies)
        found += got
        has_met = bool(met)
        if len(wishes) < len(new):
            continue  # with what is left of this page
        if len(hits) == size:
            after = hits[-1].place
        elif not is_last_look:
            is_last_look, after = True, None
            await index.fresh(even_so=True)
        else:
            break


async def _taken(
    index: Index, claim: Claim, wishes: Sequence[_Wish], now: datetime | None, copies: Copies[int]
) -> tuple[list[Claimed], list[UUID]]:
    """Lease those of the letters that are still free, in the order wished for; and which were changed since they were seen."""
    params = {"now": None if now is None else micros(now), "lease": _bounded(claim.lease), "owner": claim.owner}
    # The number of a document's last change rises with every change of its shard, so a token behind it is higher than all before.
    writes = [Write(wish.id, updated(wish.id, CLAIM, {**params, "token": wish.version[0] + 1}, wish.version)) for wish in wishes]
    results = await index.write(writes, {"_source": "true"} | await index.without_large())
    own = {wish.id: result.source for wish, result in zip(wishes, results, strict=True) if result.is_done}
    with index.partly(lambda: bool(own)):
        letters = await whole(index, own)
    copies.remember(Copy(letter, own[id]["version"], own[id]["token"]) for id, letter in letters.items())
    claimed = [_claimed(letters[id], claim.owner, fields) for id, fields in own.items() if id in letters]
    return claimed, [wish.id for wish, result in zip(wishes, results, strict=True) if result.is_conflict]


def _claimed(letter: Letter, owner: str, fields: Mapping[str, Any]) -> Claimed:
    return Claimed(
        letter=replace(letter, status=Status.RETRYING),
        lease=Lease(
            id=letter.id,
            token=fields["token"],
            generation=letter.generation,
            owner=owner,
            until=instant(fields["until"]),
        ),
    )


def _bounded(duration: timedelta) -> int:
    return max(-_LONGEST, min(duration, _LONGEST)) // _MICROSECOND
