"""How what is put into queues travels to PostgreSQL, by columns, and how items come back, by rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redrive.backends.postgres.rows import plain, restored_text
from redrive.model.item import Fresh, Item, Place

FRESH = {
    "payload": "bytea",
    "reference": "text",
    "encoding": "text",
    "kind": "text",
    "enqueue_us": "bigint",
    "key": "text",
    "priority": "smallint",
    "story": "bytea",
    "message_id": "text",
    "source_id": "text",
    "attempts": "int",
    "created_us": "bigint",
    "expire_us": "bigint",
    "partition": "int",
}
"""What is put of an item, in this order, and how each column travels."""
ITEM = (
    "id", "message_id", "source_id", "attempts", "created_us", "updated_us", "enqueue_us", "expire_us", "payload", "reference",
    "encoding", "kind", "key", "priority", "story", "failure",
)  # fmt: skip
"""The columns of an item that are as the table has them: in the order in which `Item` takes them, and the failure."""
WIDTH = len(ITEM)


def fresh(schema: str, *, first: int) -> str:
    """What is put, as a value of SQL, from parameter number `first` on."""
    parameters = ", ".join(f"${number}::{type}[]" for number, type in enumerate(FRESH.values(), first))
    return f"ROW({parameters})::{schema}.queue_fresh"


def columns(items: Sequence[Fresh]) -> list[list[Any]]:
    """The items by columns; one that has but the ordinary value is empty, and need not travel."""
    return [
        [item.payload for item in items],
        texts([item.reference for item in items]),
        texts([item.encoding for item in items]),
        texts([item.kind for item in items]),
        _told([item.enqueue_us for item in items]),
        texts([item.key for item in items]),
        _told([item.priority for item in items]),
        _told([item.story for item in items]),
        texts([item.message_id for item in items]),
        texts([item.source_id for item in items]),
        _told([item.attempts for item in items]),
        _told([item.created_us for item in items]),
        _told([item.expire_us for item in items]),
        [] if all(item.partition is None for item in items) else [item.partition for item in items],
    ]


def texts(values: list[str]) -> list[str]:
    """Texts as PostgreSQL can hold them; none, if all are empty."""
    together = "".join(values)
    if not together:
        return []
    return [plain(value) for value in values] if "\0" in together or "\1" in together else values


def _told(values: list[Any]) -> list[Any]:
    return values if any(values) else []


def item(row: Sequence[Any], place: Place, lease_us: int = 0, why: str = "") -> Item:
    """The item in the first columns of a row."""
    found = Item(*row[: WIDTH - 1])
    found.place, found.lease_us, found.why, found.failure = place, lease_us, why, row[WIDTH - 1]
    # Seldom, so they are looked at together.
    if "\1" in f"{found.message_id}{found.source_id}{found.reference}{found.encoding}{found.kind}{found.key}":
        for name in ("message_id", "source_id", "reference", "encoding", "kind", "key"):
            setattr(found, name, restored_text(getattr(found, name)))
    return found
