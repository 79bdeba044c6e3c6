"""Groups for people: a line each, or one with its story."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from rich import box
from rich.console import Group as Together
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from redrive.model.hours import hour_of, start_of
from redrive.model.letter import Letter
from redrive.model.query import Group
from redrive.model.status import OPEN, Status
from redrive.model.triage import Note, Standing, Triage
from redrive.serve.cli.chart import axis, brief_number, joined, signed, sparkline
from redrive.serve.cli.group_acts import told
from redrive.serve.cli.groups import short_names
from redrive.serve.cli.paper import STYLE, ago, error_text, heading, legible, letters_table, one_line

_WIDE = 140
_OTHERS = 88
"""What columns of a known width take; statuses and errors share the rest."""
_SOURCES = 10


STANDING = {
    Standing.OPEN: "",
    Standing.ACKNOWLEDGED: "cyan",
    Standing.ASSIGNED: "blue",
    Standing.SNOOZED: "bright_black",
    Standing.RESOLVED: "green",
    Standing.REGRESSED: "bold red",
}


def groups_table(groups: Sequence[Group], standings: Sequence[Standing], *, width: int) -> Table:
    """A line a group; a narrow one leaves out what `redrive groups show` tells, for the error is what people want to see."""
    is_wide = width >= _WIDE
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=not is_wide)
    table.add_column("group", style="bold", no_wrap=True, max_width=24, overflow="ellipsis")
    has_said = any(standing is not Standing.OPEN for standing in standings)
    if has_said:
        table.add_column("state", no_wrap=True)
    table.add_column("letters", justify="right", no_wrap=True)
    if is_wide:
        table.add_column("by status", no_wrap=True, max_width=(width - _OTHERS) // 2, overflow="ellipsis")
    else:
        table.add_column("open", justify="right", no_wrap=True)
    table.add_column("24 hours", no_wrap=True)
    table.add_column("growth", justify="right", no_wrap=True)
    if is_wide:
        table.add_column("first seen", no_wrap=True)
    table.add_column("last seen" if is_wide else "seen", no_wrap=True)
    # The only column that may wrap, so it alone gives way on a narrow terminal; its texts themselves do not wrap.
    table.add_column("failed with")
    names = short_names(group.fingerprint for group in groups)
    for group, standing, name in zip(groups, standings, names, strict=True):
        cells: list[RenderableType] = [Text(one_line(name))]
        cells += [Text(standing.value, STANDING[standing])] if has_said else []
        if is_wide:
            cells += [f"{group.count:,}", _statuses(group), sparkline(group.hours, style="cyan"), _growth(group)]
            cells += [ago(group.first_seen), ago(group.last_seen)]
        else:
            cells += [brief_number(group.count), Text(brief_number(_open(group)), STYLE[Status.PENDING])]
            cells += [sparkline(joined(group.hours, 2), style="cyan"), _growth(group, is_brief=True), ago(group.last_seen)]
        table.add_row(*cells, error_text(group.error, group.message))
    return table


def group_story(
    group: Group,
    sources: Mapping[str, int],
    letters: Iterable[Letter],
    standing: Standing,
    triage: Triage | None,
    *,
    width: int,
) -> RenderableType:
    """Everything about one group, and its latest letters."""
    latest = list(letters)
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bright_black", no_wrap=True)
    facts.add_column()
    reason = latest[0].failure.fingerprint_reason if latest else ""
    rows: list[tuple[str, Text | str]] = [
        ("failed with", f"{group.error} ({group.category})"),
        ("", group.message),
        ("grouped", reason),
        ("state", Text(legible(told(standing, triage)), STANDING[standing])),
        ("letters", Text(f"{group.count:,}: ").append_text(_statuses(group))),
        ("growth", _growth(group)),
        ("first seen", f"{group.first_seen:%Y-%m-%d %H:%M:%S} UTC ({ago(group.first_seen)})"),
        ("last seen", f"{group.last_seen:%Y-%m-%d %H:%M:%S} UTC ({ago(group.last_seen)})"),
        ("sources", _sources(sources)),
    ]
    for name, value in rows:
        if value:
            facts.add_row(name, value if isinstance(value, Text) else Text(legible(value)))
    parts: list[RenderableType] = [Text(one_line(group.fingerprint), "bold"), _inset(facts), *_course(group, width)]
    if triage is not None and triage.notes:
        parts += [heading("notes"), *(_inset(_note(note)) for note in triage.notes)]
    if latest:
        parts += [heading("latest letters"), letters_table(latest, is_narrow=width < 100)]
    return Together(*parts)


def _note(note: Note) -> Text:
    return Text(f"{ago(note.at)}, {legible(note.by)}: ", "bright_black").append(legible(note.text), "default")


def _course(group: Group, width: int) -> list[RenderableType]:
    cells = 2 if width >= 80 else 1
    line = sparkline(group.hours, cells=cells, style="cyan")
    if highest := max(group.hours, default=0):
        line.append(f"  █ {highest:,} an hour", "bright_black")
    last = hour_of(datetime.now(UTC))
    starts = [start_of(hour) for hour in range(last - len(group.hours) + 1, last + 1)]
    return [heading("last 24 hours"), _inset(line), _inset(axis(starts, cells=cells).append("  UTC"))]


def _open(group: Group) -> int:
    """Letters that still wait for somebody."""
    return sum(group.statuses.get(status, 0) for status in (*OPEN, Status.RETRYING))


def _statuses(group: Group) -> Text:
    counts = [(status, count) for status in Status if (count := group.statuses.get(status, 0))]
    return Text(", ").join(Text(f"{count:,} {status}", STYLE[status]) for status, count in counts)


def _growth(group: Group, *, is_brief: bool = False) -> Text:
    return Text(signed(group.growth, is_brief=is_brief), "red" if group.growth > 0 else "green")


def _sources(sources: Mapping[str, int]) -> str:
    named = [f"{one_line(source)} {count:,}" for source, count in list(sources.items())[:_SOURCES]]
    return ", ".join(named) + (f" and {len(sources) - _SOURCES:,} more" if len(sources) > _SOURCES else "")


def _inset(part: RenderableType) -> Padding:
    return Padding(part, (0, 0, 0, 2), expand=False)
