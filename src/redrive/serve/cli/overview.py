"""The page of `redrive stats`: how the letters stand, for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from redrive.engine.statistics import Rates, Statistics
from redrive.model import query
from redrive.model.counted import counted
from redrive.model.status import OPEN, Status
from redrive.serve.cli.chart import axis, bar, brief_number, rate, share, signed, size_text, sparkline
from redrive.serve.cli.groups import short_names
from redrive.serve.cli.paper import STYLE, error_text, heading, one_line
from redrive.serve.cli.stats import Look

_SIDE_BY_SIDE = 140
"""From this width on there are two columns."""
_WIDEST = 200
_PLAIN = 100
"""Elsewhere than on a terminal, where lines are read one by one."""
_MOST_ROWS = 10
_IS_GOOD = dict.fromkeys(OPEN, False) | {Status.COMPLETED: True, Status.REDRIVEN: True}
"""Is it good when there are more of them? Of others nobody can tell."""
_SPACE = 1_000_000
"""Bytes to be given back that are worth a word."""


def page(look: Look, *, width: int = _PLAIN, rows: int = _MOST_ROWS, parts: int = 5) -> RenderableType:
    """The page at this width, with so many rows a part; of fewer parts the last ones are left out."""
    statistics, rates = look.statistics, look.rates
    lines: list[RenderableType] = [_title(look)]
    if look.trouble:
        trouble = one_line(look.trouble)
        end = "" if trouble.endswith(("?", ".")) else "."
        lines.append(Text(f"{trouble}{end} These numbers are of {statistics.at:%H:%M:%S} UTC.", "red"))
    if not statistics.total and not (rates and rates.total):
        return Group(*lines)
    is_wide = width >= _SIDE_BY_SIDE
    column = (min(width, _WIDEST) - 4) // 2 if is_wide else min(width, _SIDE_BY_SIDE - 1)
    shown: list[RenderableType] = [_statuses(statistics, rates, column), _hours(statistics, column)]
    if parts > 2:
        shown.append(_sources(statistics, rates, column, rows))
    if parts > 4:
        shown.append(_categories(statistics, column, rows))
    lines += _paired(shown, column) if is_wide else shown
    if parts > 3 and look.growing:
        lines.append(_growing(look.growing[:rows]))
    lines += _put_off(statistics)
    return Group(*lines)


def fitting(look: Look, paper: Console, height: int) -> RenderableType:
    """The page with as much on it as there is room for."""
    smaller: RenderableType = ""
    for parts in (5, 4, 3, 2):
        for rows in (_MOST_ROWS, 7, 5, 3):
            smaller = page(look, width=paper.width, rows=rows, parts=parts)
            if len(paper.render_lines(smaller, pad=False)) <= height:
                return smaller
    return smaller


def _title(look: Look) -> Text:
    statistics = look.statistics
    if not statistics.total and look.rates is None:
        return Text(f"No letters in {one_line(look.store)}.")
    title = Text.assemble((counted(statistics.total, "letter"), "bold"), f" in {one_line(look.store)}")
    if statistics.namespace != "default":
        title.append(f", namespace {one_line(statistics.namespace)}")
    if look.rates is not None:
        title.append("  ").append_text(_rate(look.rates.total, is_good=False))
    return title.append(f"  {statistics.at:%Y-%m-%d %H:%M:%S} UTC", "bright_black")


def _statuses(statistics: Statistics, rates: Rates | None, width: int) -> RenderableType:
    table = _grid(statistics, width)
    changes = rates.statuses if rates else {}
    highest = max(statistics.statuses.values(), default=0)
    for status in Status:
        count = statistics.statuses.get(status, 0)
        if not count and not changes.get(status):
            continue
        table.add_row(
            Text(status.value, STYLE[status]),
            f"{count:,}",
            Text(bar(count, highest, _bar_width(width)), STYLE[status], no_wrap=True),
            Text(share(count, statistics.total), "bright_black"),
            _rate(changes.get(status, 0.0), is_good=_IS_GOOD.get(status)),
        )
    return Group(heading("status"), _inset(table))


def _sources(statistics: Statistics, rates: Rates | None, width: int, rows: int) -> RenderableType:
    """Each source's bar is made of its statuses."""
    table = _grid(statistics, width)
    changes = rates.sources if rates else {}
    totals = {source: sum(counts.values()) for source, counts in statistics.sources.items()}
    highest = max(totals.values(), default=0)
    for source, total in list(totals.items())[:rows]:
        line = bar(total, highest, _bar_width(width))
        table.add_row(
            _name(source, width),
            f"{total:,}",
            _striped(line, statistics.sources[source], total),
            Text(share(total, statistics.total), "bright_black"),
            _rate(changes.get(source, 0.0), is_good=False),
        )
    return Group(heading("sources"), _inset(table), *_more(len(totals) - rows, "source"))


def _categories(statistics: Statistics, width: int, rows: int) -> RenderableType:
    table = _grid(statistics, width)
    highest = max(statistics.categories.values(), default=0)
    for category, count in list(statistics.categories.items())[:rows]:
        line = Text(bar(count, highest, _bar_width(width)), "cyan", no_wrap=True)
        table.add_row(_name(category, width), f"{count:,}", line, Text(share(count, statistics.total), "bright_black"), "")
    return Group(heading("categories"), _inset(table), *_more(len(statistics.categories) - rows, "category"))


def _hours(statistics: Statistics, width: int) -> RenderableType:
    counts = [hour.count for hour in statistics.hours]
    cells = 2 if width >= 70 else 1
    line = sparkline(counts, cells=cells, style="cyan")
    if highest := max(counts):
        line.append(f"  █ {highest:,} an hour", "bright_black")
    under = axis([hour.start for hour in statistics.hours], cells=cells).append("  UTC")
    said = Text(f"{statistics.this_hour:,} this hour, {statistics.hour_before:,} in the hour before")
    return Group(heading("last 24 hours"), *map(_inset, (line, under, said)))


def _growing(groups: Iterable[query.Group]) -> RenderableType:
    groups = list(groups)
    table = Table.grid(padding=(0, 2))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column()
    names = short_names(group.fingerprint for group in groups)
    for group, name in zip(groups, names, strict=True):
        growth = Text(signed(group.growth, is_brief=True), "red")
        table.add_row(growth, sparkline(group.hours, style="cyan"), Text(name, "bold"), error_text(group.error, group.message))
    title = heading("growing now").append("  against the two hours before", "not bold bright_black")
    return Group(title, _inset(table))


def _put_off(statistics: Statistics) -> list[RenderableType]:
    backlog, said = statistics.backlog, []
    if backlog.texts:
        said.append(f"{counted(backlog.texts, 'letter')} to be indexed for search")
    if backlog.space >= _SPACE:
        said.append(f"{size_text(backlog.space)} to be given back")
    return [Text(f"\nPut off: {', '.join(said)}; `redrive tidy` does it.", "yellow")] if said else []


def _grid(statistics: Statistics, width: int) -> Table:
    """Name, count, bar, share and rate; the bars of all parts stand under each other."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, min_width=min(_name_width(width), max(map(len, [*statistics.sources, *Status]), default=0)))
    table.add_column(no_wrap=True, justify="right", min_width=len(f"{statistics.total:,}"))
    table.add_column(no_wrap=True, min_width=_bar_width(width))
    table.add_column(no_wrap=True, justify="right", min_width=len("100.0 %"))
    table.add_column(no_wrap=True, justify="right")
    return table


def _paired(parts: list[RenderableType], column: int) -> list[RenderableType]:
    """The parts in two columns, two and two in a row."""
    pairs = []
    for at in range(0, len(parts), 2):
        table = Table.grid(padding=(0, 4, 0, 0))
        table.add_column(width=column)
        table.add_column(width=column)
        table.add_row(*parts[at : at + 2])
        pairs.append(table)
    return list(pairs)


def _striped(line: str, counts: Mapping[str, int], total: int) -> Text:
    """A bar in the colours of the statuses it is made of."""
    striped, done, at = Text(no_wrap=True), 0, 0
    for status in Status:
        done += counts.get(status, 0)
        end = round(len(line) * done / total)
        striped.append(line[at:end], STYLE[status])
        at = end
    return striped.append(line[at:])


def _name(name: str, width: int) -> Text:
    text = Text(one_line(name), no_wrap=True)
    text.truncate(_name_width(width), overflow="ellipsis")
    return text


def _name_width(width: int) -> int:
    return max(12, width // 4)


def _bar_width(width: int) -> int:
    """What names, counts, shares and rates leave."""
    return max(8, min(60, width - 4 - _name_width(width) - 36))


def _rate(a_second: float, *, is_good: bool | None) -> Text:
    return Text(rate(a_second), "" if is_good is None else "green" if (a_second > 0) == is_good else "red")


def _more(number: int, noun: str) -> list[RenderableType]:
    if number <= 0:
        return []
    many = noun.removesuffix("y") + "ies" if noun.endswith("y") else f"{noun}s"
    return [_inset(Text(f"and {brief_number(number)} more {noun if number == 1 else many}", "bright_black"))]


def _inset(part: RenderableType) -> Padding:
    return Padding(part, (0, 0, 0, 2), expand=False)
