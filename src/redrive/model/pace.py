"""How fast letters are retried."""

from __future__ import annotations

from datetime import timedelta

from msgspec import Struct

from redrive.model.errors import BadSettings


class Pace(Struct, frozen=True, kw_only=True):
    """How fast a processor goes."""

    concurrency: int = 10
    """So many letters are tried at a time, never more."""
    interval: timedelta = timedelta(seconds=60)
    """It looks for due letters at least so often, and lets so much time pass between two tries of an immediate retry."""
    batch: int = 1
    """So many letters of one lane go to their target in one call, where concurrency allows."""
    lease: timedelta = timedelta(seconds=60)
    """What it holds comes free so long after a crash. While it lives, leases are extended as long as it needs them."""
    grace: timedelta = timedelta(seconds=5)
    """How long a stop waits for what is being tried."""

    def __post_init__(self) -> None:
        for name in ("concurrency", "batch"):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 1:
                raise BadSettings(f"a processor's {name} must be a number from 1, got {getattr(self, name)!r}")
        for name in ("interval", "lease", "grace"):
            value = getattr(self, name)
            if not isinstance(value, timedelta):
                raise BadSettings(f"a processor's {name} must be a timedelta, got {value!r}")
            if value < timedelta() or (not value and name != "grace"):
                raise BadSettings(f"a processor's {name} must be longer than nothing, got {value}")
