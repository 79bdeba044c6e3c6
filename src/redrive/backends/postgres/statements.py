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
from redrive.backends.postgres.tables import Tables

_CHANGING = tuple(name for name in COLUMNS if name not in ("id", "namespace", "source", "source_id", "lane"))
_KIND = ("namespace", "source", "category", "error", "policy", "status", "fingerprint")
"""What letters are counted by, besides the hour; see `redrive.model.census.Kind`."""
_COUNTED = (*_KIND, "dead_lettered_at")
INDEXING = 0x72647269
"""Which of the server's advisory locks is held by whoever indexes texts ("rdri")."""
_SOON_MS = 100
_PLANNED = "a.status = 'pending' AND a.next_retry_at IS NOT NULL"


class Statements(Struct, frozen=True, kw_only=True):
    """For one schema. Where time matters, the first parameter is the instant, or NULL for the server's clock."""

    insert_new: str
    """Write letters and their plans, unless any of them is there; answers with the ids that are."""
    insert_new_soon: str
    """The same, for those whom others wait for: `Blocked` after a moment, where another transaction is about to write one of the letters."""
    insert: str
    """Write letters that are not there."""
    update: str
    """Overwrite letters that are locked; the last parameter has the ids of those whose texts are others than before."""
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
    quiet: str
    """Wait until nobody indexes texts, and let nobody begin before this transaction ends."""
    remove: str
    """Remove letters that are locked and that nobody holds; answers with what was removed, the oldest first. Call it after
    `quiet`."""
    fold: str
    """Sum up so many changes of counts, unless another does."""
    make_months: str
    """Make partitions: their names, first instants, and those after the last. Answers with those that could not be made just now."""
    drop_month: str
    """Remove a partition that is past and empty; was there one?"""


def statements(tables: Tables) -> Statements:
    """The statements for these tables."""
    schema = tables.schema
    letters, claims, unread = f"{schema}.letters", f"{schema}.claims", f"{schema}.unread"
    is_new = "NOT EXISTS (SELECT 1 FROM known)"
    # For this statement alone, and set before it writes: a pooler may stand in between, and a transaction of several takes several round trips.
    is_hasty = f"(SELECT set_config('lock_timeout', '{_SOON_MS}ms', true)) IS NOT NULL"
    # Letters before claims, as all others do; of themselves, the parts of a statement are done in any order.
    is_written = "(SELECT count(*) FROM written) > 0"
    columns, values, identities, is_keyed, unkeyed = ", ".join(COLUMNS), selected(COLUMNS), letters, "true", ""
    if tables.is_parted:
        columns, values = f"{columns}, born", f"{values}, a.dead_lettered_at"
        identities, is_keyed = f"{schema}.keys", "(SELECT count(*) FROM keyed) > 0"
        unkeyed = f"unkeyed AS (DELETE FROM {schema}.keys k USING gone WHERE k.id = gone.id),"

    def keyed(condition: str = "") -> str:
        if not tables.is_parted:
            return ""
        insert = f"INSERT INTO {schema}.keys (id, born) SELECT a.id, a.dead_lettered_at FROM a {condition} RETURNING 1"
        return f"keyed AS ({insert}),"

    def insert_new(is_new: str) -> str:
        return f"""
            WITH known AS (SELECT i.id FROM {identities} i WHERE i.id = ANY ($1)),
            a AS (SELECT a.* FROM {unnested(COLUMNS, first=1)}),
            {keyed("WHERE " + is_new)}
            written AS (
                INSERT INTO {letters} ({columns}) SELECT {values} FROM a WHERE {is_new} AND {is_keyed} RETURNING 1
            ),
            planned AS (
                INSERT INTO {claims} (id, lane, priority, at, is_due)
                SELECT a.id, a.lane, a.priority, a.next_retry_at, true FROM a WHERE {_PLANNED} AND {is_written}
            ),
            noted AS ({_noted(schema, f"SELECT {_kind(schema, 'a')}, 1 AS count, false AS is_shaken FROM a WHERE {is_new}")}),
            queued AS (INSERT INTO {unread} (id) SELECT a.id FROM a WHERE {is_new})
            SELECT id FROM known
        """

    return Statements(
        insert_new=insert_new(is_new),
        insert_new_soon=insert_new(f"{is_new} AND {is_hasty}"),
        insert=f"""
            WITH a AS (SELECT a.* FROM {unnested(COLUMNS, first=1)}),
            {keyed()}
            noted AS ({_noted(schema, f"SELECT {_kind(schema, 'a')}, 1 AS count, false AS is_shaken FROM a")}),
            queued AS (INSERT INTO {unread} (id) SELECT a.id FROM a)
            INSERT INTO {letters} ({columns}) SELECT {values} FROM a WHERE {is_keyed}
        """,
        update=f"""
            WITH a AS (SELECT a.* FROM {unnested(COLUMNS, first=1)}),
            moved AS (
                SELECT {", ".join(f"l.{name} AS old_{name}" for name in _COUNTED)}, {", ".join(f"a.{name}" for name in _COUNTED)}
                FROM a {tables.joined("a")}
                WHERE ({", ".join(f"l.{name}" for name in _COUNTED)}) <> ({", ".join(f"a.{name}" for name in _COUNTED)})
            ),
            noted AS ({_noted(schema, _replaced(schema))}),
            queued AS (INSERT INTO {unread} (id) SELECT unnest(${len(COLUMNS) + 1}::uuid[]))
            UPDATE {letters} l SET version = l.version + 1, {_set(_CHANGING)} FROM a {tables.keyed("a")}
            WHERE l.id = a.id{tables.is_of_key}
        """,
        plan=f"""
            INSERT INTO {claims} (id, lane, priority, at, token, until, is_due)
            SELECT a.*, true FROM {unnested(("id", "lane", "priority", "at", "token", "until"), first=1)}
        """,
        unclaim=f"DELETE FROM {claims} c WHERE c.id = ANY ($1)",
        lock=f"SELECT l.id FROM {tables.among('$1')} ORDER BY l.id FOR UPDATE OF l",
        holdings=f"""
            SELECT h.data, c.token, c.until, {NOW} FROM (SELECT l.id, l.data FROM {tables.among("$2")}) h
            LEFT JOIN {claims} c ON c.id = h.id
        """,
        settle=f"SELECT {schema}.settle({', '.join(f'${number}' for number in range(1, len(SETTLED) + 3))})",
        extend=f"""
            UPDATE {claims} c SET until = greatest(c.until, {NOW} + $2::bigint), at = greatest(c.at, {NOW} + $2::bigint)
            FROM unnest($3::uuid[], $4::bigint[], $5::bigint[]) AS a (id, token, generation) {tables.joined("a")}
            WHERE c.id = a.id AND c.token = a.token AND l.generation = a.generation AND c.until > {NOW}
            RETURNING c.id, c.token, l.generation, c.until
        """,
        quiet=f"SELECT pg_advisory_xact_lock_shared({INDEXING}, hashtext('{schema}'))",
        remove=f"""
            WITH gone AS (
                DELETE FROM {letters} l USING unnest($2::uuid[]) AS a (id) {tables.keyed("a")}
                WHERE l.id = a.id{tables.is_of_key} AND NOT EXISTS (SELECT 1 FROM {claims} c WHERE c.id = l.id AND c.until > {NOW})
                RETURNING l.id, l.data, {", ".join(f"l.{name}" for name in _COUNTED)}
            ),
            {unkeyed}
            freed AS (DELETE FROM {claims} c USING gone WHERE c.id = gone.id),
            forgotten AS (DELETE FROM {schema}.texts t USING gone WHERE t.id = gone.id),
            noted AS ({_noted(schema, f"SELECT {_kind(schema, 'gone')}, -1 AS count, true AS is_shaken FROM gone")})
            SELECT data FROM gone ORDER BY dead_lettered_at, id
        """,
        fold=f"SELECT {schema}.fold($1)",
        make_months=f"SELECT {schema}.make_months($1, $2, $3)",
        drop_month=f"SELECT {schema}.drop_month()",
    )


def _kind(schema: str, table: str, prefix: str = "") -> str:
    """What a row's letter counts as."""
    columns = (f"{table}.{prefix}{name} AS {name}" for name in (*_KIND, "dead_lettered_at"))
    return f"{', '.join(columns)}, {schema}.hour_of({table}.{prefix}dead_lettered_at) AS hour"


def _noted(schema: str, kinds: str) -> str:
    """Note by how much counts change: `kinds` has a row for each letter that comes or goes: its kind, 1 or -1, and whether the
    group is shaken. What comes to 0 is noted too.
    """
    columns = ", ".join((*_KIND, "hour"))
    return f"""
        INSERT INTO {schema}.changes ({columns}, count, first, last, is_shaken)
        SELECT {columns}, sum(count), min(dead_lettered_at) FILTER (WHERE count > 0), max(dead_lettered_at) FILTER (WHERE count > 0),
            bool_or(is_shaken)
        FROM ({kinds}) k GROUP BY {columns}
    """


def _replaced(schema: str) -> str:
    """The kinds of letters that are stored otherwise than before, as `moved m` has them."""
    is_shaken = "(m.old_fingerprint, m.old_dead_lettered_at) <> (m.fingerprint, m.dead_lettered_at)"
    return (
        f"SELECT {_kind(schema, 'm', 'old_')}, -1 AS count, {is_shaken} AS is_shaken FROM moved m"
        f" UNION ALL SELECT {_kind(schema, 'm')}, 1, false FROM moved m"
    )


def _set(columns: Sequence[str]) -> str:
    return ", ".join(f"{name} = {selected([name])}" for name in columns)
