"""What the rules in settings have in common: a list of tables, each with a query."""

from __future__ import annotations

from datetime import datetime

from msgspec import DecodeError, json

from redrive.model.errors import BadQuery, BadSettings
from redrive.model.language import parse

_SOME_DAY = datetime.fromisoformat("2026-01-01T00:00:00+00:00")
"""Rules are read once when they are set, so that mistakes are told at once; then again at each look, with that look's now."""


def tables_of(text: str, but: str) -> object:
    """The rules that stand in a text as JSON, one alone as a list too; `but` begins the sentence when it is none."""
    try:
        found = json.decode(text)
    except DecodeError as error:
        raise BadSettings(f"{but}, but is not: {error}") from error
    return [found] if isinstance(found, dict) else found


def ensure_query(query: str, called: str) -> None:
    """Raise `BadQuery`, which points at where in the rule's query, unless it can be asked."""
    try:
        parse(query, _SOME_DAY)
    except BadQuery as error:
        what = str(error).removesuffix(f" (column {error.column})")
        raise BadQuery(f"{called}, in its query {query!r}: {what}", text=query, column=error.column, width=error.width) from error
