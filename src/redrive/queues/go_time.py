"""Durations as Go writes and reads them: `1m30s`, `24h0m0s`, `150ms`. They are in the queues' wire format and messages."""

from __future__ import annotations

import re
from datetime import timedelta

_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_PART = re.compile(r"(\d*)(?:\.(\d*))?([^\d.]*)")
_MOST = 2**63 - 1


class NotADuration(ValueError):
    """Its text is Go's own."""


def parsed(text: str) -> timedelta:
    """The duration that a text means, to the microsecond."""
    sign, rest = (-1, text[1:]) if text[:1] == "-" else (1, text[1:] if text[:1] == "+" else text)
    if rest == "0":
        return timedelta()
    if not rest:
        raise NotADuration(f'time: invalid duration "{text}"')
    total = 0
    while rest:
        match = _PART.match(rest)
        assert match is not None  # it matches the empty text
        whole, fraction, unit = match.groups()
        if not (whole or fraction):
            raise NotADuration(f'time: invalid duration "{text}"')
        if not unit:
            raise NotADuration(f'time: missing unit in duration "{text}"')
        if unit not in _UNITS:
            raise NotADuration(f'time: unknown unit "{unit}" in duration "{text}"')
        total += int(whole or 0) * _UNITS[unit] + int(fraction or 0) * _UNITS[unit] // 10 ** len(fraction or "")
        if total > _MOST:
            raise NotADuration(f'time: invalid duration "{text}"')
        rest = rest[match.end() :]
    return timedelta(microseconds=sign * (total // 1000))


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
