"""The desk on PostgreSQL, in the same schema as the letters."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from uuid import UUID, uuid4

from msgspec import msgpack

from redrive.backends.postgres.database import Database
from redrive.backends.postgres.receipts import PostgresReceipts
from redrive.backends.postgres.rows import arrays, plain, restored_text
from redrive.model.instant import instant, micros
from redrive.model.operation import AuditRow, Entry, LedgerRow, Operation
from redrive.model.triage import Triage

_decode_operation = msgpack.Decoder(Operation).decode
_decode_triage = msgpack.Decoder(Triage).decode


class PostgresDesk(PostgresReceipts):
    """Operations, ledgers, receipts, audit and totals, as durable as the letters."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._schema = database.schema

    async def identity(self) -> UUID:
        # The update changes nothing; it is there so that whoever comes second is answered too.
        sql = f"INSERT INTO {self._schema}.desk AS d (id) VALUES ($1) ON CONFLICT (is_only) DO UPDATE SET id = d.id RETURNING id"
        ((id,),) = await self._database.write(sql, uuid4())
        return UUID(int=id.int)

    async def save(self, operations: Sequence[Operation]) -> None:
        latest = {one.id: (one.id, micros(one.started_at), msgpack.encode(one)) for one in operations}
        await self._database.write(
            f"INSERT INTO {self._schema}.operations (id, started_at, data)"
            " SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::bytea[])"
            " ON CONFLICT (id) DO UPDATE SET data = excluded.data, started_at = excluded.started_at",
            *arrays((latest[id] for id in sorted(latest)), 3),
        )

    async def operations(self, *, limit: int = 100) -> list[Operation]:
        sql = f"SELECT data FROM {self._schema}.operations ORDER BY started_at DESC, id DESC LIMIT $1"
        return [_decode_operation(data) for (data,) in await self._database.read(sql, limit)]

    async def operation(self, id: UUID) -> Operation | None:
        rows = await self._database.read(f"SELECT data FROM {self._schema}.operations WHERE id = $1", id)
        return _decode_operation(rows[0][0]) if rows else None

    async def change(self, before: Operation, after: Operation) -> bool:
        sql = f"UPDATE {self._schema}.operations SET data = $1, started_at = $2 WHERE id = $3 AND data = $4 RETURNING id"
        values = msgpack.encode(after), micros(after.started_at), before.id, msgpack.encode(before)
        return bool(await self._database.write(sql, *values))

    async def drop(self, operation: UUID) -> None:
        await self._database.write(
            f"WITH gone AS (DELETE FROM {self._schema}.ledger WHERE operation = $1)"
            f" DELETE FROM {self._schema}.operations WHERE id = $1",
            operation,
        )

    async def record(self, rows: Sequence[LedgerRow]) -> None:
        latest = {
            (one.operation, one.number): (
                one.operation,
                one.number,
                one.letter,
                one.generation,
                one.entry.value,
                micros(one.at),
                plain(one.detail),
            )
            for one in rows
        }
        await self._database.write(
            f"INSERT INTO {self._schema}.ledger (operation, number, letter, generation, entry, at, detail)"
            " SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::uuid[], $4::bigint[], $5::text[], $6::bigint[], $7::text[])"
            " ON CONFLICT (operation, number) DO UPDATE SET letter = excluded.letter, generation = excluded.generation,"
            " entry = excluded.entry, at = excluded.at, detail = excluded.detail",
            *arrays((latest[key] for key in sorted(latest)), 7),
        )

    async def ledger(
        self, operation: UUID, *, entries: Collection[Entry] | None = None, limit: int = 1000, after: int = -1
    ) -> list[LedgerRow]:
        if entries is not None and not entries:
            return []
        # Spelt out, so that the planner sees that an index of just these entries will do.
        among = f"AND entry IN ({', '.join(sorted(repr(entry.value) for entry in entries))})" if entries else ""
        sql = f"""
            SELECT number, letter, generation, entry, at, detail FROM {self._schema}.ledger
            WHERE operation = $1 AND number > $2 {among} ORDER BY number LIMIT $3
        """
        return [
            LedgerRow(
                operation=operation,
                number=number,
                letter=UUID(int=letter.int),
                generation=generation,
                entry=Entry(entry),
                at=instant(at),
                detail=restored_text(detail),
            )
            for number, letter, generation, entry, at, detail in await self._database.read(sql, operation, after, limit)
        ]

    async def tally(self, operation: UUID) -> dict[Entry, int]:
        sql = f"SELECT entry, count(*) FROM {self._schema}.ledger WHERE operation = $1 GROUP BY entry"
        return {Entry(entry): count for entry, count in await self._database.read(sql, operation)}

    async def say(self, triages: Sequence[Triage]) -> None:
        latest = {
            (plain(one.namespace), plain(one.fingerprint)): (plain(one.namespace), plain(one.fingerprint), msgpack.encode(one))
            for one in triages
        }
        await self._database.write(
            f"INSERT INTO {self._schema}.triage (key, namespace, fingerprint, data)"
            f" SELECT {self._schema}.key_of(ARRAY[a.namespace, a.fingerprint]::text), a.*"
            " FROM unnest($1::text[], $2::text[], $3::bytea[]) AS a (namespace, fingerprint, data)"
            " ON CONFLICT (key) DO UPDATE SET data = excluded.data",
            *arrays((latest[key] for key in sorted(latest)), 3),
        )

    async def said(self, namespace: str, fingerprints: Collection[str] | None = None) -> dict[str, Triage]:
        sql = f"SELECT data FROM {self._schema}.triage WHERE"
        if fingerprints is None:
            rows = await self._database.read(f"{sql} namespace = $1", plain(namespace))
        else:
            keys = f"SELECT {self._schema}.key_of(ARRAY[$1, name]::text) FROM unnest($2::text[]) AS name"
            rows = await self._database.read(f"{sql} key IN ({keys})", plain(namespace), list(map(plain, fingerprints)))
        return {one.fingerprint: one for one in (_decode_triage(data) for (data,) in rows)}

    async def note(self, rows: Sequence[AuditRow]) -> None:
        await self._database.write(
            f"INSERT INTO {self._schema}.audit (at, by, act, subject, detail)"
            " SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[])",
            *arrays(((micros(one.at), *map(plain, (one.by, one.act, one.subject, one.detail))) for one in rows), 5),
        )

    async def audit(self, *, limit: int = 100) -> list[AuditRow]:
        sql = f"SELECT at, by, act, subject, detail FROM {self._schema}.audit ORDER BY seq DESC LIMIT $1"
        return [
            AuditRow(at=instant(at), **dict(zip(("by", "act", "subject", "detail"), map(restored_text, texts), strict=True)))
            for at, *texts in await self._database.read(sql, limit)
        ]

    async def add(self, amounts: Mapping[str, int]) -> None:
        # Sorted: who adds to the same totals waits for another in the same order.
        rows = sorted((plain(name), amount) for name, amount in amounts.items())
        await self._database.write(
            f"INSERT INTO {self._schema}.totals AS t (name, total) SELECT * FROM unnest($1::text[], $2::bigint[])"
            " ON CONFLICT (name) DO UPDATE SET total = t.total + excluded.total",
            *arrays(rows, 2),
        )

    async def totals(self, prefix: str = "") -> dict[str, int]:
        rows = await self._database.read(f"SELECT name, total FROM {self._schema}.totals")
        found = {restored_text(name): total for name, total in rows}
        return {name: total for name, total in found.items() if name.startswith(prefix)}
