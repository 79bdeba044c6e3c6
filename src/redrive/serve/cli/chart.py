"""Counts as people see them at a glance: bars, sparklines, short numbers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import groupby

from rich.text import Text

_LEVELS = "▁▂▃▄▅▆▇█"
_PARTS = "▏▎▍▌▋▊▉█"
_NONE = "·"
_LABELLED = 6
"""Every so many hours one is named under a sparkline."""


def sparkline(counts: Sequence[int], *, cells: int = 1, style: str = "") -> Text:
    """A sign for each count, `cells` wide: the highest is full, and one letter is more than none."""
    highest = max(counts, default=0)
    line = Text(no_wrap=True)
    for is_some, run in groupby(counts, key=lambda count: count > 0):
        signs = [_LEVELS[-(-count * len(_LEVELS) // highest) - 1] if is_some else _NONE for count in run]
        line.append("".join(sign * cells for sign in signs), style if is_some else "bright_black")
    return line


def joined(counts: Sequence[int], size: int) -> list[int]:
    """The counts of every `size` neighbours in one; the last ones stay together."""
    first = len(counts) % size
    parts = [counts[:first]] if first else []
    return [sum(part) for part in [*parts, *(counts[at : at + size] for at in range(first, len(counts), size))]]


def axis(starts: Sequence[datetime], *, cells: int) -> Text:
    """The hours under a sparkline, some of them named."""
    line = [" "] * (len(starts) * cells)
    for number in range(0, len(starts), _LABELLED):
        label = f"╵{starts[number]:%H:%M}"
        line[number * cells : number * cells + len(label)] = label
    return Text("".join(line[: len(starts) * cells]), "bright_black", no_wrap=True)


def bar(part: int, whole: int, width: int) -> str:
    """How much of the whole a part is, in eighths of a sign; what is there at all is seen."""
    if part <= 0 or whole <= 0:
        return ""
    eighths = max(1, part * width * len(_PARTS) // whole)
    full, rest = divmod(eighths, len(_PARTS))
    return _PARTS[-1] * full + (_PARTS[rest - 1] if rest else "")


def share(part: int, whole: int) -> str:
    """`52.6 %`; never 0 for what is there, nor 100 for what is not all."""
    percent = 100 * part / whole if whole else 0.0
    if 0 < percent < 0.1:
        return "<0.1 %"
    if 99.9 < percent < 100:
        return ">99.9 %"
    return f"{percent:.1f} %"


def brief_number(number: int) -> str:
    """`999`, `1.2k`, `34k`, `5.6M`: for where there is little room."""
    size = abs(number)
    for unit, power in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if size >= power:
            digits = size * 10 // power
            text = f"{digits // 10}" if digits >= 100 or not digits % 10 else f"{digits / 10:.1f}"
            return f"{'-' if number < 0 else ''}{text}{unit}"
    return str(number)


def signed(number: int, *, is_brief: bool = False) -> str:
    """`+12`, `-3`, and nothing for nothing."""
    if not number:
        return ""
    return f"{'+' if number > 0 else '-'}{brief_number(abs(number)) if is_brief else f'{abs(number):,}'}"


def rate(a_second: float) -> str:
    """`+12/s`, `-0.5/s`, and nothing for nothing."""
    size = abs(a_second)
    if size < 0.05:
        return ""
    return f"{'+' if a_second > 0 else '-'}{f'{size:.1f}' if size < 10 else f'{size:,.0f}'}/s"


def size_text(number: int) -> str:
    """`12.3 MB`."""
    for unit, power in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if number >= power:
            return f"{number / power:.1f} {unit}"
    return f"{number} bytes"
