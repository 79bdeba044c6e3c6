"""Letters on SQLite. What a change means is decided by the model; here it is read, written and found."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from msgspec.structs import replace

from redrive.backends.columns import COLUMN
from redrive.backends.sqlite import claims, table
from redrive.backends.sqlite.database import Database
from redrive.backends.sqlite.query import IS_LEASED, compiled
from redrive.backends.sqlite.rows import filled, marks, pieces
from redrive.model import changes
from redrive.model.amendment import Amended, Amendment
from redrive.model.arrival import Held
from redrive.model.changes import Changes, Holding
from redrive.model.instant import instant, micros
from redrive.model.lane import Lane
from redrive.model.lease import Claim, Claimed, Due, Lease
from redrive.model.letter import Letter
from redrive.model.paging import group, group_page, is_newest_first, last_group, last_letter, listed_by, page
from redrive.model.query import EVERYTHING, Field, GroupPage, Order, Page, Query, bounded, tally_key
from redrive.model.settlement import Settled, Settlement
from redrive.model.status import OPEN, Status
from redrive.model.stored import restored
from redrive.ports.capabilities import Capabilities
from redrive.ports.inline import here
from redrive.ports.waiting import wait_and_look


class SqliteLetters:
    """The embedded default: one file, full durability, several processes may share it."""

    capabilities = Capabilities(durable=True, embedded=True, inline=True, shared=True, atomic=True, groups=True, documents=True)

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, letters: Sequence[Letter], *, now: datetime | None = None) -> list[Held]:
        return await self._database.write(self._put, (letters, now))

    async def get(self, ids: Sequence[UUID], *, now: datetime | None = None) -> list[Letter | None]:
        moment = self._database.now(now)

        def query(connection: sqlite3.Connection) -> list[Letter | None]:
            found: dict[UUID, Letter] = {}
            for keys in pieces([id.bytes for id in ids]):
                some = table.seen(connection, f"l.id IN ({marks(len(keys))})", filled(keys), moment)
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
        moment = self._database.now(now)
        limit = bounded(limit)
        column = listed_by(order)
        way, beyond = ("DESC", "<") if is_newest_first(order) else ("ASC", ">")
        condition, parameters = compiled(query, moment)
        if (last := last_letter(after, order)) is not None:
            condition = f"{condition} AND (l.{column}, l.id) {beyond} (?, ?)"
            parameters = [*parameters, last[0], last[1].bytes]
        tail = f"ORDER BY l.{column} {way}, l.id {way} LIMIT {limit + 1}"
        found = await self._database.read(lambda connection: table.seen(connection, condition, parameters, moment, tail))
        return page(found, limit, order)

    async def count(self, query: Query = EVERYTHING, *, now: datetime | None = None) -> int:
        condition, parameters = compiled(query, self._database.now(now))
        sql = f"SELECT count(*) FROM letters l WHERE {condition}"
        (count,) = await self._database.read(lambda connection: connection.execute(sql, parameters).fetchone())
        return int(count)

    async def tally(self, by: Field, query: Query = EVERYTHING, *, now: datetime | None = None) -> dict[str, int]:
        tally_key(by)
        moment = self._database.now(now)
        condition, parameters = compiled(query, moment)
        column, leading = COLUMN[by], []
        if by is Field.STATUS:
            column, leading = f"CASE WHEN {IS_LEASED} THEN 'retrying' ELSE l.status END", [micros(moment)]
        sql = f"SELECT {column}, count(*) FROM letters l WHERE {condition} GROUP BY 1"
        return dict(await self._database.read(lambda connection: connection.execute(sql, [*leading, *parameters]).fetchall()))

    async def groups(
        self, query: Query = EVERYTHING, *, limit: int = 100, after: str | None = None, now: datetime | None = None
    ) -> GroupPage:
        limit = bounded(limit)
        condition, parameters = compiled(query, self._database.now(now))
        having: str = ""
        before: list[int | str] = []
        if (last := last_group(after)) is not None:
            having, before = "HAVING (max(l.dead_lettered_at), l.fingerprint) < (?, ?)", [*last]
        sql = f"""
            SELECT g.count, g.first, (
                SELECT l.data FROM letters l WHERE l.fingerprint = g.fingerprint AND l.dead_lettered_at = g.last AND {condition}
                ORDER BY l.id DESC LIMIT 1
            ) FROM (
                SELECT l.fingerprint AS fingerprint, count(*) AS count,
                    min(l.dead_lettered_at) AS first, max(l.dead_lettered_at) AS last
                FROM letters l WHERE {condition} GROUP BY l.fingerprint {having}
                ORDER BY last DESC, l.fingerprint DESC LIMIT {limit + 1}
            ) g ORDER BY g.last DESC, g.fingerprint DESC
        """
        every = [*parameters, *parameters, *before]
        rows = await self._database.read(lambda connection: connection.execute(sql, every).fetchall())
        return group_page([group(restored(data), count, instant(first)) for count, first, data in rows], limit)

    async def claim(self, claim: Claim, *, now: datetime | None = None) -> list[Claimed]:
        return await self._database.write(self._claim, (claim, now))

    async def wait(self, lanes: Sequence[Lane], patience: timedelta) -> None:
        await wait_and_look(lambda: self._due_in(lanes), patience)

    async def extend(self, leases: Sequence[Lease], by: timedelta, *, now: datetime | None = None) -> list[Lease | None]:
        return await self._database.write(self._extend, ((leases, by), now))

    async def settle(self, settlements: Sequence[Settlement], *, now: datetime | None = None) -> list[Settled]:
        return await self._database.write(self._settle, (settlements, now))

    async def amend(self, amendments: Sequence[Amendment], *, now: datetime | None = None) -> list[Amended]:
        return await self._database.write(self._amend, (amendments, now))

    async def purge(self, query: Query, *, limit: int = 1000, now: datetime | None = None) -> list[Letter]:
        return await self._database.write(self._purge, ((query, limit), now))

    async def check(self) -> None:
        await self._database.check()

    async def close(self) -> None:
        await here(self._database.close)

    async def _due_in(self, lanes: Sequence[Lane]) -> timedelta | None:
        at = await self._database.read(lambda connection: claims.next_due(connection, lanes))
        return None if at is None else at - self._database.now(None)

    def _put(self, connection: sqlite3.Connection, requests: list[tuple[Sequence[Letter], datetime | None]]) -> list[list[Held]]:
        timed = [(letters, self._database.now(given)) for letters, given in requests]
        written: dict[UUID, Letter] = {}
        answers = [_decided(changes.arrivals(written, letters, now), written).answers for letters, now in timed]
        # As if all were new, which is the usual case; what becomes of those that were not is decided once more.
        known = table.insert(connection, list(written.values()))
        changed: dict[UUID, Letter] = {}
        reopened: set[UUID] = set()
        if known:
            latest = dict(known)
            for answer, (letters, now) in zip(answers, timed, strict=True):
                again = [(number, letter) for number, letter in enumerate(letters) if letter.id in known]
                decided = _decided(changes.arrivals(latest, [letter for _, letter in again], now), latest)
                changed |= decided.letters
                reopened |= decided.reopened
                for (number, _), held in zip(again, decided.answers, strict=True):
                    answer[number] = held
            table.overwrite(connection, changed.values())
            claims.unclaim(connection, [id.bytes for id in reopened])
        new = [letter for id, letter in written.items() if id not in known]
        claims.schedule(connection, [*new, *(changed[id] for id in reopened)])
        return answers

    def _claim(self, connection: sqlite3.Connection, requests: list[tuple[Claim, datetime | None]]) -> list[list[Claimed]]:
        # Those who take what is due in a lane share one look at it and one statement for their leases.
        alike: dict[Due, list[int]] = {}
        for number, (claim, given) in enumerate(requests):
            if given is None and isinstance(claim.what, Due):
                alike.setdefault(claim.what, []).append(number)
        answers: dict[int, list[Claimed]] = {}
        for what, numbers in alike.items():
            wanted = [requests[number][0] for number in numbers]
            answers |= zip(numbers, self._claim_due(connection, what, wanted), strict=True)
        for number, (claim, given) in enumerate(requests):
            if number not in answers:
                answers[number] = self._claim_one(connection, claim, self._database.now(given))
        return [answers[number] for number in range(len(requests))]

    def _claim_due(self, connection: sqlite3.Connection, what: Due, wanted: list[Claim]) -> list[list[Claimed]]:
        now = self._database.now(None)
        found = claims.due(connection, what, micros(now), bounded(sum(bounded(claim.limit) for claim in wanted)))
        answers, leases, start = [], [], 0
        for claim in wanted:
            letters = found[start : start + bounded(claim.limit)]
            start += len(letters)
            token = self._token(connection, micros(now)) if letters else 0
            leases.append((letters, claim.owner, token, micros(now + claim.lease)))
            answers.append(_claimed(letters, claim, token, now))
        claims.lease_due(connection, leases)
        return answers

    def _claim_one(self, connection: sqlite3.Connection, claim: Claim, now: datetime) -> list[Claimed]:
        moment, limit = micros(now), bounded(claim.limit)
        match claim.what:
            case Due() as what:
                letters = claims.due(connection, what, moment, limit)
            case tuple() as ids:
                wanted = tuple(dict.fromkeys(ids))
                found = table.load(connection, wanted, f"NOT {IS_LEASED}", [moment])
                letters = [letter for id in wanted if (letter := found.get(id)) and letter.status in OPEN][:limit]
            case query:
                condition, parameters = compiled(query, now)
                statuses = ", ".join(f"'{status}'" for status in sorted(OPEN))
                letters = table.oldest(connection, f"{condition} AND l.status IN ({statuses})", parameters, moment, limit)
        if not letters:
            return []
        token = self._token(connection, moment)
        claims.lease(connection, letters, claim.owner, token, micros(now + claim.lease))
        return _claimed(letters, claim, token, now)

    def _token(self, connection: sqlite3.Connection, moment: int) -> int:
        token = claims.next_token(connection, moment)
        self._database.passed(token)
        return token

    def _extend(
        self, connection: sqlite3.Connection, requests: list[tuple[tuple[Sequence[Lease], timedelta], datetime | None]]
    ) -> list[list[Lease | None]]:
        return [claims.extend(connection, leases, by, self._database.now(given)) for (leases, by), given in requests]

    def _settle(
        self, connection: sqlite3.Connection, requests: list[tuple[Sequence[Settlement], datetime | None]]
    ) -> list[list[Settled]]:
        before = table.load_held(connection, {settlement.id for settlements, _ in requests for settlement in settlements})
        holdings = dict(before)
        changed: dict[UUID, Letter] = {}
        answers = []
        for settlements, given in requests:
            decided = changes.settlements(holdings, settlements, self._database.now(given))
            holdings |= {id: Holding(letter) for id, letter in decided.letters.items()}
            changed |= decided.letters
            answers.append(decided.answers)
        alike = [letter for id, letter in changed.items() if letter.failure is before[id].letter.failure]
        table.overwrite_settled(connection, alike)
        if len(alike) < len(changed):
            table.overwrite(
                connection, [letter for id, letter in changed.items() if letter.failure is not before[id].letter.failure]
            )
        claims.unclaim(connection, [id.bytes for id in changed])
        claims.schedule(connection, changed.values())
        return answers

    def _amend(
        self, connection: sqlite3.Connection, requests: list[tuple[Sequence[Amendment], datetime | None]]
    ) -> list[list[Amended]]:
        holdings = table.load_held(connection, {amendment.id for amendments, _ in requests for amendment in amendments})
        changed: dict[UUID, Letter] = {}
        answers = []
        for amendments, given in requests:
            decided = changes.amendments(holdings, amendments, self._database.now(given))
            holdings |= {id: replace(holdings[id], letter=letter) for id, letter in decided.letters.items()}
            changed |= decided.letters
            answers.append(decided.answers)
        table.overwrite(connection, changed.values())
        claims.unclaim(connection, [id.bytes for id in changed])
        claims.schedule(connection, changed.values(), holdings)
        return answers

    def _purge(
        self, connection: sqlite3.Connection, requests: list[tuple[tuple[Query, int], datetime | None]]
    ) -> list[list[Letter]]:
        answers = []
        for (query, limit), given in requests:
            now = self._database.now(given)
            condition, parameters = compiled(query, now)
            letters = table.oldest(connection, condition, parameters, micros(now), bounded(limit))
            keys = [letter.id.bytes for letter in letters]
            table.remove(connection, keys)
            claims.unclaim(connection, keys)
            answers.append(letters)
        return answers


def _decided(decided: Changes[Held], letters: dict[UUID, Letter]) -> Changes[Held]:
    """What was decided, with its letters noted as the latest."""
    letters.update(decided.letters)
    return decided


def _claimed(letters: list[Letter], claim: Claim, token: int, now: datetime) -> list[Claimed]:
    until = now + claim.lease
    return [
        Claimed(
            letter=replace(letter, status=Status.RETRYING),
            lease=Lease(id=letter.id, token=token, generation=letter.generation, owner=claim.owner, until=until),
        )
        for letter in letters
    ]
