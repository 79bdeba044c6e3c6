"""How growth is told and drawn."""

from __future__ import annotations

import asyncio
from pathlib import Path
from time import perf_counter
from xml.etree import ElementTree

import pytest

from bench.harness import Goal
from bench.million.chart import chart
from bench.million.growth import Cost, Growth, Stop, Waits, markdown, percentile
from bench.million.machine import Lateness, Machine, merged

_SIZES = (1_000, 10_000, 100_000, 1_000_000)
_KEYS = (
    "page", "page-common", "groups-last-seen", "groups-count", "groups-growth", "tally-status", "tally-source", "tally-category",
    "hourly", "put", "bytes",
)  # fmt: skip


def _growth(engine: str, factor: float) -> Growth:
    def cost(key: str, size: int) -> Cost:
        value = factor * size**0.3
        return Cost(key=key, name=f"the {key}", unit="ms", ours=value, raw=0.6 * value, figure=1 / 0.6, figure_unit="× raw")

    stops = tuple(Stop(size=size, costs=tuple(cost(key, size) for key in _KEYS)) for size in _SIZES)
    waits = Waits(
        meanwhile="a purge",
        captures=200,
        median_ms=1.5,
        most_of_them_ms=9.0,
        longest_ms=61.0,
        stalled=1,
        halt_ms=8.0,
        longest_awake_ms=58.0,
        stalled_awake=1,
        disk_ms=52.0,
        disk_stalls=0,
        longest_own_ms=31.0,
        stalled_own=0,
        pages=50,
        seconds=2.0,
        purged=900,
    )
    return Growth(engine=engine, stops=stops, waits=(waits,))


def test_a_chart_has_a_line_for_ours_and_for_raw_of_each_engine_in_each_panel() -> None:
    drawn = ElementTree.fromstring(chart([_growth("SQLite", 1.0), _growth("PostgreSQL", 1.01)], "a setting, 5 < 6"))
    panels = drawn.findall("{*}g")
    assert len(panels) == 6
    for panel in panels:
        kinds = sorted(path.get("class", "") for path in panel.findall("{*}path"))
        assert kinds == ["e0", "e0 raw", "e1", "e1 raw"]


def test_figures_at_the_ends_of_two_lines_that_meet_do_not_cover_each_other() -> None:
    drawn = ElementTree.fromstring(chart([_growth("SQLite", 1.0), _growth("PostgreSQL", 1.01)], ""))
    for panel in drawn.findall("{*}g"):
        first, second = (
            float(text.get("y", "0")) for text in panel.findall("{*}text") if (text.get("class") or "").startswith("end")
        )
        assert abs(first - second) >= 11.9


def test_what_could_not_be_measured_leaves_a_gap() -> None:
    failed = Cost(key="page", name="the page", unit="ms", ours=None, note="StoreUnavailable")
    growth = Growth(engine="SQLite", stops=(*_growth("SQLite", 1.0).stops[:3], Stop(size=1_000_000, costs=(failed,))))
    assert "| the page | 7.94 (4.77) | 15.8 (9.51) | 31.6 (19.0) | – | ms |" in markdown(growth)
    ElementTree.fromstring(chart([growth], ""))


def test_markdown_has_as_many_cells_in_each_row_as_titles() -> None:
    for part in markdown(_growth("SQLite", 1.0)).strip().split("\n\n"):
        assert len({line.count("|") for line in part.splitlines()}) == 1
    row = (
        "| a purge | 200 | 1.5 ms | 9.0 ms | 61.0 ms | 1 | 8.0 ms | 58.0 ms | 1 | 52.0 ms | 0.0 | 31.0 ms | 0 | 25 | 900 | 450 |"
    )
    assert row in markdown(_growth("SQLite", 1.0)).splitlines()


def test_a_goal_is_about_the_figure() -> None:
    goal = Goal("at most", 2)
    assert Cost(key="k", name="n", unit="ms", ours=9.0, figure=1.9, goal=goal).is_met
    assert Cost(key="k", name="n", unit="ms", ours=1.0, figure=2.1, goal=goal).is_met is False
    assert Cost(key="k", name="n", unit="ms", ours=None, goal=goal).is_met is None


def test_a_percentile_is_one_of_the_values() -> None:
    values = [float(number) for number in range(1, 101)]
    assert (percentile(values, 0.5), percentile(values, 0.99), percentile(values, 1.0)) == (50.0, 99.0, 100.0)
    assert percentile([7.0], 0.99) == 7.0


def test_what_the_machine_itself_took_is_told_of_a_wait() -> None:
    late = Lateness(0.25, [(1.0, 1.2), (1.25, 1.5)])
    assert late.within(0.5, 0.9) == 0
    assert late.within(0.9, 1.1) == pytest.approx(0.1)
    assert late.within(1.1, 1.35) == pytest.approx(0.2)
    assert late.within(0.0, 9.0) == pytest.approx(0.45)


def test_what_several_cores_took_at_the_same_time_counts_once() -> None:
    spans = [(3.0, 3.5), (1.0, 2.0), (1.5, 1.8), (1.9, 2.5)]
    assert merged(spans) == [(1.0, 2.5), (3.0, 3.5)]


def test_the_machine_is_watched_by_processes_of_their_own(tmp_path: Path) -> None:
    async def watched() -> Machine:
        async with Machine(tmp_path) as machine:
            return machine

    began = perf_counter()
    machine = asyncio.run(watched())
    for late in (machine.disk, machine.halts):
        assert 0 < late.longest_ms < 1000 * (perf_counter() - began)
        assert all(began < since < until < perf_counter() for since, until in late.slow)
    assert not list(tmp_path.iterdir())
