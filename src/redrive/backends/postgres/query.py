"""Questions as SQL. Three-valued logic is kept out: a comparison with what is not there is false, never NULL."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, assert_never

from redrive.backends.columns import COLUMN, NULLABLE
from redrive.backends.postgres.database import CLOCK
from redrive.backends.postgres.rows import plain
from redrive.model.errors import BadSettings, Unsupported
from redrive.model.instant import micros
from redrive.model.query import And, At, Field, Has, Is, Not, Or, Query, Text
from redrive.model.spelling import spelled
from redrive.model.status import Status
from redrive.model.words import needle

NOW = f"(SELECT coalesce($1::bigint, {CLOCK}))"
"""For statements whose first parameter is the instant, or NULL for the server's clock. A query of its own: worked out once."""


class Condition:
    """A question about `letters l` as SQL, and the parameters it brings, behind those that a statement has already.

    The instant stands in the text: a number when a test gave it, else the server's clock, which is the same text always.
    """

    def __init__(self, schema: str, query: Query, now: int | None, *, behind: Sequence[Any] = ()) -> None:
        clock = f"(SELECT {CLOCK})" if now is None else str(now)
        self.is_leased = f"EXISTS (SELECT 1 FROM {schema}.claims c WHERE c.id = l.id AND c.until > {clock})"
        self.seen_status = f"CASE WHEN {self.is_leased} THEN 'retrying' ELSE l.status END"
        """A letter's status as people see it."""
        self.arguments: list[Any] = [*behind]
        self.sql = self._compiled(query)

    def parameter(self, value: Any) -> str:
        """A place in the statement for one more value."""
        self.arguments.append(value)
        return f"${len(self.arguments)}"

    def _compiled(self, query: Query) -> str:
        match query:
            case Is(field=Field.STATUS, value=value, op=op) if op == "=":
                if value == Status.RETRYING:
                    return self.is_leased
                return f"(l.status = {self._place(str(value))} AND NOT {self.is_leased})"
            case Is(field=Field.STATUS, value=value, op=op):
                return f'({self.seen_status}) COLLATE "C" {op.value} {self._place(str(value))}'
            case Is(field=Field.TAG, value=value, op=op):
                tags = "jsonb_array_elements_text(coalesce(l.tags, '[]'))"
                return f'EXISTS (SELECT 1 FROM {tags} AS t (tag) WHERE t.tag COLLATE "C" {op.value} {self._place(value)})'
            case Is(field=Field.ERROR, value=value, op=op):
                return f"{'l.error' if '.' in value else 'l.error_name'} {op.value} {self._place(value)}"
            case Is(field=Field.GROUP, value=value, op=op) if op == "=":
                place = self._place(value)
                return f"(left(l.fingerprint, 64) = left({place}, 64) AND l.fingerprint = {place})"
            case Is(field=field, value=value, op=op):
                condition = f"{COLUMN[field]} {op.value} {self._place(value)}"
                return f"({COLUMN[field]} IS NOT NULL AND {condition})" if field in NULLABLE else condition
            case Text(phrase=phrase):
                return f"strpos(l.words, {self.parameter(needle(phrase))}::text) > 0"
            case Has(field=field):
                return f"{'l.tags' if field is Field.TAG else COLUMN[field]} IS NOT NULL"
            case At():
                raise Unsupported(f"PostgreSQL cannot look into bodies and metadata: {spelled(query)}")
            case And(parts=parts):
                return self._joined(parts, " AND ", "true")
            case Or(parts=parts):
                return self._joined(parts, " OR ", "false")
            case Not(part=part):
                return f"NOT ({self._compiled(part)})"
            case _:
                assert_never(query)

    def _joined(self, parts: tuple[Query, ...], word: str, empty: str) -> str:
        return f"({word.join(self._compiled(part) for part in parts)})" if parts else empty

    def _place(self, value: Any) -> str:
        """A place for a value that somebody asks for, as its column holds it."""
        if isinstance(value, str):
            try:
                value.encode()
            except UnicodeEncodeError as error:
                raise BadSettings(f"the question holds text that is no valid Unicode: {value!r}") from error
            return f"{self.parameter(plain(value))}::text"
        if isinstance(value, datetime):
            return f"{self.parameter(micros(value))}::bigint"
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            return f"{self.parameter(Decimal(value))}::numeric"
        return self.parameter(value)
