"""How costs grow with the number of letters: the figures at each size as a table and in markdown."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from msgspec import Struct
from rich.table import Table

from bench.harness import Goal


class Cost(Struct, frozen=True, kw_only=True):
    """What one thing takes at one size. Without `ours` it could not be measured, and the note says why."""

    key: str
    name: str
    unit: str
    """Of `ours` and `raw`."""
    ours: float | None
    raw: float | None = None
    """The same with bare statements, measured in the same rounds."""
    spread: tuple[float, float] | None = None
    """Ours, in the lowest and the highest round."""
    figure: float | None = None
    """What the goal speaks of."""
    figure_unit: str = ""
    goal: Goal | None = None
    note: str = ""

    @property
    def is_met(self) -> bool | None:
        return None if self.goal is None or self.figure is None else self.goal.is_met(self.figure)

    @property
    def figure_text(self) -> str:
        return "" if self.figure is None else f"{told(self.figure)} {self.figure_unit}"

    @property
    def goal_text(self) -> str:
        if self.goal is None:
            return ""
        return f"{'≥' if self.goal.way == 'at least' else '≤'} {self.goal.value:g} {self.figure_unit}"


class Stop(Struct, frozen=True, kw_only=True):
    """The costs at one size."""

    size: int
    costs: tuple[Cost, ...]

    def cost(self, key: str) -> Cost | None:
        return next((cost for cost in self.costs if cost.key == key), None)


class Waits(Struct, frozen=True, kw_only=True):
    """How long single captures took, one every few milliseconds, while something else went on."""

    meanwhile: str
    captures: int
    median_ms: float
    most_of_them_ms: float
    """The 99th percentile."""
    longest_ms: float
    stalled: int
    """Captures that took longer than they may."""
    halt_ms: float
    """How long a core stood still at most, whoever wanted it."""
    longest_awake_ms: float
    """The longest capture but for the time in which a core did."""
    stalled_awake: int
    disk_ms: float
    """How late a bare fsync of another file was done at most, by a process of its own at the same time."""
    disk_stalls: int
    """How often it was later than a capture may be."""
    longest_own_ms: float
    """The longest capture but for the time in which that fsync was late too."""
    stalled_own: int
    pages: int
    """Pages that were searched meanwhile."""
    seconds: float
    purged: int = 0
    note: str = ""

    @property
    def purged_a_second(self) -> float:
        return self.purged / self.seconds


class Space(Struct, frozen=True, kw_only=True):
    """Bytes that the store takes: before a purge, after it, and after the space was given back."""

    before: int
    purged: int
    tidied: int
    left: int
    """What could still be given back: nothing, unless it took too long."""
    seconds: float
    """How long giving it back took."""

    @property
    def text(self) -> str:
        before, purged, tidied, left = (f"{size / 1e6:,.1f} MB" for size in (self.before, self.purged, self.tidied, self.left))
        return f"{before} before the purges, {purged} after them, {tidied} after {self.seconds:.0f} s of tidy, {left} left to give back"


class Growth(Struct, frozen=True, kw_only=True):
    """One engine's costs, size by size; at the last size also captures beside a purge, and the space before and after it."""

    engine: str
    stops: tuple[Stop, ...]
    waits: tuple[Waits, ...] = ()
    space: Space | None = None


_WAIT_TITLES = (
    "captures",
    "median",
    "99 %",
    "longest",
    "over 50 ms",
    "the machine's longest halt",
    "longest but for halts",
    "over 50 ms",
    "the disk's longest",
    "over 50 ms a minute",
    "longest but for the disk",
    "over 50 ms",
    "pages/s",
    "purged",
    "purged/s",
)


def percentile(sorted_values: Sequence[float], share: float) -> float:
    """The value that this share of them does not exceed."""
    return sorted_values[max(0, math.ceil(share * len(sorted_values)) - 1)]


def table(growth: Growth, setting: str) -> Table:
    """The costs for people: ours and, behind a stroke, the bare statements."""
    drawn = Table(title=f"{growth.engine}: ours / raw", caption=setting, title_justify="left")
    drawn.add_column("what", max_width=44)
    for stop in growth.stops:
        drawn.add_column(f"{stop.size:,}", justify="right", no_wrap=True)
    for title in ("unit", "at the end", "goal", ""):
        drawn.add_column(title, justify="left" if title == "unit" else "right", no_wrap=True)
    for row in _rows(growth):
        last = row[-1]
        sign = {True: "[green]✓[/]", False: "[red]✗[/]", None: ""}[last.is_met]
        cells = [f"{_number(cost.ours)} / {_number(cost.raw)}" if cost.raw is not None else _number(cost.ours) for cost in row]
        drawn.add_row(last.name, *cells, last.unit, last.figure_text, last.goal_text, sign)
    return drawn


def waits_table(growth: Growth) -> Table:
    """The captures beside a purge: a column for each thing that went on meanwhile, for there are fewer of these."""
    drawn = Table(title=f"{growth.engine}: a capture every 5 ms", title_justify="left")
    drawn.add_column("beside")
    cells = [_wait_cells(waits) for waits in growth.waits]
    for meanwhile, *_ in cells:
        drawn.add_column(meanwhile, justify="right", max_width=24)
    for place, title in enumerate(_WAIT_TITLES, 1):
        drawn.add_row(title, *(column[place] for column in cells))
    return drawn


def markdown(growth: Growth) -> str:
    """The same, to be pasted into a document."""
    sizes = [f"{stop.size:,}" for stop in growth.stops]
    lines: list[str] = []
    if sizes:
        lines += [f"| {growth.engine} | {' | '.join(sizes)} | unit | at {sizes[-1]} | goal |", "|---" * (len(sizes) + 4) + "|"]
    for row in _rows(growth):
        last = row[-1]
        cells = [f"{_number(cost.ours)} ({_number(cost.raw)})" if cost.raw is not None else _number(cost.ours) for cost in row]
        lines.append(f"| {last.name} | {' | '.join(cells)} | {last.unit} | {last.figure_text} | {last.goal_text} |")
    if growth.waits:
        titles = ("a capture every 5 ms, beside", *_WAIT_TITLES)
        lines += ["", f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
        lines += [f"| {' | '.join(_wait_cells(waits))} |" for waits in growth.waits]
    if growth.space is not None:
        lines += ["", f"Space: {growth.space.text}."]
    return "\n".join([*lines, ""])


def _rows(growth: Growth) -> Iterator[list[Cost]]:
    """A cost at all sizes."""
    for one in growth.stops[-1].costs if growth.stops else ():
        missing = Cost(key=one.key, name=one.name, unit=one.unit, ours=None)
        yield [stop.cost(one.key) or missing for stop in growth.stops]


def _wait_cells(waits: Waits) -> list[str]:
    return [
        waits.meanwhile + (f" ({waits.note})" if waits.note else ""),
        f"{waits.captures:,}",
        f"{waits.median_ms:.1f} ms",
        f"{waits.most_of_them_ms:.1f} ms",
        f"{waits.longest_ms:.1f} ms",
        f"{waits.stalled:,}",
        f"{waits.halt_ms:.1f} ms",
        f"{waits.longest_awake_ms:.1f} ms",
        f"{waits.stalled_awake:,}",
        f"{waits.disk_ms:.1f} ms",
        f"{60 * waits.disk_stalls / waits.seconds:.1f}",
        f"{waits.longest_own_ms:.1f} ms",
        f"{waits.stalled_own:,}",
        f"{waits.pages / waits.seconds:,.0f}" if waits.pages else "",
        f"{waits.purged:,}" if waits.purged else "",
        f"{waits.purged_a_second:,.0f}" if waits.purged else "",
    ]


def _number(value: float | None) -> str:
    return "–" if value is None else told(value)


def told(value: float) -> str:
    """Three digits, or all that stand before the point."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}" if abs(value) >= 0.01 else f"{value:.3f}"
