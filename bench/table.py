"""The rows as a table for people, on a terminal or in a document."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, log10

from rich.table import Table

from bench.harness import Row


def table(rows: Sequence[Row], setting: str) -> Table:
    drawn = Table(caption=f"{setting}. Medians of alternating rounds; spread: the lowest and the highest round.")
    for title in ("what", "ours", "limit"):
        drawn.add_column(title, justify="left" if title == "what" else "right")
    drawn.add_column("measured against")
    for title in ("figure", "spread", "goal"):
        drawn.add_column(title, justify="right")
    drawn.add_column("")
    for row in rows:
        low, high = row.spread
        drawn.add_row(
            f"{row.name} ({row.note})" if row.note else row.name,
            f"{row.ours:,.0f} {row.unit}",
            f"{row.limit:,.0f} {row.unit}",
            row.against,
            row.figure_text,
            f"{low:.0f}–{high:.0f}",
            row.goal_text,
            {True: "[green]✓[/]", False: "[red]✗[/]", None: ""}[row.is_met],
        )
    return drawn


def markdown(rows: Sequence[Row]) -> str:
    """The same, to be pasted into a document."""
    lines = ["| what | ours | limit | measured against | figure | goal |", "|---|---|---|---|---|---|"]
    for row in rows:
        sides = " | ".join(_told(side, row.unit) for side in (row.ours, row.limit))
        goal = (
            "" if row.goal is None else f"{'≥' if row.goal.way == 'at least' else '≤'} {_told(row.goal.value, row.figure_unit)}"
        )
        lines.append(f"| {row.name} | {sides} | {row.against} | {_told(row.figure, row.figure_unit)} | {goal} |")
    return "\n".join([*lines, ""])


def _told(number: float, unit: str) -> str:
    """Three digits, for no more can be told again."""
    places = 2 - floor(log10(max(abs(number), 1)))
    text = f"{round(number, places):,.{max(places, 0)}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return f"{text}/s" if unit in ("letters/s", "pages/s") else f"{text} {unit}"
