"""Instants as RFC 3339 writes them, with as many digits as protobuf's JSON has: none, three, six or nine."""

from __future__ import annotations

import re
from calendar import timegm
from functools import lru_cache
from time import gmtime, strftime

_FORM = re.compile(r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?:[Zz]|([+-])(\d\d):(\d\d))", re.ASCII)
_DAYS = (0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_FIRST, _LAST = timegm((1, 1, 1, 0, 0, 0)), timegm((9999, 12, 31, 23, 59, 59))
"""The seconds that have a text, in years of four digits."""


class BadStamp(ValueError):
    """No instant is written so."""


def written(micros: int) -> str:
    """The text for an instant; none for 0."""
    if not micros:
        return ""
    seconds, rest = divmod(micros, 1_000_000)
    if not rest:
        return f"{_whole(seconds)}Z"
    return f"{_whole(seconds)}.{rest // 1000:03d}Z" if rest % 1000 == 0 else f"{_whole(seconds)}.{rest:06d}Z"


def stamped(seconds: int, nanos: int) -> str:
    """The text for an instant as protobuf has it; `BadStamp` when there is none."""
    if not (_FIRST <= seconds <= _LAST and 0 <= nanos < 1_000_000_000):
        raise BadStamp(f"{seconds} s and {nanos} ns")
    return written(seconds * 1_000_000 + nanos // 1000)


def micros(text: str) -> int:
    """The instant that a text means, 0 for none; `BadStamp` when it means none."""
    return _read(text) if text else 0


def seconds_and_nanos(text: str) -> tuple[int, int]:
    seconds, rest = divmod(micros(text), 1_000_000)
    return seconds, rest * 1000


@lru_cache(maxsize=64)
def _whole(seconds: int) -> str:
    instant = gmtime(seconds)
    return f"{instant.tm_year:04d}-{strftime('%m-%dT%H:%M:%S', instant)}"


@lru_cache(maxsize=64)
def _read(text: str) -> int:
    match = _FORM.fullmatch(text)
    if not match:
        raise BadStamp(text)
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    fraction, sign, hours, minutes = match.groups()[6:]
    if not (year >= 1 and 1 <= month <= 12 and 1 <= day <= _DAYS[month] and hour < 24 and minute < 60 and second < 60):
        raise BadStamp(text)
    seconds = timegm((year, month, day, hour, minute, second))
    if strftime("%d", gmtime(seconds)) != f"{day:02d}":
        raise BadStamp(text)
    if sign:
        seconds -= (1 if sign == "+" else -1) * (int(hours) * 3600 + int(minutes) * 60)
    if not _FIRST <= seconds <= _LAST:
        raise BadStamp(text)
    return seconds * 1_000_000 + int((fraction or "0").ljust(9, "0")) // 1000
