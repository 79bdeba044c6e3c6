"""Durations as Go writes and reads them: `1m30s`, `24h0m0s`, `150ms`. They are in the queues' wire format and messages."""

from __future__ import annotations

import re
from datetime import timedelta
from functools import lru_cache

_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_PART = re.compile(r"([0-9]*)(?:\.([0-9]*))?([^0-9.]*)")
_MOST = 2**63 - 1
_DIGITS = 19
"""More than these are more than Go counts, or finer."""


class NotADuration(ValueError):
    """Its text is Go's own."""


@lru_cache(maxsize=256)
def parsed(text: str) -> timedelta:
    """The duration that a text means, to the microsecond."""
    sign, rest = (-1, text[1:]) if text[:1] == "-" else (1, text[1:] if text[:1] == "+" else text)
    if rest == "0":
        return timedelta()
    if not rest:
        raise NotADuration(f"time: invalid duration {_quoted(text)}")
    total = at = 0
    while at < len(rest):
        match = _PART.match(rest, at)
        assert match is not None  # it matches the empty text
        whole, fraction, unit = match.groups()
        if not (whole or fraction):
            raise NotADuration(f"time: invalid duration {_quoted(text)}")
        if not unit:
            raise NotADuration(f"time: missing unit in duration {_quoted(text)}")
        if unit not in _UNITS:
            raise NotADuration(f"time: unknown unit {_quoted(unit)} in duration {_quoted(text)}")
        whole, fraction = whole.lstrip("0"), (fraction or "")[:_DIGITS]
        if len(whole) <= _DIGITS:
            total += int(whole or 0) * _UNITS[unit] + int(fraction or 0) * _UNITS[unit] // 10 ** len(fraction)
        if len(whole) > _DIGITS or total > _MOST:
            raise NotADuration(f"time: invalid duration {_quoted(text)}")
        at = match.end()
    return timedelta(microseconds=sign * (total // 1000))


def _quoted(text: str) -> str:
    """As Go quotes what it could not read: bytes that are not printable ASCII by their numbers."""
    return f'"{"".join(map(_shown, text))}"'


def _shown(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    return character if " " <= character <= "~" else "".join(f"\\x{byte:02x}" for byte in character.encode())


def written(duration: timedelta) -> str:
    """The text that Go has for it."""
    left = abs(duration) // timedelta(microseconds=1)
    sign = "-" if duration < timedelta() else ""
    if not left:
        return "0s"
    for unit, size in (("µs", 1), ("ms", 1000)):
        if left < size * 1000:
            return f"{sign}{_decimal(left, size)}{unit}"
    hours, left = divmod(left, 3600 * 10**6)
    minutes, left = divmod(left, 60 * 10**6)
    text = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return f"{sign}{text}{_decimal(left, 10**6)}s"


def _decimal(number: int, size: int) -> str:
    whole, rest = divmod(number, size)
    digits = len(str(size)) - 1
    return f"{whole}.{rest:0{digits}d}".rstrip("0").rstrip(".") if rest else str(whole)
