"""How the main bench is told in a document."""

from __future__ import annotations

import pytest

from bench.harness import Goal, Row
from bench.table import markdown


def _row(figure: float, unit: str, goal: Goal | None = None) -> Row:
    return Row(
        name="put", ours=12_345.6, limit=7.891, against="raw", unit="letters/s", figures=(figure,), figure_unit=unit, goal=goal
    )


@pytest.mark.parametrize(
    ("row", "cells"),
    [
        (_row(61.04, "%"), "61 % |  |"),
        (_row(5.567, "%", Goal("at least", 10)), "5.57 % | ≥ 10 % |"),
        (_row(22_217.1, "letters/s", Goal("at least", 15_000)), "22,200/s | ≥ 15,000/s |"),
        (_row(0.31, "µs", Goal("at most", 10)), "0.31 µs | ≤ 10 µs |"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_figures_have_three_digits_and_their_goal(row: Row, cells: str) -> None:
    assert markdown([row]).splitlines()[2:] == [f"| put | 12,300/s | 7.89/s | raw | {cells}"]
