"""What an examination found."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class Health(StrEnum):
    OK = "ok"
    NOTE = "note"
    """Worth knowing; nothing to do."""
    BAD = "bad"
    """Something must be done, and the detail says what."""


class Finding(Struct, frozen=True):
    """One thing that was looked at."""

    what: str
    health: Health
    detail: str
