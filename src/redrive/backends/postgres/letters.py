"""Letters on PostgreSQL. What a change means is decided by the model; here it is read, written and found."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from uuid import UUID

from msgspec.structs import replace

from redrive.backends.postgres import claims
from redrive.backends.postgres.counts import Counts
from redrive.backends.postgres.database import Connection, Database
from redrive.backends.postgres.errors import AlreadyThere
from redrive.backends.postgres.folding import Folding
from redrive.backends.postgres.groups import Groups
from redrive.backends.postgres.listen import Bell
from redrive.backends.postgres.listings import Listings
from redrive.backends.postgres.months import Months
from redrive.backends.postgres.puts import Puts, columns
from redrive.backends.postgres.query import Condition
from redrive.backends.postgres.recount import Recount
from redrive.backends.postgres.rows import SETTLED, arrays, plain, settled_row
from redrive.backends.postgres.statements import statements
from redrive.backends.postgres.texts import Texts
from redrive.backends.remote.claimed import Copies, Copy
from redrive.model import changes
from redrive.model.amendment import Amended, Amendment
from redrive.model.arrival import Held
from redrive.model.census import Backlog, Miscount
from redrive.model.changes import Holding
from redrive.model.errors import StoreUnavailable
from redrive.model.instant import instant, micros
from redrive.model.lane import Lane, lane_of
from redrive.model.lease import Claim, Claimed, Due, Lease
from redrive.model.letter import Letter
from redrive.model.paging import last_group, last_hour
from redrive.model.query import EVERYTHING, Field, GroupOrder, GroupPage, Order, Page, Query, bounded
from redrive.model.settlement import Settled, Settlement, settled
from redrive.model.status import Status
from redrive.model.stored import restored
from redrive.model.texts import reads_otherwise
from redrive.ports.capabilities import Capabilities
from redrive.ports.waiting import wait_and_look

_MOST_TRIES = 10
_LOOK_WHEN_TOLD = timedelta(seconds=30)
"""How long to trust that somebody would ring."""
_MICROSECOND = timedelta(microseconds=1)


class PostgresLetters:
    """For teams: many processes on many hosts share one store, as durable as their database."""

    capabilities = Capabilities(durable=True, shared=True, atomic=True, groups=True, counters=True, nearest=True)

    def __init__(self, database: Database) -> None:
        self._database = database
        self._schema = database.schema
        self._sql = statements(database.tables)
        self._puts = Puts(database, self._sql)
        self._listings = Listings(database)
        self._counts = Counts(database)
        self._groups = Groups(database)
        self._texts = Texts(database)
        self._recount = Recount(database)
        self._folding = Folding(database, self._sql.fold)
        self._months = Months(database, self._sql)
        self._copies: Copies[int] = Copies()
        self._bell = Bell(database, listen) if (listen := database.address.listen) else None

    async def put(self, letters: Sequence[Letter], *, now: datetime | None = None) -> list[Held]:
        await self._months.make_room(letters)
        fresh = changes.arrivals({}, letters, await self._database.now(now))
        if len(fresh.letters) == len(letters) and await self._puts.written(fresh.letters.values()):
            await self._written(fresh.letters.values())
            return fresh.answers
        for _ in range(_MOST_TRIES):
            with suppress(AlreadyThere):
                return await self._put_known(letters, now)
        raise StoreUnavailable(f"others put the same letters at {self._database.address.name} all the time; try again")

    async def get(self, ids: Sequence[UUID], *, now: datetime | None = None) -> list[Letter | None]:
        found = {letter.id: letter for letter in await self._listings.of(ids, _micros(now))}
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
        return await self._listings.find(query, order, bounded(limit), after, _micros(now))

    async def count(self, query: Query = EVERYTHING, *, now: datetime | None = None) -> int:
        return await self._counts.count(query, _micros(now))

    async def tally(self, by: Field, query: Query = EVERYTHING, *, now: datetime | None = None) -> dict[str, int]:
        return await self._counts.tally(by, query, _micros(now))

    async def hourly(
        self, since: datetime, until: datetime, query: Query = EVERYTHING, *, now: datetime | None = None
    ) -> dict[datetime, int]:
        return await self._counts.hourly(since, until, query, _micros(now))

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
        hour = last_hour(last, await self._database.now(now))
        return await self._groups.listed(query, order, bounded(limit), last, hour, _micros(now))

    async def claim(self, claim: Claim, *, now: datetime | None = None) -> list[Claimed]:
        moment, limit = _micros(now), bounded(claim.limit)
        arguments: list[object] = [moment, claim.lease // _MICROSECOND, plain(claim.owner)]
        match claim.what:
            case Due(lane=lane, longest=longest):
                sql = claims.claim_due(self._schema, longest=longest)
                arguments += [lane.number, limit]
            case tuple() as ids:
                sql = claims.claim_ids(self._database.tables, limit)
                arguments.append(list(dict.fromkeys(ids)))
            case query:
                condition = Condition(self._schema, query, moment, behind=arguments)
                sql, arguments = claims.claim_query(self._schema, condition, limit), condition.arguments
        answers: list[Claimed] = []
        copies = []
        for data, version, token, until, clock in await self._database.write(sql, *arguments):
            letter = restored(data)
            if now is None and not answers:
                self._database.clock.heard(instant(clock))
            copies.append(Copy(letter=letter, version=version, token=token))
            lease = Lease(id=letter.id, token=token, generation=letter.generation, owner=claim.owner, until=instant(until))
            answers.append(Claimed(letter=replace(letter, status=Status.RETRYING), lease=lease))
        self._copies.remember(copies)
        return answers

    async def wait(self, lanes: Sequence[Lane], patience: timedelta) -> None:
        if self._bell is None:
            await wait_and_look(lambda: self._due_in(lanes), patience)
        else:
            await wait_and_look(lambda: self._due_in(lanes), patience, rest=self._bell.rest, every=_LOOK_WHEN_TOLD)

    async def extend(self, leases: Sequence[Lease], by: timedelta, *, now: datetime | None = None) -> list[Lease | None]:
        ids, tokens, generations = arrays(((lease.id, lease.token, lease.generation) for lease in leases), 3)
        rows = await self._database.write(self._sql.extend, _micros(now), by // _MICROSECOND, ids, tokens, generations)
        ends = {(id, token, generation): instant(until) for id, token, generation, until in rows}
        extended = [(lease, ends.get((lease.id, lease.token, lease.generation))) for lease in leases]
        return [None if end is None else replace(lease, until=end) for lease, end in extended]

    async def settle(self, settlements: Sequence[Settlement], *, now: datetime | None = None) -> list[Settled]:
        if not settlements or await self._settle_copies(settlements, now):
            return [Settled.DONE] * len(settlements)
        async with self._database.transaction() as connection:
            holdings, moment = await self._holdings(connection, {settlement.id for settlement in settlements}, now)
            decided = changes.settlements(holdings, settlements, moment)
            await self._overwrite(connection, decided.letters.values(), holdings)
            await self._plan(connection, decided.letters.values())
        await self._written(decided.letters.values())
        return decided.answers

    async def amend(self, amendments: Sequence[Amendment], *, now: datetime | None = None) -> list[Amended]:
        async with self._database.transaction() as connection:
            holdings, moment = await self._holdings(connection, {amendment.id for amendment in amendments}, now)
            decided = changes.amendments(holdings, amendments, moment)
            await self._overwrite(connection, decided.letters.values(), holdings)
            await self._plan(connection, decided.letters.values(), holdings)
        await self._written(decided.letters.values())
        return decided.answers

    async def purge(
        self, query: Query, *, limit: int = 1000, among: Sequence[UUID] | None = None, now: datetime | None = None
    ) -> list[Letter]:
        condition = Condition(self._schema, query, _micros(now), is_for_few=among is not None)
        wanted = (
            condition.sql if among is None else f"{condition.sql} AND l.id = ANY ({condition.parameter(list(among))}::uuid[])"
        )
        chosen = (
            f"SELECT l.id FROM {self._schema}.letters l WHERE {wanted} AND NOT {condition.is_leased}"
            f" ORDER BY l.dead_lettered_at, l.id LIMIT {bounded(limit)} FOR UPDATE OF l SKIP LOCKED"
        )
        async with self._database.transaction() as connection:
            await connection.execute(self._sql.quiet)
            ids = [id for (id,) in await connection.fetch(chosen, *condition.arguments)]
            rows = await connection.fetch(self._sql.remove, _micros(now), ids)
        gone = [restored(data) for (data,) in rows]
        await self._written(gone)
        return gone

    async def tidy(self, most: int = 200) -> Backlog:
        if most > 0:
            await self._database.write(self._sql.fold, bounded(most))
            await self._texts.index(bounded(most))
            await self._months.tidy()
        return await self._texts.left()

    async def recount(self, *, repair: bool = False) -> list[Miscount]:
        return await self._recount.repaired() if repair else await self._recount.found()

    async def check(self) -> None:
        await self._database.check()

    async def close(self) -> None:
        if self._bell is not None:
            await self._bell.close()
        await self._folding.ended()
        await self._database.close()

    async def _due_in(self, lanes: Sequence[Lane]) -> timedelta | None:
        ((micros,),) = await self._database.read(claims.next_due(self._schema), [lane.number for lane in lanes])
        return None if micros is None else timedelta(microseconds=micros)

    async def _written(self, letters: Collection[Letter]) -> None:
        """These letters were changed: wake whoever waits, if some of them are planned; and now and then, sum up counts."""
        await self._folding.written(len(letters))
        if self._bell is not None and any(changes.claimable_at(letter) for letter in letters):
            await self._bell.ring()

    async def _put_known(self, letters: Sequence[Letter], now: datetime | None) -> list[Held]:
        """Put letters of which some are there; `AlreadyThere` when another put one of the rest in the same instant."""
        async with self._database.transaction() as connection:
            holdings, moment = await self._holdings(connection, {letter.id for letter in letters}, now)
            decided = changes.arrivals({id: holding.letter for id, holding in holdings.items()}, letters, moment)
            new = decided.letters.keys() - holdings.keys()
            if new:
                await connection.execute(self._sql.insert, *columns(decided.letters[id] for id in new))
            await self._overwrite(connection, [letter for id, letter in decided.letters.items() if id not in new], holdings)
            await self._plan(connection, [decided.letters[id] for id in new | decided.reopened])
        await self._written(decided.letters.values())
        return decided.answers

    async def _settle_copies(self, settlements: Sequence[Settlement], now: datetime | None) -> bool:
        """Settle in one statement what was all claimed here and is still as it was, which is the usual case; else nothing."""
        moment = await self._database.now(now)
        after: dict[UUID, tuple[Letter, Copy[int]]] = {}
        for settlement in settlements:
            copy = self._copies.take(settlement.id, settlement.token)
            if copy is not None and copy.letter.generation == settlement.generation:
                after[settlement.id] = settled(copy.letter, settlement.outcome, moment), copy
        if len(after) < len(settlements):
            return False
        # Sorted, as by all who lock letters.
        rows = [settled_row(letter, copy.token, copy.version) for letter, copy in (after[id] for id in sorted(after))]
        rewritten = [letter.id for letter, copy in after.values() if reads_otherwise(copy.letter, letter)]
        ((is_done,),) = await self._database.write(self._sql.settle, _micros(now), *arrays(rows, len(SETTLED)), rewritten)
        if not is_done:
            return False
        await self._written([letter for letter, _ in after.values()])
        return True

    async def _holdings(
        self, connection: Connection, ids: Collection[UUID], now: datetime | None
    ) -> tuple[dict[UUID, Holding], datetime]:
        """These letters with the last lease on each, locked until the transaction ends; and what time it is there."""
        # One that another put just now is not locked, and so not to be changed: it is as if it came a little later.
        locked = [id for (id,) in await connection.fetch(self._sql.lock, list(ids))]
        holdings = {}
        moment = now or self._database.clock.now()
        for data, token, until, clock in await connection.fetch(self._sql.holdings, _micros(now), locked):
            letter, moment = restored(data), instant(clock)
            holdings[letter.id] = Holding(letter, token or 0, None if until is None else instant(until))
        return holdings, moment

    async def _overwrite(self, connection: Connection, letters: Collection[Letter], before: Mapping[UUID, Holding]) -> None:
        if letters:
            rewritten = [letter.id for letter in letters if reads_otherwise(before[letter.id].letter, letter)]
            await connection.execute(self._sql.update, *columns(letters), rewritten)

    async def _plan(self, connection: Connection, letters: Collection[Letter], holdings: Mapping[UUID, Holding] = {}) -> None:
        """Nobody holds these letters any more. Those that have a next retry come due then; not before the lease that ran
        out on them had ended, which is kept.
        """
        if not letters:
            return
        await connection.execute(self._sql.unclaim, [letter.id for letter in letters])
        rows = []
        for letter in letters:
            held = holdings.get(letter.id, Holding(letter))
            if (at := changes.claimable_at(letter, held)) is not None:
                rows.append((letter.id, lane_of(letter).number, letter.priority, micros(at), held.token, _micros(held.until)))
        if rows:
            await connection.execute(self._sql.plan, *arrays(rows, 6))


def _micros(now: datetime | None) -> int | None:
    """The instant for a statement; None: the server's own clock decides."""
    return None if now is None else micros(now)
