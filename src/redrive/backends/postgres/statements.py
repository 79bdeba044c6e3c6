"""The statements that change letters and claims, each a whole verb for a batch.

Two rules keep owners apart. Whoever changes a letter or its claim holds the lock on the letter's row. And a lease that
was seen before that lock was got may be stale: it is either locked too, which shows it as it is now, or read again by a
later statement.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from redrive.backends.postgres.query import NOW
from redrive.backends.postgres.rows import COLUMNS, SETTLED, selected, unnested

_CHANGING = tuple(name for name in COLUMNS if name not in ("id", "namespace", "source", "source_id", "lane"))
_PLANNED = "a.status = 'pending' AND a.next_retry_at IS NOT NULL"


class Statements(Struct, frozen=True, kw_only=True):
    """For one schema. Where time matters, the first parameter is the instant, or NULL for the server's clock."""

    insert_new: str
    """Write letters and their plans, unless any of them is there; answers with the ids that are."""
    insert: str
    """Write letters that are not there."""
    update: str
    """Overwrite letters that are locked."""
    plan: str
    """Say when letters may be retried; none of them is among the claims."""
    unclaim: str
    """Nobody holds these letters any more, and none of them is due."""
    lock: str
    """Lock letters in an order that all keep to; answers with their ids."""
    holdings: str
    """Letters with the last lease on each; call it after `lock`."""
    settle: str
    """End claims of letters that are all still as they were when they were claimed, else of none; answers whether it did."""
    extend: str
    """Move the ends of live leases; answers with those it moved."""
    remove: str
    """Remove letters that are locked and that nobody holds; answers with what was removed, the oldest first."""


def statements(schema: str) -> Statements:
    """The statements for the tables in this schema."""
    letters, claims = f"{schema}.letters", f"{schema}.claims"
    return Statements(
        insert_new=f"""
            WITH known AS (SELECT l.id FROM {letters} l WHERE l.id = ANY ($1)),
            a AS (SELECT a.* FROM {unnested(COLUMNS, first=1)}),
            written AS (
                INSERT INTO {letters} ({", ".join(COLUMNS)}) SELECT {selected(COLUMNS)} FROM a
                WHERE NOT EXISTS (SELECT 1 FROM known)
            ),
            planned AS (
                INSERT INTO {claims} (id, lane, priority, at, is_due)
                SELECT a.id, a.lane, a.priority, a.next_retry_at, true FROM a WHERE {_PLANNED} AND NOT EXISTS (SELECT 1 FROM known)
            )
            SELECT id FROM known
        """,
        insert=f"""
            INSERT INTO {letters} ({", ".join(COLUMNS)}) SELECT {selected(COLUMNS)} FROM {unnested(COLUMNS, first=1)}
        """,
        update=f"""
            UPDATE {letters} l SET version = l.version + 1, {_set(_CHANGING)}
            FROM {unnested(COLUMNS, first=1)} WHERE l.id = a.id
        """,
        plan=f"""
            INSERT INTO {claims} (id, lane, priority, at, is_due)
            SELECT a.id, a.lane, a.priority, a.at, true FROM {unnested(("id", "lane", "priority", "at"), first=1)}
        """,
        unclaim=f"DELETE FROM {claims} c WHERE c.id = ANY ($1)",
        lock=f"SELECT l.id FROM {letters} l WHERE l.id = ANY ($1) ORDER BY l.id FOR UPDATE",
        holdings=f"""
            SELECT l.data, c.token, c.until, {NOW} FROM {letters} l LEFT JOIN {claims} c ON c.id = l.id WHERE l.id = ANY ($2)
        """,
        settle=f"SELECT {schema}.settle({', '.join(f'${number}' for number in range(1, len(SETTLED) + 2))})",
        extend=f"""
            UPDATE {claims} c SET until = greatest(c.until, {NOW} + $2::bigint), at = greatest(c.at, {NOW} + $2::bigint)
            FROM unnest($3::uuid[], $4::bigint[], $5::bigint[]) AS a (id, token, generation) JOIN {letters} l ON l.id = a.id
            WHERE c.id = a.id AND c.token = a.token AND l.generation = a.generation AND c.until > {NOW}
            RETURNING c.id, c.token, l.generation, c.until
        """,
        remove=f"""
            WITH gone AS (
                DELETE FROM {letters} l WHERE l.id = ANY ($2)
                    AND NOT EXISTS (SELECT 1 FROM {claims} c WHERE c.id = l.id AND c.until > {NOW})
                RETURNING l.id, l.dead_lettered_at, l.data
            ),
            freed AS (DELETE FROM {claims} c USING gone WHERE c.id = gone.id)
            SELECT data FROM gone ORDER BY dead_lettered_at, id
        """,
    )


def _set(columns: Sequence[str]) -> str:
    return ", ".join(f"{name} = {selected([name])}" for name in columns)
