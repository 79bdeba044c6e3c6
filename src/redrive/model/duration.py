"""Durations as people write them: `90s`, `1h30m`, `7d`."""

from __future__ import annotations

import re
from datetime import timedelta

_UNITS = {
    "w": timedelta(weeks=1), "d": timedelta(days=1), "h": timedelta(hours=1), "m": timedelta(minutes=1), "s": timedelta(seconds=1),
    "ms": timedelta(milliseconds=1), "us": timedelta(microseconds=1),
}  # fmt: skip
_PART = r"(\d{1,15}(?:\.\d{1,9})?)(ms|us|[smhdw])"
_WHOLE = re.compile(rf"(?:{_PART})+")
_PARTS = re.compile(_PART)


def duration(text: str) -> timedelta | None:
    """The duration that a text means; None when it means none, or one that no clock will see."""
    if not _WHOLE.fullmatch(text):
        return None
    try:
        return sum((float(number) * _UNITS[unit] for number, unit in _PARTS.findall(text)), timedelta())
    except OverflowError:
        return None


def written(duration: timedelta) -> str:
    """The text that means just this duration, which is not negative."""
    parts, left = [], duration
    for unit, size in _UNITS.items():
        if unit == "w":
            continue
        number, left = divmod(left, size)
        if number:
            parts.append(f"{number}{unit}")
    return "".join(parts) or "0s"
