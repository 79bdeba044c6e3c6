"""The columns that the stores with tables keep beside a letter's stored form, by what can be asked about."""

from __future__ import annotations

from redrive.model.query import Field

COLUMN: dict[Field, str] = {
    field: f"l.{'fingerprint' if field is Field.GROUP else field.value}" for field in Field if field is not Field.TAG
}
"""Of the table `letters l`. Tags are many and have a way of their own."""

NULLABLE = frozenset({Field.KEY, Field.KIND, Field.NEXT_RETRY_AT, Field.EXPIRES_AT})
