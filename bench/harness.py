"""Measuring two things side by side: A B A B …, so that the machine's noise hits both alike."""

from __future__ import annotations

import gc
import os
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import asdict

OUT = Path(__file__).parent / "out"
"""On the disk that the project lies on, not in memory: durability must be real. Ignored by git."""

Measure = Callable[[], float]
"""Runs once, on fresh ground, and answers with a rate or a time."""


class Goal(Struct, frozen=True):
    """What a figure must reach."""

    way: Literal["at least", "at most"]
    value: float

    def is_met(self, figure: float) -> bool:
        return figure >= self.value if self.way == "at least" else figure <= self.value

    def reach(self, figure: float) -> float:
        """How far the figure gets, 1.0 being the goal itself; more is better either way."""
        return figure / self.value if self.way == "at least" else self.value / max(figure, 1e-9)


class Row(Struct, frozen=True, kw_only=True):
    """One line of the table. `figures` holds one figure a round; the goal speaks of their median."""

    name: str
    ours: float
    limit: float
    """What ours is compared with, measured in the same rounds."""
    against: str
    """What that is."""
    unit: str
    """Of `ours` and `limit`."""
    figures: tuple[float, ...]
    figure_unit: str
    goal: Goal | None = None
    note: str = ""

    @property
    def figure(self) -> float:
        return statistics.median(self.figures)

    @property
    def figure_text(self) -> str:
        return f"{self.figure:.1f} {self.figure_unit}"

    @property
    def spread(self) -> tuple[float, float]:
        """The lowest and the highest round."""
        return min(self.figures), max(self.figures)

    @property
    def is_met(self) -> bool | None:
        return self.goal.is_met(self.figure) if self.goal else None

    @property
    def goal_text(self) -> str:
        if self.goal is None:
            return ""
        return f"{'≥' if self.goal.way == 'at least' else '≤'} {self.goal.value:.0f} {self.figure_unit}"

    def report(self) -> dict[str, Any]:
        """The row as plain data, with what follows from it."""
        return {**asdict(self), "figure": self.figure, "spread": self.spread, "is_met": self.is_met}


class Effort(Struct, frozen=True, kw_only=True):
    """How long to measure, and where."""

    rounds: int = 9
    scale: float = 1.0
    place: Path = OUT
    """Where databases lie."""

    def of(self, count: int, *, step: int = 1) -> int:
        """That many, or fewer when it has to be quick: a multiple of `step`."""
        return max(int(count * self.scale) // step, 1) * step


def alternate(ours: Measure, limit: Measure, rounds: int) -> list[tuple[float, float]]:
    """Both, once to warm up and then round by round. The order changes from round to round, so that neither always has
    the other's dirty pages to flush."""
    ours(), limit()
    pairs = []
    for turn in range(rounds):
        if turn % 2 == 0:
            first, second = _settled(ours), _settled(limit)
        else:
            second, first = _settled(limit), _settled(ours)
        pairs.append((first, second))
    return pairs


def percent(ours: float, limit: float) -> float:
    """Ours in per cent of the limit."""
    return 100 * ours / limit


def excess(ours: float, limit: float) -> float:
    """How much more ours takes than the bare thing."""
    return ours - limit


def alone(ours: float, limit: float) -> float:
    """Ours as it is; the limit is only told beside it."""
    return ours


def compared(
    name: str,
    ours: Measure,
    limit: Measure,
    effort: Effort,
    *,
    against: str,
    goal: Goal | None = None,
    unit: str = "letters/s",
    figure: Callable[[float, float], float] = percent,
) -> Row:
    """Ours beside its limit; the figure is taken round by round."""
    pairs = alternate(ours, limit, effort.rounds)
    return Row(
        name=name,
        ours=statistics.median(first for first, _ in pairs),
        limit=statistics.median(second for _, second in pairs),
        against=against,
        unit=unit,
        figures=tuple(figure(first, second) for first, second in pairs),
        figure_unit="%" if figure is percent else unit,
        goal=goal,
    )


@contextmanager
def folder(effort: Effort) -> Iterator[Path]:
    """A place for databases that is gone afterwards."""
    effort.place.mkdir(exist_ok=True)
    with TemporaryDirectory(dir=effort.place, prefix="db-") as name:
        yield Path(name)


def fsync_milliseconds(effort: Effort) -> float:
    """What the disk takes to make a page durable, by the median: without it no durable figure can be understood."""
    times = []
    with folder(effort) as place, (place / "page").open("wb", buffering=0) as file:
        for _ in range(51):
            file.write(bytes(4096))
            with Watch() as watch:
                os.fsync(file.fileno())
            times.append(1000 * watch.seconds)
    return statistics.median(times)


class Watch:
    """`with Watch() as watch: …` then `watch.rate(count)`."""

    seconds = 0.0

    def __enter__(self) -> Watch:
        self._started = perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = perf_counter() - self._started

    def rate(self, count: int) -> float:
        return count / self.seconds


def _settled(measure: Measure) -> float:
    gc.collect()
    return measure()
