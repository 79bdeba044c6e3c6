"""Letters on SQLite. What a change means is decided by the model; here it is read, written and found."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import chain
from typing import Any
from uuid import UUID

from msgspec import json
from msgspec.structs import replace

from redrive.backends.sqlite.database import Database
from redrive.backends.sqlite.query import COLUMN, IS_LEASED, as_hex, compiled
from redrive.backends.sqlite.rows import filled, marks, read_all, write_rows
from redrive.model.amendment import Amended, Amendment, amended
from redrive.model.arrival import Held, arrive
from redrive.model.cursor import cursor, key_of
from redrive.model.errors import BadCursor
from redrive.model.instant import instant, micros
from redrive.model.lease import Claim, Claimed, Lease
from redrive.model.letter import Letter
from redrive.model.query import EVERYTHING, Field, Group, GroupPage, Order, Page, Query, last_name, tally_key
from redrive.model.settlement import Settled, Settlement, settled
from redrive.model.status import OPEN, Status
from redrive.model.stored import restored, stored
from redrive.ports.capabilities import Capabilities

_FIXED = ("id", "namespace", "source", "source_id")
_CHANGING = (
    "key", "kind", "status", "generation", "category", "error", "error_name", "fingerprint", "tags", "priority", "attempts",
    "dead_lettered_at", "updated_at", "next_retry_at", "expires_at", "data",
)  # fmt: skip
_INSERT = f"INSERT INTO letters ({', '.join(_FIXED + _CHANGING)})"
_OR_REPLACE = f"ON CONFLICT (id) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in _CHANGING)}"

_CLAIM = "INSERT INTO claims (id, priority, at, is_due, token, owner, until)"
_OR_RECLAIM = (
    "ON CONFLICT (id) DO UPDATE SET priority = excluded.priority, at = excluded.at, is_due = excluded.is_due,"
    " token = excluded.token, owner = excluded.owner, until = excluded.until"
)

_DUE = """
    WITH RECURSIVE level (priority) AS (
        SELECT max(priority) FROM claims WHERE is_due
        UNION ALL
        SELECT (SELECT max(c.priority) FROM claims c WHERE c.is_due AND c.priority < level.priority)
        FROM level WHERE level.priority IS NOT NULL
    )
    SELECT '' AS note, l.data AS data
    FROM level
    CROSS JOIN claims c INDEXED BY claims_due ON c.is_due AND c.priority = level.priority AND c.at <= ?
    CROSS JOIN letters l ON l.id = c.id
    LIMIT ?
"""
# No ORDER BY: it would sort all that is due. The loops run level by level and along the index, which is the order.

_NEWEST_FIRST = {Order.NEWEST: "dead_lettered_at", Order.UPDATED: "updated_at"}


class SqliteLetters:
    """The embedded default: one file, full durability, several processes may share it."""

    capabilities = Capabilities(durable=True, embedded=True, inline=True, shared=True, groups=True)

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, letters: Sequence[Letter], *, now: datetime | None = None) -> list[Held]:
        return await self._database.write(self._put, (letters, now))

    async def get(self, ids: Sequence[UUID], *, now: datetime | None = None) -> list[Letter | None]:
        moment = self._database.now(now)

        def query(connection: sqlite3.Connection) -> list[Letter | None]:
            found = {
                letter.id: letter for letter in _seen(connection, f"l.id IN ({marks(len(ids))})", filled(_keys(ids)), moment)
            }
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
        column = _NEWEST_FIRST.get(order, "dead_lettered_at")
        way, beyond = ("DESC", "<") if order in _NEWEST_FIRST else ("ASC", ">")
        condition, parameters = compiled(query, moment)
        if (last := key_of(after, order)) is not None:
            condition = f"{condition} AND (l.{column}, l.id) {beyond} (?, ?)"
            parameters = [*parameters, *last]
        tail = f"ORDER BY l.{column} {way}, l.id {way} LIMIT {limit + 1}"
        found = await self._database.read(lambda connection: _seen(connection, condition, parameters, moment, tail))
        page = tuple(found[:limit])
        if not page or len(found) <= limit:
            return Page(letters=page)
        return Page(letters=page, next=cursor((order, micros(getattr(page[-1], column)), page[-1].id.bytes)))

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
        condition, parameters = compiled(query, self._database.now(now))
        having, before = "", []
        if (last := key_of(after, "groups")) is not None:
            having, before = "HAVING (max(l.dead_lettered_at), l.fingerprint) < (?, ?)", [last[0], _text(last[1])]
        sql = f"""
            SELECT g.fingerprint, g.count, g.first, g.last, (
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
        page = tuple(_group(*row) for row in rows[:limit])
        if not page or len(rows) <= limit:
            return GroupPage(groups=page)
        return GroupPage(groups=page, next=cursor(("groups", micros(page[-1].last_seen), page[-1].fingerprint.encode())))

    async def claim(self, claim: Claim, *, now: datetime | None = None) -> list[Claimed]:
        return await self._database.write(self._claim, (claim, now))

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
        self._database.close()

    def _put(self, connection: sqlite3.Connection, requests: list[tuple[Sequence[Letter], datetime | None]]) -> list[list[Held]]:
        known = _load(connection, {letter.id for letters, _ in requests for letter in letters})
        new: dict[UUID, Letter] = {}
        changed: dict[UUID, Letter] = {}
        reopened: set[UUID] = set()
        answers = []
        for letters, given in requests:
            now = self._database.now(given)
            answer = []
            for arriving in letters:
                before = known.get(arriving.id)
                letter, held = arrive(before, arriving, now)
                if held is Held.NEW or letter.id in new:
                    new[letter.id] = letter
                elif held is not Held.DUPLICATE:
                    changed[letter.id] = letter
                    if held is Held.REOPENED:
                        reopened.add(letter.id)
                known[letter.id] = letter
                answer.append(held)
            answers.append(answer)
        write_rows(connection, _INSERT, [_row(letter) for letter in new.values()])
        write_rows(connection, _INSERT, [_row(letter) for letter in changed.values()], _OR_REPLACE)
        _unclaim(connection, reopened)
        _schedule(connection, chain(new.values(), (changed[id] for id in reopened)))
        return answers

    def _claim(self, connection: sqlite3.Connection, requests: list[tuple[Claim, datetime | None]]) -> list[list[Claimed]]:
        return [self._claim_one(connection, claim, self._database.now(given)) for claim, given in requests]

    def _claim_one(self, connection: sqlite3.Connection, claim: Claim, now: datetime) -> list[Claimed]:
        moment, until = micros(now), now + claim.lease
        if claim.ids is not None:
            wanted = tuple(dict.fromkeys(claim.ids))
            found = _load(connection, wanted, f"NOT {IS_LEASED}", [moment])
            letters = [letter for id in wanted if (letter := found.get(id)) and letter.status in OPEN][: claim.limit]
        else:
            if claim.query is not None:
                condition, parameters = compiled(claim.query, now)
                statuses = ", ".join(f"'{status}'" for status in sorted(OPEN))
                sql = (
                    f"SELECT '' AS note, l.data AS data FROM letters l WHERE {condition} AND l.status IN ({statuses})"
                    f" AND NOT {IS_LEASED} ORDER BY l.dead_lettered_at, l.id LIMIT ?"
                )
                rows = read_all(connection, sql, [*parameters, moment, claim.limit])
            else:
                rows = read_all(connection, _DUE, [moment, claim.limit])
            letters = [restored(data) for _, data in rows]
        if not letters:
            return []
        (token,) = connection.execute("UPDATE fence SET token = max(token + 1, ?) RETURNING token", [moment]).fetchone()
        self._database.passed(token)
        end = micros(until)
        claims = []
        for letter in letters:
            due = letter.retry.next_retry_at if letter.status is Status.PENDING else None
            at = end if due is None else max(end, micros(due))
            claims.append((letter.id.bytes, letter.priority, at, int(due is not None), token, claim.owner, end))
        write_rows(connection, _CLAIM, claims, _OR_RECLAIM)
        return [
            Claimed(
                letter=replace(letter, status=Status.RETRYING),
                lease=Lease(id=letter.id, token=token, generation=letter.generation, owner=claim.owner, until=until),
            )
            for letter in letters
        ]

    def _extend(
        self, connection: sqlite3.Connection, requests: list[tuple[tuple[Sequence[Lease], timedelta], datetime | None]]
    ) -> list[list[Lease | None]]:
        answers = []
        for (leases, by), given in requests:
            now = self._database.now(given)
            until = micros(now + by)
            keys = filled(_keys(lease.id for lease in leases))
            sql = (
                "SELECT c.id, c.token, l.generation, max(c.until, ?) FROM claims c JOIN letters l ON l.id = c.id"
                f" WHERE c.until > ? AND c.id IN ({marks(len(leases))})"
            )
            held = {row[0]: row[1:] for row in connection.execute(sql, [until, micros(now), *keys])}
            answer: list[Lease | None] = []
            for lease in leases:
                token, generation, end = held.get(lease.id.bytes, (None, 0, 0))
                is_ours = token == lease.token and generation == lease.generation
                answer.append(replace(lease, until=instant(end)) if is_ours else None)
            ours = _keys(lease.id for lease in answer if lease is not None)
            connection.execute(
                f"UPDATE claims SET until = max(until, ?), at = max(at, ?) WHERE id IN ({marks(len(ours))})",
                [until, until, *filled(ours)],
            )
            answers.append(answer)
        return answers

    def _settle(
        self, connection: sqlite3.Connection, requests: list[tuple[Sequence[Settlement], datetime | None]]
    ) -> list[list[Settled]]:
        held = _load_held(connection, {settlement.id for settlements, _ in requests for settlement in settlements})
        changed: dict[UUID, Letter] = {}
        answers = []
        for settlements, given in requests:
            now = self._database.now(given)
            moment = micros(now)
            answer = []
            for settlement in settlements:
                letter, token, until = held.get(settlement.id, (None, 0, 0))
                if letter is None:
                    answer.append(Settled.MISSING)
                elif token != settlement.token or until <= moment or letter.generation != settlement.generation:
                    answer.append(Settled.LEASE_LOST)
                else:
                    letter = settled(letter, settlement.outcome, now)
                    changed[letter.id] = letter
                    held[letter.id] = (letter, 0, 0)
                    answer.append(Settled.DONE)
            answers.append(answer)
        write_rows(connection, _INSERT, [_row(letter) for letter in changed.values()], _OR_REPLACE)
        _unclaim(connection, changed)
        _schedule(connection, changed.values())
        return answers

    def _amend(
        self, connection: sqlite3.Connection, requests: list[tuple[Sequence[Amendment], datetime | None]]
    ) -> list[list[Amended]]:
        held = _load_held(connection, {amendment.id for amendments, _ in requests for amendment in amendments})
        changed: dict[UUID, Letter] = {}
        answers = []
        for amendments, given in requests:
            now = self._database.now(given)
            moment = micros(now)
            answer = []
            for amendment in amendments:
                letter, _, until = held.get(amendment.id, (None, 0, 0))
                if letter is None:
                    answer.append(Amended.MISSING)
                elif until > moment:
                    answer.append(Amended.LEASED)
                else:
                    letter, outcome = amended(letter, amendment, now)
                    if outcome is Amended.DONE:
                        changed[letter.id] = letter
                        held[letter.id] = (letter, 0, 0)
                    answer.append(outcome)
            answers.append(answer)
        write_rows(connection, _INSERT, [_row(letter) for letter in changed.values()], _OR_REPLACE)
        _unclaim(connection, changed)
        _schedule(connection, changed.values())
        return answers

    def _purge(
        self, connection: sqlite3.Connection, requests: list[tuple[tuple[Query, int], datetime | None]]
    ) -> list[list[Letter]]:
        answers = []
        for (query, limit), given in requests:
            now = self._database.now(given)
            condition, parameters = compiled(query, now)
            sql = (
                f"SELECT '' AS note, l.data AS data FROM letters l WHERE {condition} AND NOT {IS_LEASED}"
                " ORDER BY l.dead_lettered_at, l.id LIMIT ?"
            )
            letters = [restored(data) for _, data in read_all(connection, sql, [*parameters, micros(now), limit])]
            keys = filled(_keys(letter.id for letter in letters))
            connection.execute(f"DELETE FROM letters WHERE id IN ({marks(len(letters))})", keys)
            connection.execute(f"DELETE FROM claims WHERE id IN ({marks(len(letters))})", keys)
            answers.append(letters)
        return answers


def _load(
    connection: sqlite3.Connection, ids: Iterable[UUID], condition: str = "1", parameters: Sequence[Any] = ()
) -> dict[UUID, Letter]:
    keys = _keys(ids)
    sql = f"SELECT '' AS note, l.data AS data FROM letters l WHERE l.id IN ({marks(len(keys))}) AND {condition}"
    letters = (restored(data) for _, data in read_all(connection, sql, [*filled(keys), *parameters]))
    return {letter.id: letter for letter in letters}


def _load_held(connection: sqlite3.Connection, ids: Iterable[UUID]) -> dict[UUID, tuple[Letter | None, int, int]]:
    """The letters with the token and end of the last lease on each (0 and 0 without one)."""
    keys = _keys(ids)
    sql = (
        "SELECT coalesce(c.token, 0) || ' ' || coalesce(c.until, 0) AS note, l.data AS data"
        f" FROM letters l LEFT JOIN claims c ON c.id = l.id WHERE l.id IN ({marks(len(keys))})"
    )
    held: dict[UUID, tuple[Letter | None, int, int]] = {}
    for note, data in read_all(connection, sql, filled(keys)):
        letter = restored(data)
        token, _, until = note.partition(" ")
        held[letter.id] = (letter, int(token), int(until))
    return held


def _seen(
    connection: sqlite3.Connection, condition: str, parameters: Sequence[Any], now: datetime, tail: str = ""
) -> list[Letter]:
    """Letters as readers see them: those under a live lease are `retrying`."""
    sql = f"SELECT {IS_LEASED} AS note, l.data AS data FROM letters l WHERE {condition} {tail}"
    letters = []
    for leased, data in read_all(connection, sql, [micros(now), *parameters]):
        letter = restored(data)
        letters.append(replace(letter, status=Status.RETRYING) if leased == "1" else letter)
    return letters


def _unclaim(connection: sqlite3.Connection, ids: Iterable[UUID]) -> None:
    if keys := _keys(ids):
        connection.execute(f"DELETE FROM claims WHERE id IN ({marks(len(keys))})", filled(keys))


def _schedule(connection: sqlite3.Connection, letters: Iterable[Letter]) -> None:
    due = [
        (letter.id.bytes, letter.priority, micros(letter.retry.next_retry_at), 1, None, None, None)
        for letter in letters
        if letter.status is Status.PENDING and letter.retry.next_retry_at is not None
    ]
    write_rows(connection, _CLAIM, due, _OR_RECLAIM)


def _text(key: bytes) -> str:
    try:
        return key.decode()
    except UnicodeDecodeError as error:
        raise BadCursor("this cursor is damaged; start again from the first page") from error


def _keys(ids: Iterable[UUID]) -> list[bytes]:
    return [id.bytes for id in ids]


def _row(letter: Letter) -> tuple[Any, ...]:
    failure, retry_at, expires_at = letter.failure, letter.retry.next_retry_at, letter.expires_at
    return (
        letter.id.bytes,
        letter.namespace,
        letter.source,
        letter.source_id,
        letter.key,
        letter.kind,
        letter.status.value,
        letter.generation,
        failure.category.value,
        failure.type,
        last_name(failure.type),
        failure.fingerprint,
        json.encode([as_hex(tag) for tag in letter.tags]).decode() if letter.tags else None,
        letter.priority,
        letter.attempts,
        micros(letter.dead_lettered_at),
        micros(letter.updated_at),
        None if retry_at is None else micros(retry_at),
        None if expires_at is None else micros(expires_at),
        stored(letter),
    )


def _group(fingerprint: str, count: int, first: int, last: int, data: bytes) -> Group:
    failure = restored(data).failure
    return Group(
        fingerprint=fingerprint,
        error=failure.type,
        message=failure.message,
        category=failure.category,
        count=count,
        first_seen=instant(first),
        last_seen=instant(last),
    )
