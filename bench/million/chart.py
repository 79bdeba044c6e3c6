"""How costs grow with the number of letters, as small charts in SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from xml.sax.saxutils import escape

from msgspec import Struct

from bench.million.growth import Growth, told


class _Panel(Struct, frozen=True):
    """A chart of one cost: of several keys, the highest."""

    title: str
    unit: str
    keys: tuple[str, ...]
    raw: str
    """What the dashed line is."""
    goal: float | None = None
    goal_text: str = ""
    is_percent: bool = False
    """Drawn in per cent of the first size."""
    is_log: bool = True


_PANELS = (
    _Panel("a page by four fields", "ms", ("page",), "raw SQL", goal_text="goal: at most twice the raw SQL"),
    _Panel("the same, and a common word", "ms", ("page-common",), "full text of the engine"),
    _Panel(
        "100 groups, the slowest of three orders",
        "ms",
        ("groups-last-seen", "groups-count", "groups-growth"),
        "GROUP BY over the letters",
        goal=5,
    ),
    _Panel(
        "statistics, the slowest of four",
        "ms",
        ("tally-status", "tally-source", "tally-category", "hourly"),
        "GROUP BY over the letters",
        goal=5,
    ),
    _Panel("letters put a second", "% of the rate at first", ("put",), "raw inserts", goal=70, is_percent=True, is_log=False),
    _Panel("bytes a letter, indexes included", "bytes", ("bytes",), "the letter alone", is_log=False),
)

_COLUMNS, _WIDTH, _HEIGHT = 3, 310, 232
_LEFT, _RIGHT, _UPPER, _LOWER = 46, 54, 44, 26
"""Room around the lines of a panel."""
_TOP, _BOTTOM = 46, 30
_LINE_HEIGHT = 12

_STYLE = """
    text { font: 12px system-ui, sans-serif; fill: #24292f }
    .title { font-weight: 600 } .faint { fill: #6e7781; font-size: 10px }
    .grid { stroke: #6e7781; stroke-opacity: .25 } .goal { stroke: #cf222e; stroke-dasharray: 1 3; stroke-width: 1.5 }
    .goal-text { fill: #cf222e; font-size: 10px }
    path { fill: none; stroke-width: 2; stroke-linejoin: round } .raw { stroke-dasharray: 5 4; stroke-width: 1.5; stroke-opacity: .8 }
    .e0 { stroke: #0969da } .e1 { stroke: #bc6c00 } .d0 { fill: #0969da } .d1 { fill: #bc6c00 }
    .end { font-size: 11px } .key { stroke: #24292f }
    @media (prefers-color-scheme: dark) {
        text { fill: #e6edf3 } .faint { fill: #8b949e } .key { stroke: #e6edf3 }
        .e0 { stroke: #58a6ff } .e1 { stroke: #e3a04f } .d0 { fill: #58a6ff } .d1 { fill: #e3a04f }
        .goal { stroke: #ff7b72 } .goal-text { fill: #ff7b72 }
    }
"""


def chart(growths: Sequence[Growth], setting: str) -> str:
    """A panel a cost, a colour an engine: ours drawn through, bare statements dashed, the goal dotted."""
    rows = math.ceil(len(_PANELS) / _COLUMNS)
    width, height = _COLUMNS * _WIDTH, _TOP + rows * _HEIGHT + _BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
        "<title>redrive: what things cost as the number of letters grows</title>",
        f"<style>{_STYLE}</style>",
        *_legend(growths),
    ]
    for number, panel in enumerate(_PANELS):
        x, y = number % _COLUMNS * _WIDTH, _TOP + number // _COLUMNS * _HEIGHT
        parts += [f'<g transform="translate({x} {y})">', *_drawn(panel, growths), "</g>"]
    parts.append(f'<text class="faint" x="8" y="{height - 10}">{escape(setting)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _legend(growths: Sequence[Growth]) -> Iterator[str]:
    x = 12
    keys = [(growth.engine, f"e{number}", "") for number, growth in enumerate(growths)]
    for name, kind, line in (*keys, ("redrive", "key", ""), ("bare statements", "key", "raw")):
        yield f'<path class="{kind} {line}" d="M{x} 20h26"/><text x="{x + 32}" y="24">{escape(name)}</text>'
        x += 62 + 7 * len(name)
    yield f'<line class="goal" x1="{x}" x2="{x + 26}" y1="20" y2="20"/><text x="{x + 32}" y="24">goal</text>'


class _Line(Struct, frozen=True):
    number: int
    """Of the engine."""
    is_raw: bool
    points: list[tuple[int, float]]


def _drawn(panel: _Panel, growths: Sequence[Growth]) -> Iterator[str]:
    lines = [line for number, growth in enumerate(growths) for line in _lines(panel, number, growth)]
    yield f'<text class="title" x="{_LEFT - 34}" y="14">{escape(panel.title)}</text>'
    legend = f"{panel.unit}; dashed: {panel.raw}" + (f"; {panel.goal_text}" if panel.goal_text else "")
    yield f'<text class="faint" x="{_LEFT - 34}" y="28">{escape(legend)}</text>'
    if not lines:
        return
    sizes = sorted({size for growth in growths for size in (stop.size for stop in growth.stops)})
    x_of = _scale(sizes[0], sizes[-1], _LEFT, _WIDTH - _RIGHT, is_log=True)
    values = [value for line in lines for _, value in line.points] + ([panel.goal] if panel.goal is not None else [])
    low, high = _ends(values) if panel.is_log else (0, max(values) * 1.08)
    y_of = _scale(low, high, _HEIGHT - _LOWER, _UPPER, is_log=panel.is_log)
    for value in _ticks(low, high, is_log=panel.is_log):
        y = y_of(value)
        yield f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text class="faint" x="{_LEFT - 5}" y="{y + 3.5:.1f}" text-anchor="end">{_short(value)}</text>'
    for size in sizes:
        yield f'<text class="faint" x="{x_of(size):.1f}" y="{_HEIGHT - _LOWER + 15}" text-anchor="middle">{_short(size)}</text>'
    if panel.goal is not None:
        y = y_of(panel.goal)
        yield f'<line class="goal" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
    for line in lines:
        points = [(x_of(size), y_of(value)) for size, value in line.points]
        course = "".join(f"{'L' if number else 'M'}{x:.1f} {y:.1f}" for number, (x, y) in enumerate(points))
        yield f'<path class="e{line.number}{" raw" if line.is_raw else ""}" d="{course}"/>'
        if not line.is_raw:
            yield from (f'<circle class="d{line.number}" cx="{x:.1f}" cy="{y:.1f}" r="2.5"/>' for x, y in points)
    ours = [line for line in lines if not line.is_raw]
    places = _apart([y_of(line.points[-1][1]) for line in ours])
    for line, y in zip(ours, places, strict=True):
        value = line.points[-1][1]
        text = f"{value:.0f} %" if panel.is_percent else told(value)
        yield f'<text class="end d{line.number}" x="{_WIDTH - _RIGHT + 6}" y="{y + 4:.1f}">{text}</text>'


def _lines(panel: _Panel, number: int, growth: Growth) -> Iterator[_Line]:
    for is_raw in (True, False):
        points = []
        for stop in growth.stops:
            costs = [cost for key in panel.keys if (cost := stop.cost(key)) is not None]
            values = [value for cost in costs if (value := cost.raw if is_raw else cost.ours) is not None]
            if values:
                points.append((stop.size, max(values)))
        if points and panel.is_percent:
            points = [(size, 100 * value / points[0][1]) for size, value in points]
        if points:
            yield _Line(number, is_raw, points)


def _scale(low: float, high: float, start: float, end: float, *, is_log: bool) -> Callable[[float], float]:
    """From a value to its place."""
    change = math.log10 if is_log else float
    first, last = change(low), change(high)
    return lambda value: start + (end - start) * ((change(value) - first) / (last - first) if last > first else 0.5)


def _ends(values: Sequence[float]) -> tuple[float, float]:
    """The powers of ten that all values lie between."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return 10.0**low, 10.0 ** max(high, low + 1)


def _ticks(low: float, high: float, *, is_log: bool) -> list[float]:
    if is_log:
        return [10.0**power for power in range(round(math.log10(low)), round(math.log10(high)) + 1)]
    step = 10.0 ** math.floor(math.log10(high))
    step = next(one for one in (step / 5, step / 2, step, 2 * step) if high / one <= 6)
    return [step * number for number in range(math.floor(high / step) + 1)]


def _short(value: float) -> str:
    """`1k`, `1M`, `0.1`."""
    for unit, letter in ((1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{value / unit:g}{letter}"
    return f"{value:g}"


def _apart(places: Sequence[float]) -> list[float]:
    """The places, moved so that no two texts there touch."""
    order = sorted(range(len(places)), key=places.__getitem__)
    moved = list(places)
    for above, below in pairwise(order):
        moved[below] = max(moved[below], moved[above] + _LINE_HEIGHT)
    # Whatever had to move down is moved back up by half, so that each stays near its line.
    shift = sum(now - before for now, before in zip(moved, places, strict=True)) / max(1, len(places))
    return [place - shift for place in moved]
