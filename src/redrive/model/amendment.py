"""Amending: what people and operations change on a letter that nobody holds."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from redrive.model.errors import BadSettings
from redrive.model.letter import BodyRef, Headers, Letter, original_of
from redrive.model.redaction import MARK, is_marked
from redrive.model.status import TRANSITIONS, Act, Status

_LEADS_TO = {
    Act.CONFIRM: Status.COMPLETED,
    Act.REQUEUE: Status.PENDING,
    Act.QUARANTINE: Status.QUARANTINED,
    Act.ARCHIVE: Status.ARCHIVED,
    Act.RESTORE: Status.PENDING,
    Act.DISCARD: Status.DISCARDED,
}


class Amendment(Struct, frozen=True, kw_only=True):
    """A change to one letter; what is not given stays as it is."""

    id: UUID
    generation: int | None = None
    """When given, a letter that was reopened meanwhile is left alone."""
    act: Act | None = None
    """confirm, requeue, quarantine, archive, restore or discard."""
    reason: str | None = None
    body: bytes | UnsetType = UNSET
    body_ref: BodyRef | UnsetType | None = UNSET
    content_type: str | UnsetType = UNSET
    headers: Headers | UnsetType = UNSET
    key: bytes | UnsetType | None = UNSET
    target: str | UnsetType = UNSET
    """Where it goes back to; empty: to its source."""
    priority: int | UnsetType = UNSET
    tags: tuple[str, ...] | UnsetType = UNSET
    metadata: dict[str, Any] | UnsetType = UNSET
    next_retry_at: datetime | UnsetType | None = UNSET
    expires_at: datetime | UnsetType | None = UNSET
    instead: Letter | None = None
    """A whole letter of the same id, to stand in the place of the one that is there; nothing else is looked at then but the generation."""

    def __post_init__(self) -> None:
        if self.instead is not None and self.instead.id != self.id:
            raise BadSettings(f"letter {self.instead.id} cannot stand in the place of letter {self.id}")


class Amended(StrEnum):
    """What became of one amendment."""

    DONE = "done"
    MISSING = "missing"
    LEASED = "leased"
    """Somebody holds the letter."""
    ILLEGAL = "illegal"
    """The act is not allowed from the letter's status."""
    STALE = "stale"
    """The letter was reopened meanwhile."""


def amended(letter: Letter, amendment: Amendment, now: datetime) -> tuple[Letter, Amended]:
    """The letter after the amendment, and what became of it. The caller has checked that nobody holds the letter."""
    if amendment.generation is not None and amendment.generation != letter.generation:
        return letter, Amended.STALE
    if amendment.instead is not None:
        return amendment.instead, Amended.DONE
    if amendment.act is not None and (amendment.act not in _LEADS_TO or letter.status not in TRANSITIONS[amendment.act][0]):
        return letter, Amended.ILLEGAL
    changes: dict[str, Any] = {"updated_at": now}
    for name in ("key", "priority", "tags", "metadata", "expires_at"):
        if (value := getattr(amendment, name)) is not UNSET:
            changes[name] = value
    content = {
        name: value
        for name in ("body", "body_ref", "content_type", "headers", "target")
        if (value := getattr(amendment, name)) is not UNSET
    }
    if "body" in content:
        content.setdefault("body_ref", None)
    if letter.redacted and (content or amendment.key is not UNSET):
        changes["redacted"] = _still_redacted(letter, amendment)
    if content:
        changes |= content
        changes["original"] = letter.original or original_of(letter)
    if amendment.next_retry_at is not UNSET:
        changes["retry"] = replace(letter.retry, next_retry_at=amendment.next_retry_at, waits_for="")
    if amendment.act is not None:
        changes["status"] = _LEADS_TO[amendment.act]
        if amendment.act is not Act.REQUEUE and amendment.next_retry_at is UNSET:
            changes["retry"] = replace(letter.retry, next_retry_at=None, waits_for="")
        if amendment.reason is not None:
            changes["metadata"] = {**changes.get("metadata", letter.metadata), f"{amendment.act}_reason": amendment.reason}
    return replace(letter, **changes), Amended.DONE


def _still_redacted(letter: Letter, amendment: Amendment) -> tuple[str, ...]:
    """The redacted parts that the amendment does not mend: those it leaves alone, or gives with a mark still in them."""
    mended = set()
    if amendment.body is not UNSET and not is_marked(amendment.body):
        mended.add("body")
    if amendment.key is not UNSET and not is_marked(amendment.key or b""):
        mended.add("key")
    if amendment.target is not UNSET and not MARK.search(amendment.target):
        mended.add("target")
    if amendment.headers is not UNSET:
        marked = {f"headers.{name.lower()}" for name, value in amendment.headers if is_marked(value)}
        mended |= {part for part in letter.redacted if part.startswith("headers.")} - marked
    return tuple(part for part in letter.redacted if part not in mended)
