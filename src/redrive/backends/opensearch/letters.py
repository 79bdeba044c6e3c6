"""Letters on OpenSearch. What a change means is decided by the model; here it is read, written and found."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

from redrive.backends.opensearch import changing, claims, counting, groups, hours, opening
from redrive.backends.opensearch.address import Address
from redrive.backends.opensearch.document import halves
from redrive.backends.opensearch.holdings import SEEN, kept, letters
from redrive.backends.opensearch.index import Index
from redrive.backends.opensearch.query import asked, is_documentary, is_of_statuses
from redrive.backends.opensearch.sift import LETTERS_A_PAGE, matching
from redrive.backends.opensearch.walk import Sort, walked
from redrive.backends.remote.claimed import Copies
from redrive.model.amendment import Amended, Amendment
from redrive.model.arrival import Held
from redrive.model.census import Backlog, Miscount
from redrive.model.errors import Unsupported
from redrive.model.instant import micros
from redrive.model.lane import Lane
from redrive.model.lease import Claim, Claimed, Lease
from redrive.model.letter import Letter
from redrive.model.paging import is_newest_first, last_group, last_letter, listed_by, page
from redrive.model.query import EVERYTHING, Field, GroupOrder, GroupPage, Order, Page, Query, bounded, tally_key
from redrive.model.settlement import Settled, Settlement
from redrive.ports.capabilities import Capabilities
from redrive.ports.waiting import wait_and_look


class Connections(Protocol):
    """Where this event loop's own index is to be had."""

    async def get(self) -> Index: ...
    async def close(self) -> None: ...


class OpenSearchLetters:
    """Letters in one index, searchable by everybody's tools too."""

    capabilities = Capabilities(durable=True, shared=True, groups=True, documents=True)

    def __init__(self, address: Address, connections: Connections) -> None:
        self.address = address
        self._connections = connections
        self._copies: Copies[int] = Copies()

    async def put(self, letters: Sequence[Letter], *, now: datetime | None = None) -> list[Held]:
        return await changing.put(await self._writable(), letters, now) if letters else []

    async def get(self, ids: Sequence[UUID], *, now: datetime | None = None) -> list[Letter | None]:
        index = await self._readable()
        if index is None or not ids:
            return [None for _ in ids]
        found = await kept(index, ids)
        moment = await index.now(now)
        return [found[id].seen(moment) if id in found else None for id in ids]

    async def find(
        self,
        query: Query = EVERYTHING,
        *,
        order: Order = Order.NEWEST,
        limit: int = 100,
        after: str | None = None,
        now: datetime | None = None,
    ) -> Page:
        if order is Order.NEAREST:
            raise Unsupported("letters on OpenSearch cannot be listed by nearness; choose newest, oldest or updated")
        last, limit = last_letter(after, order), bounded(limit)
        index = await self._readable()
        if index is None:
            return Page(letters=())
        moment = await index.now(now)
        wanted = asked(query, None if is_of_statuses(query) else micros(moment))
        await index.fresh()
        way = "desc" if is_newest_first(order) else "asc"
        sort: Sort = ((listed_by(order), way), ("id_high", way), ("id_low", way))
        behind = None if last is None else [last[0], *halves(last[1])]
        found: list[Letter] = []
        size = LETTERS_A_PAGE if is_documentary(query) else min(limit + 1, LETTERS_A_PAGE)
        async for hits in walked(index, wanted, sort, size=size, after=behind, fields=SEEN):
            found += matching(query, (await letters(index, {hit.id: hit.own for hit in hits}, moment)).values())
            if len(found) > limit:
                break
        return page(found, limit, order)

    async def count(self, query: Query = EVERYTHING, *, now: datetime | None = None) -> int:
        index = await self._readable()
        return 0 if index is None else await counting.counted(index, query, now)

    async def tally(self, by: Field, query: Query = EVERYTHING, *, now: datetime | None = None) -> dict[str, int]:
        tally_key(by)
        index = await self._readable()
        return {} if index is None else await counting.tallied(index, by, query, now)

    async def hourly(
        self, since: datetime, until: datetime, query: Query = EVERYTHING, *, now: datetime | None = None
    ) -> dict[datetime, int]:
        index = await self._readable()
        return {} if index is None else await hours.hourly(index, since, until, query, now)

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
        index = await self._readable()
        return GroupPage(groups=()) if index is None else await groups.listed(index, query, order, bounded(limit), last, now)

    async def claim(self, claim: Claim, *, now: datetime | None = None) -> list[Claimed]:
        return await claims.claim(await self._writable(), claim, now, self._copies)

    async def wait(self, lanes: Sequence[Lane], patience: timedelta) -> None:
        await wait_and_look(lambda: self._due_in(lanes), patience)

    async def extend(self, leases: Sequence[Lease], by: timedelta, *, now: datetime | None = None) -> list[Lease | None]:
        return await claims.extend(await self._writable(), leases, by, now)

    async def settle(self, settlements: Sequence[Settlement], *, now: datetime | None = None) -> list[Settled]:
        return await changing.settle(await self._writable(), settlements, now, self._copies) if settlements else []

    async def amend(self, amendments: Sequence[Amendment], *, now: datetime | None = None) -> list[Amended]:
        return await changing.amend(await self._writable(), amendments, now) if amendments else []

    async def purge(
        self, query: Query, *, limit: int = 1000, among: Sequence[UUID] | None = None, now: datetime | None = None
    ) -> list[Letter]:
        return await changing.purge(await self._writable(), query, bounded(limit), among, now)

    async def tidy(self, most: int = 200) -> Backlog:
        """Nothing is put off."""
        return Backlog()

    async def recount(self, *, repair: bool = False) -> list[Miscount]:
        raise Unsupported("OpenSearch counts letters when somebody asks; there is nothing to recount")

    async def check(self) -> None:
        index = await self.index()
        if await opening.look(index) is not None:
            await opening.ensure_writable(index)

    async def bind(self, desk: UUID) -> UUID:
        """Record that this store belongs to this desk, once; the id of the one that is recorded."""
        return await opening.bound(await self._writable(), desk)

    async def index(self) -> Index:
        """The index as this event loop sees it, whether it is there or not."""
        return await self._connections.get()

    async def close(self) -> None:
        await self._connections.close()

    async def _due_in(self, lanes: Sequence[Lane]) -> timedelta | None:
        index = await self._readable()
        return None if index is None else await claims.due_in(index, lanes)

    async def _readable(self) -> Index | None:
        """None: there is nothing to read yet."""
        index = await self.index()
        if index.uuid is None and await opening.look(index) is None:
            return None
        return index

    async def _writable(self) -> Index:
        index = await self.index()
        if not index.has_ground:
            await opening.take_ground(index)
        return index
