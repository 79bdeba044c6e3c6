"""Claiming: what is due, by ids, and by a question. Limits are part of the text, so that the plan fits them."""

from __future__ import annotations

from redrive.backends.postgres.database import CLOCK
from redrive.backends.postgres.query import NOW, Condition
from redrive.backends.postgres.tables import Tables
from redrive.model.status import OPEN

_OPEN = ", ".join(f"'{status}'" for status in sorted(OPEN))
_UNTIL = f"{NOW} + $2::bigint"
_WHAT_A_CLAIM_NEEDS = (
    "l.id, l.data, l.version, l.lane, l.priority, CASE WHEN l.status = 'pending' THEN l.next_retry_at END AS retry_at"
)
_ANSWER = f"SELECT chosen.data, chosen.version, taken.token, taken.until, {NOW} AS now"


def next_due(schema: str) -> str:
    """How many microseconds until a letter of these lanes, the parameter, may be claimed as due; NULL: none waits for a retry."""
    waits = f"FROM {schema}.claims c WHERE c.is_due AND c.lane = road.number"
    first = f"SELECT c.at {waits} AND c.priority = level.priority ORDER BY c.at LIMIT 1"
    return f"""
        SELECT min((
            WITH RECURSIVE level (priority) AS (
                (SELECT c.priority {waits} ORDER BY c.priority DESC LIMIT 1)
                UNION ALL
                SELECT (SELECT c.priority {waits} AND c.priority < level.priority ORDER BY c.priority DESC LIMIT 1)
                FROM level WHERE level.priority IS NOT NULL
            )
            SELECT min(({first})) FROM level
        )) - {CLOCK} FROM unnest($1::bigint[]) AS road (number)
    """


def claim_due(schema: str, *, longest: bool) -> str:
    """Lease what is due: parameters are the instant, the lease in microseconds, the owner, the lane and the limit."""
    function = "claim_longest" if longest else "claim_due"
    return f"SELECT data, version, token, until, clock FROM {schema}.{function}($1, $2, $3, $4, $5)"


def claim_ids(tables: Tables, limit: int) -> str:
    """Lease letters by their ids, which are the fourth parameter. It waits for those that are changing right now."""
    schema = tables.schema
    is_free = f"NOT EXISTS (SELECT 1 FROM {schema}.claims c WHERE c.id = l.id AND c.until > {NOW})"
    return f"""
        WITH wanted AS (
            SELECT w.id, w.place FROM unnest($4::uuid[]) WITH ORDINALITY AS w (id, place) {tables.joined("w")}
            WHERE l.status IN ({_OPEN}) AND {is_free} ORDER BY w.place LIMIT {limit}
        ),
        chosen AS (
            SELECT w.place, {_WHAT_A_CLAIM_NEEDS} FROM wanted w {tables.joined("w")}
            WHERE l.status IN ({_OPEN}) ORDER BY l.id FOR UPDATE OF l
        ),
        {_taken(schema)}
        {_ANSWER} FROM chosen JOIN taken ON taken.id = chosen.id ORDER BY chosen.place
    """


def claim_query(schema: str, condition: Condition, limit: int) -> str:
    """Lease the oldest that match; `condition` has the lease and the owner as its second and third parameter."""
    return f"""
        WITH chosen AS (
            SELECT l.dead_lettered_at AS place, {_WHAT_A_CLAIM_NEEDS} FROM {schema}.letters l
            WHERE {condition.sql} AND l.status IN ({_OPEN}) AND NOT {condition.is_leased}
            ORDER BY l.dead_lettered_at, l.id LIMIT {limit} FOR UPDATE OF l SKIP LOCKED
        ),
        {_taken(schema)}
        {_ANSWER} FROM chosen JOIN taken ON taken.id = chosen.id ORDER BY chosen.place, chosen.id
    """


def _taken(schema: str) -> str:
    """Write leases on what was chosen. Should another have got it since it was looked at, that one keeps it."""
    return f"""
        taken AS (
            INSERT INTO {schema}.claims AS c (id, lane, priority, at, is_due, token, owner, until)
            SELECT id, lane, priority, greatest({_UNTIL}, retry_at), retry_at IS NOT NULL, nextval('{schema}.fence'), $3, {_UNTIL}
            FROM chosen
            ON CONFLICT (id) DO UPDATE SET priority = excluded.priority, at = excluded.at, is_due = excluded.is_due,
                token = excluded.token, owner = excluded.owner, until = excluded.until
            WHERE c.until IS NULL OR c.until <= {NOW}
            RETURNING c.id, c.token, c.until
        )
    """
