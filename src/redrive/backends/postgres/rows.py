"""Letters as columns: many rows in one statement travel as one array a column."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import json

from redrive.backends.postgres.terms import terms
from redrive.model.instant import micros
from redrive.model.lane import lane_of
from redrive.model.letter import Letter
from redrive.model.query import last_name
from redrive.model.stored import stored
from redrive.model.texts import message_words

TYPES = {
    "id": "uuid", "namespace": "text", "source": "text", "source_id": "text", "key": "bytea", "kind": "text", "policy": "text", "status": "text",
    "generation": "bigint", "category": "text", "error": "text", "error_name": "text", "fingerprint": "text", "tags": "text", "words": "text",
    "message": "text", "lane": "bigint", "priority": "bigint", "attempts": "bigint", "dead_lettered_at": "bigint", "updated_at": "bigint",
    "next_retry_at": "bigint", "expires_at": "bigint", "data": "bytea", "token": "bigint", "at": "bigint", "until": "bigint", "version": "bigint",
}  # fmt: skip
"""How each column travels."""

COLUMNS = (
    "id", "namespace", "source", "source_id", "key", "kind", "policy", "status", "generation", "category", "error",
    "error_name", "fingerprint", "tags", "words", "message", "lane", "priority", "attempts", "dead_lettered_at", "updated_at", "next_retry_at",
    "expires_at", "data",
)  # fmt: skip
"""What is written of a letter, in this order."""

SETTLED = (
    "id", "token", "version", "status", "category", "error", "error_name", "fingerprint", "words", "message", "attempts",
    "updated_at", "next_retry_at", "data",
)  # fmt: skip
"""What must hold for a claim to end, and what its end changes."""

_LONG = 1000
"""Characters of a message; one that has more is not written a second time beside the letter."""


def row(letter: Letter) -> tuple[Any, ...]:
    """A letter's values for `COLUMNS`."""
    data = stored(letter)  # says what no store can hold, before anything else is made of the letter
    failure, retry_at, expires_at = letter.failure, letter.retry.next_retry_at, letter.expires_at
    return (
        letter.id,
        plain(letter.namespace),
        plain(letter.source),
        plain(letter.source_id),
        letter.key,
        None if letter.kind is None else plain(letter.kind),
        plain(letter.retry.policy),
        letter.status.value,
        letter.generation,
        failure.category.value,
        plain(failure.type),
        plain(last_name(failure.type)),
        plain(failure.fingerprint),
        json.encode([plain(tag) for tag in letter.tags]).decode() if letter.tags else None,
        terms(message_words(letter)),
        _shown(failure.message),
        lane_of(letter).number,
        letter.priority,
        letter.attempts,
        micros(letter.dead_lettered_at),
        micros(letter.updated_at),
        None if retry_at is None else micros(retry_at),
        None if expires_at is None else micros(expires_at),
        data,
    )


def settled_row(letter: Letter, token: int, version: int) -> tuple[Any, ...]:
    """A letter's values for `SETTLED`."""
    failure, retry_at = letter.failure, letter.retry.next_retry_at
    return (
        letter.id,
        token,
        version,
        letter.status.value,
        failure.category.value,
        plain(failure.type),
        plain(last_name(failure.type)),
        plain(failure.fingerprint),
        terms(message_words(letter)),
        _shown(failure.message),
        letter.attempts,
        micros(letter.updated_at),
        None if retry_at is None else micros(retry_at),
        stored(letter),
    )


def _shown(message: str) -> str | None:
    """A failure's message for people who look at groups; None: it is long, and only the letter has it."""
    return plain(message) if len(message) <= _LONG else None


def arrays(rows: Iterable[Sequence[Any]], width: int) -> list[list[Any]]:
    """The rows turned: one list a column."""
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in range(width)]


def unnested(columns: Sequence[str], *, first: int) -> str:
    """Arrays as rows named `a`, from parameter number `first` on."""
    parameters = ", ".join(f"${number}::{TYPES[name]}[]" for number, name in enumerate(columns, first))
    return f"unnest({parameters}) AS a ({', '.join(columns)})"


def selected(columns: Sequence[str]) -> str:
    """The columns of `a` as the table takes them."""
    return ", ".join("a.tags::jsonb" if name == "tags" else f"a.{name}" for name in columns)


def plain(text: str) -> str:
    """A text as PostgreSQL can hold it: without NUL, and in the same order as before."""
    if "\0" not in text and "\1" not in text:
        return text
    return text.replace("\1", "\1\2").replace("\0", "\1\1")


def restored_text(text: str) -> str:
    """The text that `plain` made this of."""
    return text if "\1" not in text else text.replace("\1\1", "\0").replace("\1\2", "\1")
