"""Operations on paper and as JSON: the plan, how far it is, what became of each letter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import to_builtins
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from redrive.engine.choose import RedrivePlan
from redrive.engine.operate import Report
from redrive.model.counted import counted
from redrive.model.operation import Entry, LedgerRow, Operation, OperationStatus
from redrive.serve.cli.acts import letters
from redrive.serve.cli.paper import ago, brief, heading, legible, one_line

_WORDS = {
    Entry.CONFIRMED: ("green", "worked"),
    Entry.SENT: ("blue", "sent, outcome open"),
    Entry.FAILED: ("red", "failed again"),
    Entry.UNKNOWN: ("magenta", "answer lost"),
    Entry.SKIPPED: ("yellow", "skipped"),
    Entry.INTENDED: ("cyan", "about to be sent"),
    Entry.CHOSEN: ("bright_black", "to be sent"),
}
_STYLES = {
    OperationStatus.PLANNED: "cyan",
    OperationStatus.SCHEDULED: "cyan",
    OperationStatus.RUNNING: "blue",
    OperationStatus.PAUSED: "yellow",
    OperationStatus.FINISHED: "green",
    OperationStatus.CANCELLED: "bright_black",
}
_TOLD = 20
_GROUPS_SHOWN = 5
_MOST_KINDS = 1000
"""Different things to tell that are remembered, so that memory stays flat."""
_ARRIVED = (Entry.CONFIRMED, Entry.SENT)
"""Of these the detail says where they are, not what was wrong."""
_SILENT = timedelta(minutes=1)
"""Who runs an operation says so every half second; after so long without a word, nobody does."""


def plan_page(plan: RedrivePlan) -> RenderableType:
    """What an operation would do."""
    table = Table(box=None, pad_edge=False, header_style="bright_black")
    for name in ("source", "letters", "target"):
        table.add_column(name, justify="right" if name == "letters" else "left")
    for source, count in plan.sources.items():
        target = plan.targets.get(source)
        table.add_row(legible(source), f"{count:,}", Text(legible(target)) if target else Text("not known", "red"))
    parts: list[RenderableType] = [Text(f"{letters(plan.total)} of {counted(plan.group_count, 'failure')}:"), table]
    if plan.group_count > 1:
        parts.append(_groups(plan))
    for target, count in plan.own_targets.items():
        go, their = ("goes", "its") if count == 1 else ("go", "their")
        parts.append(Text(f"{letters(count)} {go} to {one_line(target)}, {their} own target"))
    for why, count in plan.refused.items():
        parts.append(Text(f"{letters(count)} will not be sent: {one_line(why)}", "yellow"))
    parts.append(Text(_pace(plan), "bright_black"))
    return Group(*parts)


def _groups(plan: RedrivePlan) -> Text:
    """`by failure: 1200 in 4f2a9c01, 30 in 77aa10bb and 5 in 3 others`."""
    most = list(plan.groups.items())[:_GROUPS_SHOWN]
    told = ", ".join(f"{count:,} in {group[:8]}" for group, count in most)
    others, rest = plan.group_count - len(most), plan.total - sum(count for _, count in most)
    return Text(f"by failure: {told}" + (f", {rest:,} in {counted(others, 'other')}" if others else ""))


def _pace(plan: RedrivePlan) -> str:
    tempo = plan.operation.tempo
    parts = [f"{tempo.canary} first, then the others if they work"] if tempo.canary else []
    parts.append(f"at most {tempo.rate:g} a second" if tempo.rate is not None else f"up to {tempo.batch} at a time")
    if plan.seconds is not None:
        parts.append(f"about {brief(timedelta(seconds=round(plan.seconds)))}")
    if tempo.stop_on_refail is not None:
        parts.append(f"pauses when more than {tempo.stop_on_refail:.0%} fail again")
    return "; ".join(parts)


def outcomes(entries: Mapping[Entry, int]) -> str:
    """`12 worked, 1 failed again`."""
    return ", ".join(
        f"{entries[entry]:,} {words}"
        for entry, (_, words) in _WORDS.items()
        if entries.get(entry) and entry not in (Entry.CHOSEN, Entry.INTENDED)
    )


def report_page(operation: Operation, report: Report, rows: Iterable[LedgerRow]) -> RenderableType:
    """What became of an operation's letters."""
    parts: list[RenderableType] = []
    for entry, (style, words) in _WORDS.items():
        if count := operation.entries.get(entry):
            parts.append(Text(f"{count:,} {words}", style))
    if report.overtaken:
        parts.append(Text(f"{report.overtaken:,} overtaken: reopened or taken over while they were sent"))
    parts += _details(rows)
    if report.stopped:
        parts.append(Text(f"{operation.status.capitalize()}: {one_line(report.stopped)}", _STYLES[operation.status]))
    if operation.status is OperationStatus.PAUSED:
        parts.append(Text(f"Go on with: redrive ops resume {str(operation.id)[:8]}", "bright_black"))
    return Group(*parts)


def _details(rows: Iterable[LedgerRow]) -> list[RenderableType]:
    """What there is to tell of letters, what is alike told once; `redrive ops show --json` has each."""
    first: dict[str, LedgerRow] = {}
    counts: Counter[str] = Counter()
    for row in rows:
        if row.detail and row.entry not in _ARRIVED and (row.detail in first or len(first) < _MOST_KINDS):
            first.setdefault(row.detail, row)
            counts[row.detail] += 1
    lines: list[RenderableType] = []
    for detail, count in counts.most_common(_TOLD):
        more = f" and {count - 1:,} more" if count > 1 else ""
        lines.append(Text(f"  {str(first[detail].letter)[:8]}{more}  {one_line(detail)}", no_wrap=True, overflow="ellipsis"))
    return lines


def operations_table(operations: Iterable[Operation]) -> Table:
    """A line an operation."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bright_black", show_edge=False)
    for name in ("id", "status", "letters", "became", "target", "begun", "by"):
        table.add_column(
            name, justify="right" if name == "letters" else "left", overflow="fold" if name == "became" else "ellipsis"
        )
    for one in operations:
        table.add_row(
            str(one.id)[:8],
            status_text(one),
            f"{one.total:,}",
            outcomes(one.entries) or "–",
            Text(legible(one.target)),
            ago(one.started_at),
            Text(legible(one.by)),
        )
    return table


def status_text(operation: Operation) -> Text:
    if is_silent(operation):
        return Text("running? silent", "red")
    return Text(operation.status.value, _STYLES[operation.status])


def is_silent(operation: Operation) -> bool:
    """Does it say that it runs, while nobody runs it?"""
    seen = operation.seen_at or operation.started_at
    return operation.status is OperationStatus.RUNNING and datetime.now(UTC) - seen > _SILENT


def operation_page(operation: Operation, rows: Iterable[LedgerRow]) -> RenderableType:
    """One operation with its story."""
    about = Table.grid(padding=(0, 2))
    about.add_column(style="bright_black")
    about.add_column()
    about.add_row("status", status_text(operation) + Text(f"  {one_line(operation.why)}" if operation.why else ""))
    about.add_row("letters", f"{operation.total:,}")
    about.add_row("target", Text(legible(operation.target)))
    if operation.query:
        about.add_row("query", Text(legible(operation.query)))
    about.add_row("begun", f"{operation.started_at:%Y-%m-%d %H:%M:%S} UTC, {ago(operation.started_at)}")
    if operation.begins_at and operation.status is OperationStatus.SCHEDULED:
        about.add_row("begins", f"{operation.begins_at:%Y-%m-%d %H:%M:%S} UTC")
    if operation.when_closed and operation.status is OperationStatus.SCHEDULED:
        about.add_row("waits", Text(waited_for(operation)))
    if operation.finished_at:
        took = operation.finished_at - operation.started_at
        about.add_row("ended", f"{operation.finished_at:%Y-%m-%d %H:%M:%S} UTC, after {brief(took)}")
    about.add_row("by", Text(legible(operation.by)))
    parts: list[RenderableType] = [heading(f"operation {operation.id}"), about]
    for entry, (style, words) in _WORDS.items():
        if count := operation.entries.get(entry):
            parts.append(Text(f"{count:,} {words}", style))
    parts += _details(rows)
    return Group(*parts)


def waited_for(operation: Operation) -> str:
    """What keeps a scheduled operation, besides its time."""
    source = legible(operation.when_closed.source) if operation.when_closed else ""
    return f"until the breaker of '{source}' is closed, as seen by the process whose dispatcher begins it"


def operation_shape(operation: Operation) -> dict[str, Any]:
    """An operation as JSON has it."""
    shape: dict[str, Any] = to_builtins(operation)
    return shape | {"is_silent": is_silent(operation)}


def plan_shape(plan: RedrivePlan) -> dict[str, Any]:
    shape: dict[str, Any] = to_builtins(plan)
    return shape


def report_shape(operation: Operation, report: Report, rows: Iterable[LedgerRow]) -> dict[str, Any]:
    """What became of an operation, as JSON has it."""
    return {
        "operation": operation_shape(operation),
        "outcomes": {entry.value: count for entry, count in report.entries.items()},
        "skipped": report.skipped,
        "overtaken": report.overtaken,
        "stopped": report.stopped or None,
        "letters": [row_shape(row) for row in rows],
    }


def row_shape(row: LedgerRow) -> dict[str, Any]:
    return {"id": str(row.letter), "generation": row.generation, "outcome": row.entry.value, "detail": row.detail}
