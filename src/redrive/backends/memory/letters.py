"""Letters in a dict: the fake for tests, and the oracle every other store is compared with."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from operator import attrgetter
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from redrive.model import changes
from redrive.model.amendment import Amended, Amendment
from redrive.model.arrival import Held
from redrive.model.census import Backlog, Miscount
from redrive.model.changes import Holding
from redrive.model.errors import Unsupported
from redrive.model.gather import gathered, listed
from redrive.model.hours import hour_of, start_of
from redrive.model.instant import micros
from redrive.model.lane import Lane, lane_of
from redrive.model.lease import Claim, Claimed, Due, Lease
from redrive.model.letter import Letter
from redrive.model.paging import is_newest_first, last_group, last_hour, last_letter, last_nearest, listed_by, page
from redrive.model.query import (
    EVERYTHING,
    Field,
    GroupOrder,
    GroupPage,
    Order,
    Page,
    Query,
    bounded,
    distance_of,
    matches,
    tally_key,
)
from redrive.model.settlement import Settled, Settlement
from redrive.model.status import OPEN, Status
from redrive.model.stored import restored, stored
from redrive.ports.capabilities import Capabilities
from redrive.ports.waiting import wait_and_look


class _Grip(Struct, frozen=True):
    token: int
    owner: str
    until: datetime


class MemoryLetters:
    """Holds letters for as long as the process lives. Safe from threads."""

    capabilities = Capabilities(embedded=True, inline=True, atomic=True, groups=True, documents=True, nearest=True)

    def __init__(self) -> None:
        self._letters: dict[UUID, bytes] = {}
        """In their stored form, so that nobody can change them from outside."""
        self._grips: dict[UUID, _Grip] = {}
        self._token = 0
        self._lock = threading.Lock()

    async def put(self, letters: Sequence[Letter], *, now: datetime | None = None) -> list[Held]:
        with self._lock:
            known = {letter.id: found for letter in letters if (found := self._letter(letter.id))}
            decided = changes.arrivals(known, letters, now or datetime.now(UTC))
            self._letters |= {id: stored(letter) for id, letter in decided.letters.items()}
            for id in decided.reopened:
                self._grips.pop(id, None)
        return decided.answers

    async def get(self, ids: Sequence[UUID], *, now: datetime | None = None) -> list[Letter | None]:
        now = now or datetime.now(UTC)
        with self._lock:
            return [self._seen(letter, now) if (letter := self._letter(id)) else None for id in ids]

    async def find(
        self,
        query: Query = EVERYTHING,
        *,
        order: Order = Order.NEWEST,
        limit: int = 100,
        after: str | None = None,
        now: datetime | None = None,
    ) -> Page:
        at = attrgetter(listed_by(order))

        def key(letter: Letter) -> tuple[int, UUID]:
            return micros(at(letter)), letter.id

        if order is Order.NEAREST:
            return self._nearest(query, bounded(limit), after, now)
        found = sorted(self._matching(query, now), key=key, reverse=is_newest_first(order))
        if (last := last_letter(after, order)) is not None:
            found = [letter for letter in found if (key(letter) < last if is_newest_first(order) else key(letter) > last)]
        return page(found, bounded(limit), order)

    def _nearest(self, query: Query, limit: int, after: str | None, now: datetime | None) -> Page:
        def key(letter: Letter) -> tuple[int, int, int]:
            return distance_of(query, letter), -micros(letter.dead_lettered_at), -letter.id.int

        found = sorted(self._matching(query, now), key=key)
        if (last := last_nearest(after)) is not None:
            found = [letter for letter in found if key(letter) > (last[0], -last[1], -last[2].int)]
        return page(found, limit, Order.NEAREST, far=partial(distance_of, query))

    async def count(self, query: Query = EVERYTHING, *, now: datetime | None = None) -> int:
        return len(self._matching(query, now))

    async def tally(self, by: Field, query: Query = EVERYTHING, *, now: datetime | None = None) -> dict[str, int]:
        return dict(Counter(map(tally_key(by), self._matching(query, now))))

    async def hourly(
        self, since: datetime, until: datetime, query: Query = EVERYTHING, *, now: datetime | None = None
    ) -> dict[datetime, int]:
        hours = Counter(hour_of(letter.dead_lettered_at) for letter in self._matching(query, now))
        return {start_of(hour): count for hour, count in hours.items() if hour_of(since) <= hour <= hour_of(until)}

    async def groups(
        self,
        query: Query = EVERYTHING,
        *,
        order: GroupOrder = GroupOrder.LAST_SEEN,
        limit: int = 100,
        after: str | None = None,
        now: datetime | None = None,
    ) -> GroupPage:
        last = last_group(after, order)
        hour = last_hour(last, now or datetime.now(UTC))
        return listed(gathered(self._matching(query, now), hour), order, bounded(limit), last, hour)

    async def claim(self, claim: Claim, *, now: datetime | None = None) -> list[Claimed]:
        now = now or datetime.now(UTC)
        with self._lock:
            free = [
                letter
                for letter in self._candidates(claim.what, now)
                if letter.status in OPEN and self._grip(letter.id, now) is None
            ]
            self._token += 1
            grip = _Grip(self._token, claim.owner, now + claim.lease)
            taken = free[: bounded(claim.limit)]
            self._grips.update((letter.id, grip) for letter in taken)
            return [Claimed(letter=self._seen(letter, now), lease=_lease(letter, grip)) for letter in taken]

    async def wait(self, lanes: Sequence[Lane], patience: timedelta) -> None:
        await wait_and_look(lambda: self._due_in(lanes), patience)

    async def extend(self, leases: Sequence[Lease], by: timedelta, *, now: datetime | None = None) -> list[Lease | None]:
        now = now or datetime.now(UTC)
        answers: list[Lease | None] = []
        with self._lock:
            for lease in leases:
                letter, grip = self._letter(lease.id), self._grip(lease.id, now)
                if letter is None or grip is None or grip.token != lease.token or letter.generation != lease.generation:
                    answers.append(None)
                    continue
                self._grips[lease.id] = longer = _Grip(grip.token, grip.owner, max(grip.until, now + by))
                answers.append(_lease(letter, longer))
        return answers

    async def settle(self, settlements: Sequence[Settlement], *, now: datetime | None = None) -> list[Settled]:
        with self._lock:
            decided = changes.settlements(self._holdings(one.id for one in settlements), settlements, now or datetime.now(UTC))
            self._letters |= {id: stored(letter) for id, letter in decided.letters.items()}
            for id in decided.letters:
                del self._grips[id]
        return decided.answers

    async def amend(self, amendments: Sequence[Amendment], *, now: datetime | None = None) -> list[Amended]:
        with self._lock:
            decided = changes.amendments(self._holdings(one.id for one in amendments), amendments, now or datetime.now(UTC))
            self._letters |= {id: stored(letter) for id, letter in decided.letters.items()}
        return decided.answers

    async def purge(
        self, query: Query, *, limit: int = 1000, among: Sequence[UUID] | None = None, now: datetime | None = None
    ) -> list[Letter]:
        now = now or datetime.now(UTC)
        wanted = None if among is None else frozenset(among)
        with self._lock:
            found = [letter for letter in self._all_seen(now) if letter.status is not Status.RETRYING and matches(query, letter)]
            if wanted is not None:
                found = [letter for letter in found if letter.id in wanted]
            found.sort(key=_by_age)
            gone = found[: bounded(limit)]
            for letter in gone:
                del self._letters[letter.id]
                self._grips.pop(letter.id, None)
        return gone

    async def tidy(self, most: int = 200) -> Backlog:
        """Nothing is put off."""
        return Backlog()

    async def recount(self, *, repair: bool = False) -> list[Miscount]:
        raise Unsupported("letters in memory are counted when somebody asks; there is nothing to recount")

    async def check(self) -> None:
        """A dict is always ready."""

    async def close(self) -> None:
        """Nothing is held but memory."""

    async def _due_in(self, lanes: Sequence[Lane]) -> timedelta | None:
        with self._lock:
            waiting = [held for held in self._holdings(self._letters).values() if lane_of(held.letter) in lanes]
        at = min((at for held in waiting if (at := changes.claimable_at(held.letter, held)) is not None), default=None)
        return None if at is None else at - datetime.now(UTC)

    def _matching(self, query: Query, now: datetime | None) -> list[Letter]:
        with self._lock:
            return [letter for letter in self._all_seen(now or datetime.now(UTC)) if matches(query, letter)]

    def _candidates(self, what: Due | Query | tuple[UUID, ...], now: datetime) -> Iterable[Letter]:
        match what:
            case Due(lane=lane, longest=longest):
                due = [
                    (0 if longest else -held.letter.priority, at, held.letter.id, held.letter)
                    for held in self._holdings(self._letters).values()
                    if lane_of(held.letter) == lane and (at := changes.claimable_at(held.letter, held)) is not None and at <= now
                ]
                return [letter for *_, letter in sorted(due, key=lambda entry: entry[:3])]
            case tuple():
                return [letter for id in dict.fromkeys(what) if (letter := self._letter(id))]
            case _:
                wanted = (letter.id for letter in self._all_seen(now) if matches(what, letter))
                return sorted((letter for id in wanted if (letter := self._letter(id))), key=_by_age)

    def _letter(self, id: UUID) -> Letter | None:
        data = self._letters.get(id)
        return restored(data) if data else None

    def _holdings(self, ids: Iterable[UUID]) -> dict[UUID, Holding]:
        found = {id: letter for id in ids if (letter := self._letter(id))}
        return {
            id: Holding(found[id], grip.token, grip.until) if (grip := self._grips.get(id)) else Holding(found[id])
            for id in found
        }

    def _all_seen(self, now: datetime) -> list[Letter]:
        return [self._seen(restored(data), now) for data in self._letters.values()]

    def _grip(self, id: UUID, now: datetime) -> _Grip | None:
        grip = self._grips.get(id)
        return grip if grip is not None and grip.until > now else None

    def _seen(self, letter: Letter, now: datetime) -> Letter:
        return replace(letter, status=Status.RETRYING) if self._grip(letter.id, now) else letter


def _by_age(letter: Letter) -> tuple[datetime, bytes]:
    return letter.dead_lettered_at, letter.id.bytes


def _lease(letter: Letter, grip: _Grip) -> Lease:
    return Lease(id=letter.id, token=grip.token, generation=letter.generation, owner=grip.owner, until=grip.until)
