"""Letters on SQLite. What a change means is decided by the model; here it is read, written and found."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import NamedTuple, TypeAlias, TypeVar
from uuid import UUID

from msgspec.structs import replace

from redrive.backends.sqlite import changing, claims, counts, finding, groups, recount, settling, table, texts, upkeep
from redrive.backends.sqlite.database import Database
from redrive.backends.sqlite.plan import planned
from redrive.backends.sqlite.query import IS_OPEN
from redrive.backends.sqlite.rows import Numbered, filled, marks, pieces
from redrive.model.amendment import Amended, Amendment
from redrive.model.arrival import Held
from redrive.model.census import Backlog, Miscount
from redrive.model.errors import StoreError
from redrive.model.hours import hour_of, start_of
from redrive.model.instant import micros
from redrive.model.lane import Lane
from redrive.model.lease import Claim, Claimed, Due, Lease
from redrive.model.letter import Letter
from redrive.model.paging import last_group
from redrive.model.query import EVERYTHING, Field, GroupOrder, GroupPage, Order, Page, Query, bounded, tally_key
from redrive.model.settlement import Settled, Settlement
from redrive.model.status import Status
from redrive.model.stored import restored
from redrive.ports.aside import giving_way
from redrive.ports.capabilities import Capabilities
from redrive.ports.inline import here
from redrive.ports.waiting import wait_and_look

T = TypeVar("T")

_Requests: TypeAlias = list[tuple[T, datetime | None]]
"""What callers ask for, each with the instant it is done at if a test gave one."""


class SqliteLetters:
    """The embedded default: one file, full durability, several processes may share it."""

    capabilities = Capabilities(
        durable=True,
        embedded=True,
        inline=True,
        shared=True,
        atomic=True,
        groups=True,
        documents=True,
        counters=True,
        nearest=True,
    )

    def __init__(self, database: Database) -> None:
        self._database = database
        self._unmerged = 0
        """Letters that have left since the index of messages was merged."""

    async def put(self, letters: Sequence[Letter], *, now: datetime | None = None) -> list[Held]:
        return await self._database.write(self._put, (letters, now))

    async def get(self, ids: Sequence[UUID], *, now: datetime | None = None) -> list[Letter | None]:
        moment = self._database.now(now)

        def query(connection: sqlite3.Connection) -> list[Letter | None]:
            found: dict[UUID, Letter] = {}
            for keys in pieces([id.bytes for id in ids]):
                numbers = f"SELECT l.seq AS seq FROM letters l WHERE l.id IN ({marks(len(keys))})"
                some = table.seen(connection, numbers, filled(keys), moment)
                found |= {letter.id: letter for letter in some}
            return [found.get(id) for id in ids]

        return await self._database.read(query)

    async def find(
        self,
        query: Query = EVERYTHING,
        *,
        order: Order = Order.NEWEST,
        limit: int = 100,
        after: str | None = None,
        now: datetime | None = None,
    ) -> Page:
        moment, limit = self._database.now(now), bounded(limit)

        def query_page(connection: sqlite3.Connection) -> Page:
            return finding.page(connection, query, order, limit, after, moment)

        return await self._database.read(query_page)

    async def count(self, query: Query = EVERYTHING, *, now: datetime | None = None) -> int:
        moment = self._database.now(now)
        return await self._database.read(lambda connection: finding.count(connection, query, moment))

    async def tally(self, by: Field, query: Query = EVERYTHING, *, now: datetime | None = None) -> dict[str, int]:
        tally_key(by)
        moment = self._database.now(now)
        return await self._database.read(lambda connection: finding.tally(connection, by, query, moment))

    async def hourly(
        self, since: datetime, until: datetime, query: Query = EVERYTHING, *, now: datetime | None = None
    ) -> dict[datetime, int]:
        moment, first, last = self._database.now(now), hour_of(since), hour_of(until)
        hours = await self._database.read(lambda connection: finding.hours(connection, first, last, query, moment))
        return {start_of(hour): count for hour, count in hours.items()}

    async def groups(
        self,
        query: Query = EVERYTHING,
        *,
        order: GroupOrder = GroupOrder.LAST_SEEN,
        limit: int = 100,
        after: str | None = None,
        now: datetime | None = None,
    ) -> GroupPage:
        moment, last, limit = self._database.now(now), last_group(after, order), bounded(limit)
        return await self._database.read(lambda connection: groups.listed(connection, query, order, limit, last, moment))

    async def claim(self, claim: Claim, *, now: datetime | None = None) -> list[Claimed]:
        taken = await self._database.write(self._claim, (claim, now))
        # Read here, so that the next one need not wait for it before he writes.
        return _claimed(taken, claim)

    async def wait(self, lanes: Sequence[Lane], patience: timedelta) -> None:
        await wait_and_look(lambda: self._due_in(lanes), patience)

    async def extend(self, leases: Sequence[Lease], by: timedelta, *, now: datetime | None = None) -> list[Lease | None]:
        return await self._database.write(self._extend, ((leases, by), now))

    async def settle(self, settlements: Sequence[Settlement], *, now: datetime | None = None) -> list[Settled]:
        return await self._database.write(self._settle, settling.ends(settlements, now, self._database.now(now)))

    async def amend(self, amendments: Sequence[Amendment], *, now: datetime | None = None) -> list[Amended]:
        return await self._database.write(self._amend, (amendments, now))

    async def purge(
        self, query: Query, *, limit: int = 1000, among: Sequence[UUID] | None = None, now: datetime | None = None
    ) -> list[Letter]:
        await self._database.catch_up()
        gone = await self._database.write(self._purge, ((query, limit, among), now))
        # They are gone: should this fail, it is put off.
        with suppress(StoreError):
            await self._sum_up(gone)
        return gone

    async def tidy(self, most: int = 200) -> Backlog:
        left = await self._database.read(upkeep.backlog)
        if left and most:
            await self._database.catch_up()
            left = await self._database.write(upkeep.tidied, most)
            # The index of texts has grown by another part. What was to be done is done: should this fail, it is put off.
            with suppress(StoreError):
                await self._database.write(texts.merge, None)
        return left

    async def recount(self, *, repair: bool = False) -> list[Miscount]:
        while True:
            found = await self._database.read(recount.miscounted)
            wrong = found.differences.miscounts
            if not (repair and wrong) or await self._database.write(recount.repaired, found):
                return wrong

    async def check(self) -> None:
        await self._database.check()

    async def close(self) -> None:
        await here(self._database.close)

    async def _sum_up(self, gone: Sequence[Letter]) -> None:
        """Bring counts and the index of messages up to date, in transactions of their own, each of them short: who captures meanwhile waits
        for one of them, not for all that the letters leave behind."""
        self._unmerged += len(gone)
        if len(gone) > counts.MOST_GROUPS:
            await self._database.write(counts.folded, None)
        while self._unmerged >= texts.MERGED_LETTERS:
            letters = min(self._unmerged, 2 * texts.MERGED_LETTERS)
            self._unmerged -= letters
            if not await self._database.write(texts.merge_messages, letters):
                self._unmerged = 0

    async def _due_in(self, lanes: Sequence[Lane]) -> timedelta | None:
        at = await self._database.read(lambda connection: claims.next_due(connection, lanes))
        return None if at is None else at - self._database.now(None)

    def _claim(self, connection: sqlite3.Connection, requests: list[tuple[Claim, datetime | None]]) -> list[_Taken]:
        # Those who take what is due in a lane share one look at it and one statement for their leases.
        alike: dict[Due, list[int]] = {}
        for number, (claim, given) in enumerate(requests):
            if given is None and isinstance(claim.what, Due):
                alike.setdefault(claim.what, []).append(number)
        answers: dict[int, _Taken] = {}
        for what, numbers in alike.items():
            wanted = [requests[number][0] for number in numbers]
            answers |= zip(numbers, self._claim_due(connection, what, wanted), strict=True)
        for number, (claim, given) in enumerate(requests):
            if number not in answers:
                answers[number] = self._claim_one(connection, claim, self._database.now(given))
        return [answers[number] for number in range(len(requests))]

    def _claim_due(self, connection: sqlite3.Connection, what: Due, wanted: list[Claim]) -> list[_Taken]:
        now = self._database.now(None)
        found = claims.due(connection, what, micros(now), bounded(sum(bounded(claim.limit) for claim in wanted)))
        answers, leases, start = [], [], 0
        for claim in wanted:
            letters = found[start : start + bounded(claim.limit)]
            start += len(letters)
            token = self._token(connection, micros(now)) if letters else 0
            leases.append((letters, claim.owner, token, micros(now + claim.lease)))
            answers.append(_Taken(letters, token, now))
        claims.lease_due(connection, leases)
        return answers

    def _claim_one(self, connection: sqlite3.Connection, claim: Claim, now: datetime) -> _Taken:
        moment, limit, end = micros(now), bounded(claim.limit), micros(now + claim.lease)
        match claim.what:
            case Due() as what:
                letters = claims.due(connection, what, moment, limit)
            case tuple() as ids:
                wanted = tuple(dict.fromkeys(ids))
                stored = table.open_ones(connection, wanted, moment)
                if stored and len(stored) <= limit:
                    token = self._token(connection, moment)
                    claims.lease_free(connection, [seq for seq, _ in stored], claim.owner, token, end)
                    return _Taken(stored, token, now)
                found = {letter.id: Numbered(seq, letter) for seq, data in stored for letter in [restored(data)]}
                letters = [found[id] for id in wanted if id in found][:limit]
            case query:
                letters = table.oldest(connection, planned(connection, query, now), moment, limit, f"AND {IS_OPEN}")
        if not letters:
            return _Taken([], 0, now)
        token = self._token(connection, moment)
        claims.lease(connection, letters, claim.owner, token, end)
        return _Taken(letters, token, now)

    def _token(self, connection: sqlite3.Connection, moment: int) -> int:
        token = claims.next_token(connection, moment)
        self._database.passed(token)
        return token

    def _extend(
        self, connection: sqlite3.Connection, requests: list[tuple[tuple[Sequence[Lease], timedelta], datetime | None]]
    ) -> list[list[Lease | None]]:
        return [claims.extend(connection, leases, by, self._database.now(given)) for (leases, by), given in requests]

    def _put(self, connection: sqlite3.Connection, requests: _Requests[Sequence[Letter]]) -> list[list[Held]]:
        return changing.put(connection, self._timed(requests))

    def _settle(self, connection: sqlite3.Connection, requests: list[settling.Ends]) -> list[list[Settled]]:
        return settling.settle(connection, [(one, self._database.now(one.given)) for one in requests])

    def _amend(self, connection: sqlite3.Connection, requests: _Requests[Sequence[Amendment]]) -> list[list[Amended]]:
        return changing.amend(connection, self._timed(requests))

    def _purge(
        self, connection: sqlite3.Connection, requests: _Requests[tuple[Query, int, Sequence[UUID] | None]]
    ) -> list[list[Letter]]:
        return changing.purge(connection, self._timed(requests))

    def _timed(self, requests: _Requests[T]) -> list[tuple[T, datetime]]:
        """The requests, each with the instant it is done at."""
        return [(request, self._database.now(given)) for request, given in requests]


class _Taken(NamedTuple):
    """What a claim has got."""

    letters: Sequence[tuple[int, Letter | bytes]]
    """With the numbers of their rows; what is not read yet, in its stored form."""
    token: int
    at: datetime


def _claimed(taken: _Taken, claim: Claim) -> list[Claimed]:
    token, until = taken.token, taken.at + claim.lease
    letters = [(seq, restored(one) if isinstance(one, bytes) else one) for seq, one in giving_way(taken.letters)]
    if isinstance(claim.what, tuple):
        # By number: to hash an id takes longer than all the rest.
        places = {id.int: place for place, id in reversed(list(enumerate(claim.what)))}
        letters.sort(key=lambda numbered: places[numbered[1].id.int])
    return [
        Claimed(
            letter=replace(letter, status=Status.RETRYING),
            lease=Lease(id=letter.id, token=token, generation=letter.generation, owner=claim.owner, until=until),
            known=(seq, letter),
        )
        for seq, letter in letters
    ]
