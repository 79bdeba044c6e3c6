"""Triage: what people have said of a group of failures, and how it stands for that."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from redrive.model.query import Group


class Standing(StrEnum):
    """Where a group stands. What people say is kept; that it has come back is seen."""

    OPEN = "open"
    ACKNOWLEDGED = "acknowledged"
    """Somebody has seen it."""
    ASSIGNED = "assigned"
    """Somebody is to look after it."""
    SNOOZED = "snoozed"
    """Not before a certain time."""
    RESOLVED = "resolved"
    REGRESSED = "regressed"
    """It was resolved, and letters have come since."""


SAID = frozenset(Standing) - {Standing.REGRESSED}
"""What people say; that a group has regressed nobody has to."""


class Note(Struct, frozen=True, kw_only=True):
    """What somebody wrote about a group."""

    at: datetime
    by: str
    text: str


class Triage(Struct, frozen=True, kw_only=True):
    """What was said of one group last, and all notes."""

    namespace: str
    fingerprint: str
    said: Standing = Standing.OPEN
    at: datetime
    by: str
    assignee: str = ""
    until: datetime | None = None
    """Snoozed: until then."""
    release: str = ""
    """Resolved: in this release."""
    notes: tuple[Note, ...] = ()


def standing(triage: Triage | None, group: Group, now: datetime) -> Standing:
    """How a group stands now, by what was said and what has happened since."""
    if triage is None:
        return Standing.OPEN
    if triage.said is Standing.SNOOZED and triage.until is not None and now >= triage.until:
        return Standing.OPEN
    if triage.said is Standing.RESOLVED and group.last_seen > triage.at:
        return Standing.REGRESSED
    return triage.said
