"""The rows that have a goal as a bar chart in SVG: how far each gets, its goal being the line."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

from bench.harness import Row

_LABELS, _BARS, _FIGURES, _STEP, _TOP = 300, 360, 220, 30, 56
_MOST = 3.0
"""Bars end here, at so many times the goal."""

_STYLE = """
    text { font: 13px system-ui, sans-serif; fill: #24292f }
    .faint { fill: #6e7781; font-size: 11px }
    .met { fill: #2da44e } .missed { fill: #cf222e }
    line { stroke: #6e7781; stroke-dasharray: 3 3 }
    @media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .faint { fill: #8b949e } }
"""


def chart(rows: Sequence[Row], setting: str) -> str:
    aimed = [row for row in rows if row.goal is not None]
    width, height = _LABELS + _BARS + _FIGURES, _TOP + _STEP * len(aimed) + 34
    goal_x = _LABELS + _BARS / _MOST
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
        "<title>redrive: measured figures in relation to their goals</title>",
        f"<style>{_STYLE}</style>",
        f'<text x="{goal_x}" y="{_TOP - 22}" text-anchor="middle">goal</text>',
        f'<line x1="{goal_x}" x2="{goal_x}" y1="{_TOP - 14}" y2="{_TOP + _STEP * len(aimed)}"/>',
    ]
    for number, row in enumerate(aimed):
        parts += _bar(row, _TOP + _STEP * number)
    parts.append(f'<text class="faint" x="8" y="{height - 10}">{escape(setting)}; longer is better, both ways</text>')
    return "\n".join([*parts, "</svg>", ""])


def _bar(row: Row, y: float) -> list[str]:
    assert row.goal is not None
    reach = min(row.goal.reach(row.figure), _MOST)
    kind = "met" if row.is_met else "missed"
    figure = f"{row.figure_text} (goal {row.goal_text})"
    return [
        f'<text x="{_LABELS - 10}" y="{y + 15}" text-anchor="end">{escape(row.name)}</text>',
        f'<rect class="{kind}" x="{_LABELS}" y="{y + 3}" width="{_BARS * reach / _MOST:.0f}" height="{_STEP - 12}" rx="3"/>',
        f'<text x="{_LABELS + _BARS + 10}" y="{y + 15}">{escape(figure)}</text>',
    ]
