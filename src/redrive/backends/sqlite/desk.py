"""The desk on SQLite, in the same file as the letters."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from uuid import UUID, uuid4

from msgspec import msgpack

from redrive.backends.sqlite import ledger
from redrive.backends.sqlite.database import Database
from redrive.backends.sqlite.receipts import SqliteReceipts
from redrive.backends.sqlite.rows import filled, marks, pieces, write_rows
from redrive.model.instant import instant, micros
from redrive.model.operation import AuditRow, Entry, LedgerRow, Operation
from redrive.model.triage import Triage

_decode_operation = msgpack.Decoder(Operation).decode
_decode_triage = msgpack.Decoder(Triage).decode


class SqliteDesk(SqliteReceipts):
    """Operations, ledgers, receipts, audit and totals, as durable as the letters."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def identity(self) -> UUID:
        return await self._database.write(_identity, None)

    async def save(self, operations: Sequence[Operation]) -> None:
        await self._database.write(_save, operations)

    async def operations(self, *, limit: int = 100) -> list[Operation]:
        sql = "SELECT data FROM operations ORDER BY started_at DESC, id DESC LIMIT ?"
        rows = await self._database.read(lambda connection: connection.execute(sql, [limit]).fetchall())
        return [_decode_operation(data) for (data,) in rows]

    async def operation(self, id: UUID) -> Operation | None:
        sql = "SELECT data FROM operations WHERE id = ?"
        row = await self._database.read(lambda connection: connection.execute(sql, [id.bytes]).fetchone())
        return _decode_operation(row[0]) if row else None

    async def change(self, before: Operation, after: Operation) -> bool:
        return await self._database.write(_change, (before, after))

    async def drop(self, operation: UUID) -> None:
        await self._database.write(_drop, operation)

    async def record(self, rows: Sequence[LedgerRow]) -> None:
        await self._database.write(ledger.record, rows)

    async def ledger(
        self, operation: UUID, *, entries: Collection[Entry] | None = None, limit: int = 1000, after: int = -1
    ) -> list[LedgerRow]:
        return await self._database.read(lambda connection: ledger.rows_of(connection, operation, entries, limit, after))

    async def tally(self, operation: UUID) -> dict[Entry, int]:
        return await self._database.read(lambda connection: ledger.tally(connection, operation))

    async def say(self, triages: Sequence[Triage]) -> None:
        await self._database.write(_say, triages)

    async def said(self, namespace: str, fingerprints: Collection[str] | None = None) -> dict[str, Triage]:
        def query(connection: sqlite3.Connection) -> list[bytes]:
            if fingerprints is None:
                return [data for (data,) in connection.execute("SELECT data FROM triage WHERE namespace = ?", [namespace])]
            found: list[bytes] = []
            for some in pieces(list(fingerprints)):
                sql = f"SELECT data FROM triage WHERE namespace = ? AND fingerprint IN ({marks(len(some))})"
                found += [data for (data,) in connection.execute(sql, [namespace, *filled(some)])]
            return found

        return {one.fingerprint: one for one in map(_decode_triage, await self._database.read(query))}

    async def note(self, rows: Sequence[AuditRow]) -> None:
        await self._database.write(_note, rows)

    async def audit(self, *, limit: int = 100) -> list[AuditRow]:
        sql = "SELECT at, by, act, subject, detail FROM audit ORDER BY seq DESC LIMIT ?"
        rows = await self._database.read(lambda connection: connection.execute(sql, [limit]).fetchall())
        return [AuditRow(at=instant(at), by=by, act=act, subject=subject, detail=detail) for at, by, act, subject, detail in rows]

    async def add(self, amounts: Mapping[str, int]) -> None:
        await self._database.write(_add, amounts)

    async def totals(self, prefix: str = "") -> dict[str, int]:
        sql = "SELECT name, total FROM totals"
        rows = await self._database.read(lambda connection: connection.execute(sql).fetchall())
        return {name: total for name, total in rows if name.startswith(prefix)}


def _identity(connection: sqlite3.Connection, requests: list[None]) -> list[UUID]:
    row = connection.execute("SELECT id FROM desk").fetchone()
    if row is None:
        row = (uuid4().bytes,)
        connection.execute("INSERT INTO desk VALUES (?)", row)
    return [UUID(bytes=row[0])] * len(requests)


def _save(connection: sqlite3.Connection, requests: list[Sequence[Operation]]) -> list[None]:
    rows = [(one.id.bytes, micros(one.started_at), msgpack.encode(one)) for one in chain.from_iterable(requests)]
    write_rows(
        connection,
        "operations",
        ("id", "started_at", "data"),
        rows,
        "ON CONFLICT (id) DO UPDATE SET data = excluded.data, started_at = excluded.started_at",
    )
    return [None] * len(requests)


def _change(connection: sqlite3.Connection, requests: list[tuple[Operation, Operation]]) -> list[bool]:
    sql = "UPDATE operations SET data = ?, started_at = ? WHERE id = ? AND data = ?"
    return [
        connection.execute(
            sql, [msgpack.encode(after), micros(after.started_at), before.id.bytes, msgpack.encode(before)]
        ).rowcount
        > 0
        for before, after in requests
    ]


def _drop(connection: sqlite3.Connection, requests: list[UUID]) -> list[None]:
    for operation in requests:
        ledger.drop(connection, operation)
        connection.execute("DELETE FROM operations WHERE id = ?", [operation.bytes])
    return [None] * len(requests)


def _say(connection: sqlite3.Connection, requests: list[Sequence[Triage]]) -> list[None]:
    rows = [(one.namespace, one.fingerprint, msgpack.encode(one)) for one in chain.from_iterable(requests)]
    write_rows(
        connection,
        "triage",
        ("namespace", "fingerprint", "data"),
        rows,
        "ON CONFLICT (namespace, fingerprint) DO UPDATE SET data = excluded.data",
    )
    return [None] * len(requests)


def _note(connection: sqlite3.Connection, requests: list[Sequence[AuditRow]]) -> list[None]:
    rows = [(micros(row.at), row.by, row.act, row.subject, row.detail) for row in chain.from_iterable(requests)]
    write_rows(connection, "audit", ("at", "by", "act", "subject", "detail"), rows, "ON CONFLICT DO NOTHING")
    return [None] * len(requests)


def _add(connection: sqlite3.Connection, requests: list[Mapping[str, int]]) -> list[None]:
    sums: Counter[str] = Counter()
    for amounts in requests:
        sums.update(amounts)
    write_rows(
        connection,
        "totals",
        ("name", "total"),
        list(sums.items()),
        "ON CONFLICT (name) DO UPDATE SET total = total + excluded.total",
    )
    return [None] * len(requests)
