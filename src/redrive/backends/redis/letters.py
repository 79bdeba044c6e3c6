"""Letters on Redis. What a change means is decided by the model; here it is read, written and found."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from redrive.backends.redis import changing, claims, groups, hours, opening
from redrive.backends.redis.address import Address, Durability
from redrive.backends.redis.counting import counted, tallied, unbounded
from redrive.backends.redis.course import by_shard
from redrive.backends.redis.holdings import read
from redrive.backends.redis.server import Server, all_of
from redrive.backends.redis.walk import Asked, loaded, walked
from redrive.backends.remote.claimed import Copies
from redrive.backends.remote.loops import PerLoop
from redrive.model.amendment import Amended, Amendment
from redrive.model.arrival import Held
from redrive.model.census import Backlog, Miscount
from redrive.model.errors import Unsupported
from redrive.model.lane import Lane
from redrive.model.lease import Claim, Claimed, Lease
from redrive.model.letter import Letter
from redrive.model.paging import last_group, last_letter, page
from redrive.model.query import EVERYTHING, Field, GroupOrder, GroupPage, Order, Page, Query, bounded, tally_key
from redrive.model.settlement import Settled, Settlement
from redrive.ports.capabilities import Capabilities
from redrive.ports.waiting import wait_and_look


class RedisLetters:
    """Letters on one server, or spread over the shards of a cluster."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._copies: Copies[bytes] = Copies()
        self._is_atomic = address.shards == 1
        self._servers = PerLoop(address.name, open=self._connected, close=Server.close)

    @property
    def capabilities(self) -> Capabilities:
        """A batch is written whole where there is one shard: known after the first use, unless the URL says so."""
        is_durable = self.address.durability is Durability.ALWAYS
        return Capabilities(durable=is_durable, shared=True, atomic=self._is_atomic, groups=True, documents=True)

    async def put(self, letters: Sequence[Letter], *, now: datetime | None = None) -> list[Held]:
        return await changing.put(await self._writable(), letters, now)

    async def get(self, ids: Sequence[UUID], *, now: datetime | None = None) -> list[Letter | None]:
        server = await self.server()
        wanted = list(dict.fromkeys(ids))
        answers = await all_of(
            read(server, server.shards[number], [wanted[place].bytes for place in places], now)
            for number, places in by_shard(server, wanted).items()
        )
        found = {id: kept.seen(moment) for part, moment in answers for id, kept in part.items()}
        return [found.get(id) for id in ids]

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
            raise Unsupported("letters on Redis cannot be listed by nearness; choose newest, oldest or updated")
        last, limit = last_letter(after, order), bounded(limit)
        server = await self.server()
        asked = Asked(query=query, order=order, after=last, now=now, expected=limit + 1, bodies=True)
        walk = await walked(server, asked)
        found: list[Letter] = []
        while len(found) <= limit and (some := await walk.more()):
            found += await loaded(server, some[: limit + 1 - len(found)], asked, whole=walk.whole)
        return page(found, limit, order)

    async def count(self, query: Query = EVERYTHING, *, now: datetime | None = None) -> int:
        server = await self.server()
        return await counted(server, await unbounded(server, query), now)

    async def tally(self, by: Field, query: Query = EVERYTHING, *, now: datetime | None = None) -> dict[str, int]:
        tally_key(by)
        server = await self.server()
        return await tallied(server, by, await unbounded(server, query), now)

    async def hourly(
        self, since: datetime, until: datetime, query: Query = EVERYTHING, *, now: datetime | None = None
    ) -> dict[datetime, int]:
        server = await self.server()
        return await hours.hourly(server, since, until, await unbounded(server, query), now)

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
        server = await self.server()
        return await groups.listed(server, await unbounded(server, query), order, bounded(limit), last, now)

    async def claim(self, claim: Claim, *, now: datetime | None = None) -> list[Claimed]:
        return await claims.claim(await self._writable(), claim, now, self._copies)

    async def wait(self, lanes: Sequence[Lane], patience: timedelta) -> None:
        await wait_and_look(lambda: self._due_in(lanes), patience)

    async def extend(self, leases: Sequence[Lease], by: timedelta, *, now: datetime | None = None) -> list[Lease | None]:
        return await claims.extend(await self._writable(), leases, by, now)

    async def settle(self, settlements: Sequence[Settlement], *, now: datetime | None = None) -> list[Settled]:
        return await changing.settle(await self._writable(), settlements, now, self._copies)

    async def amend(self, amendments: Sequence[Amendment], *, now: datetime | None = None) -> list[Amended]:
        return await changing.amend(await self._writable(), amendments, now)

    async def purge(
        self, query: Query, *, limit: int = 1000, among: Sequence[UUID] | None = None, now: datetime | None = None
    ) -> list[Letter]:
        return await changing.purge(await self._writable(), query, bounded(limit), among, now)

    async def tidy(self, most: int = 200) -> Backlog:
        """Nothing is put off."""
        return Backlog()

    async def recount(self, *, repair: bool = False) -> list[Miscount]:
        raise Unsupported("counts on Redis are written in the same step as the letters; they cannot be recounted")

    async def check(self) -> None:
        server = await self.server()
        await opening.ensure_rights(server)
        # Writes nothing into a key that is not there, and needs all that a write needs.
        await all_of(server.command(shard.tag, "SETRANGE", shard.key(b"check"), 0, b"", writes=True) for shard in server.shards)

    async def bind(self, desk: UUID) -> UUID:
        """Record that this store belongs to this desk, once; the id of the one that is recorded."""
        return await opening.bound(await self._writable(), desk)

    async def server(self) -> Server:
        """The connections of this event loop."""
        return await self._servers.get()

    async def close(self) -> None:
        await self._servers.close()

    async def _due_in(self, lanes: Sequence[Lane]) -> timedelta | None:
        return await claims.due_in(await self.server(), lanes)

    async def _connected(self) -> Server:
        server = await opening.connected(self.address)
        self._is_atomic = len(server.shards) == 1
        return server

    async def _writable(self) -> Server:
        server = await self.server()
        if not server.is_writable:
            await opening.take_ground(server)
            self._is_atomic = len(server.shards) == 1
        return server
