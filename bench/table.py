"""The rows as a table for people."""

from __future__ import annotations

from collections.abc import Sequence

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
