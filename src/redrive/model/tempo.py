"""How fast an operation goes, and when it stops by itself."""

from __future__ import annotations

import re
from datetime import timedelta

from msgspec import Struct
from msgspec.structs import force_setattr

from redrive.model.errors import BadSettings

_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:/\s*(s|m|min|h))?")
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600}
_FEW = 20
"""Of fewer letters than this no share says much."""
_FIRST_SHARE = 0.1
"""What part of its rate an operation begins with that ramps up."""


class Tempo(Struct, frozen=True, kw_only=True):
    """The pace of one operation."""

    rate: float | None = None
    """Letters a second, at most."""
    batch: int = 100
    """So many letters go to their target in one call, and are on the way at a time."""
    canary: int = 0
    """So many letters go first, and what becomes of them decides whether the others follow."""
    ramp: timedelta | None = None
    """From a tenth of the rate to all of it within so long."""
    stop_on_refail: float | None = None
    """It pauses by itself when more than this share of what was sent has failed again; None: it goes on."""
    window: timedelta = timedelta(minutes=1)
    """How long the outcome of the canary is waited for, where a target only takes messages and its handler tells later."""
    keeps_order: bool = False
    """Letters of one key go one after the other, and none follows one that failed."""
    max_rounds: int = 5
    """A letter that has gone round so often is quarantined instead of sent."""

    def __post_init__(self) -> None:
        for name in ("rate", "stop_on_refail"):
            if (given := getattr(self, name)) is not None:
                # As it is when it has been stored and read again.
                force_setattr(self, name, float(given))
        if self.rate is not None and not 0 < self.rate < float("inf"):
            raise BadSettings(f"a rate must be more than 0 letters a second, got {self.rate!r}")
        if self.batch < 1:
            raise BadSettings(f"a batch must have at least 1 letter, got {self.batch!r}")
        if self.canary < 0:
            raise BadSettings(f"a canary is a number of letters from 0, got {self.canary!r}")
        if self.ramp is not None and (self.rate is None or self.ramp <= timedelta()):
            raise BadSettings("a ramp leads up to a rate within some time: give both")
        if self.stop_on_refail is not None and not 0 <= self.stop_on_refail < 1:
            raise BadSettings(f"a share of failures must be from 0 to less than 1, got {self.stop_on_refail!r}")
        if self.window <= timedelta():
            raise BadSettings(f"a window must be longer than nothing, got {self.window}")
        if self.max_rounds < 1:
            raise BadSettings(f"a letter may go round at least once, got {self.max_rounds!r}")

    def rate_after(self, since: timedelta) -> float | None:
        """Letters a second when it has run for so long; None: as fast as it can."""
        if self.rate is None or self.ramp is None or since >= self.ramp:
            return self.rate
        return self.rate * (_FIRST_SHARE + (1 - _FIRST_SHARE) * (since / self.ramp))

    def seconds_for(self, letters: int) -> float | None:
        """How long so many letters take at least; None: that cannot be known."""
        if self.rate is None:
            return None
        ramped = self.ramp.total_seconds() if self.ramp else 0.0
        meanwhile = self.rate * ramped * (1 + _FIRST_SHARE) / 2
        return (
            ramped + (letters - meanwhile) / self.rate if letters > meanwhile else letters / (self.rate * (1 + _FIRST_SHARE) / 2)
        )

    def has_failed_too_often(self, failed: int, sent: int) -> bool:
        """Is it time to stop?"""
        return self.stop_on_refail is not None and sent >= _FEW and failed / sent > self.stop_on_refail


def rate_of(text: str) -> float:
    """Letters a second: `50`, `50/s`, `300/min`, `1000/h`."""
    found = _RATE.fullmatch(text.strip().lower())
    if found is None or not float(found[1]):
        raise BadSettings(f"'{text}' is not a rate; write letters by time, e.g. 50/s, 300/min or 1000/h")
    return float(found[1]) / _SECONDS[found[2] or "s"]


def share_of(text: str) -> float:
    """A share: `5%`, `0.05`."""
    stripped = text.strip()
    try:
        share = float(stripped[:-1]) / 100 if stripped.endswith("%") else float(stripped)
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise BadSettings(f"'{text}' is not a share; write e.g. 5% or 0.05")
    return share
