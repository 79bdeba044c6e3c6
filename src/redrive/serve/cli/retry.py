"""`redrive retry`: send letters back and settle each by what became of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import click
from msgspec import Struct

from redrive import blocking, wiring
from redrive.engine.redrive import Report
from redrive.engine.run import KIND
from redrive.model.operation import Entry, LedgerRow
from redrive.model.query import And, Field, Is, Or, Order
from redrive.model.status import OPEN
from redrive.ports.transport import Transport
from redrive.serve.cli.options import (
    chosen,
    complete_ids,
    config_option,
    counted,
    filter_options,
    json_option,
    opened,
    store_option,
    yes_option,
)
from redrive.serve.shape import as_json as to_json

_WORDS = {
    Entry.CONFIRMED: ("green", "worked"),
    Entry.SENT: ("blue", "sent, outcome open"),
    Entry.FAILED: ("red", "failed again"),
    Entry.UNKNOWN: ("magenta", "answer lost"),
}


class Addressed(Struct, frozen=True, kw_only=True):
    """What must be known of a letter to send it: not its body, of which there may be gigabytes."""

    id: UUID
    kind: str | None
    source: str


@click.command("retry")
@click.argument("ids", nargs=-1, shell_complete=complete_ids)
@filter_options
@click.option("--all", "everything", is_flag=True, help="All open letters.")
@click.option("--to", metavar="TARGET", help="Where to: py:module:function. Letters of `redrive run` know their command.")
@click.option("--batch", type=click.IntRange(1, 1000), default=100, show_default=True, help="Letters claimed at a time.")
@yes_option
@json_option
@store_option
@config_option
def command(
    ids: tuple[str, ...],
    everything: bool,
    to: str | None,
    batch: int,
    yes: bool,
    as_json: bool,
    store: str | None,
    config: Path | None,
    **filters: Any,
) -> int:
    """Send letters back: those with these IDS, or all open ones that match the filters.

    Letters of `redrive run` are run again; for others say --to py:module:function.
    """
    given = any(value is not None for value in filters.values())
    if not ids and not given and not everything:
        raise click.UsageError("Say which letters: ids, filters such as --source orders, or --all.")
    if ids and (given or everything):
        raise click.UsageError("Give ids or filters, not both.")
    sys.path.insert(0, str(Path.cwd()))
    with opened(store, config) as dlq:
        if ids:
            known = map(dlq.get, ids)
            letters = [Addressed(id=letter.id, kind=letter.kind, source=letter.source) for letter in known]
        else:
            is_open = Or(tuple(Is(Field.STATUS, status.value) for status in sorted(OPEN)))
            found = dlq.find(And((chosen(filters), is_open)), order=Order.OLDEST)
            letters = [Addressed(id=letter.id, kind=letter.kind, source=letter.source) for letter in found]
        if not letters:
            return _nothing(as_json)
        routes = _routed(letters, to)
        if (not ids or len(letters) > 1) and not yes:
            _confirm(routes, as_json)
        reports = [dlq.redrive(target, ids=chosen_ids, batch=batch) for target, chosen_ids in routes]
        status = _told(reports, dlq, as_json)
        return status or int(bool(ids) and any(report.skipped for report in reports))


def _routed(letters: list[Addressed], to: str | None) -> list[tuple[Transport, list[UUID]]]:
    """Each target with the letters that go there."""
    if to is not None:
        return [(wiring.transport(to), [letter.id for letter in letters])]
    homeless = [letter for letter in letters if letter.kind != KIND]
    if homeless:
        raise click.UsageError(
            f"{len(homeless)} of {counted(len(letters), 'letter')} have no command to run again (source '{homeless[0].source}');"
            " say --to py:module:function, or choose others with --source"
        )
    return [(wiring.transport("command:"), [letter.id for letter in letters])]


def _confirm(routes: list[tuple[Transport, list[UUID]]], as_json: bool) -> None:
    plan = "; ".join(f"{counted(len(ids), 'letter')} to {target.name}" for target, ids in routes)
    if as_json or not sys.stdin.isatty():
        raise click.UsageError(f"This would send {plan}. Say --yes to do it without being asked.")
    click.confirm(f"Send {plan}?", abort=True)


def _nothing(as_json: bool) -> int:
    click.echo(to_json({"sent": 0, "operations": []}) if as_json else "No open letters match; nothing was sent.")
    return 0


def _rows(dlq: blocking.DeadLetters, operation: UUID) -> Iterator[LedgerRow]:
    """The whole ledger of an operation, a page at a time."""
    last: LedgerRow | None = None
    while rows := dlq.desk.ledger(operation, after=last):
        yield from rows
        last = rows[-1]


def _told(reports: list[Report], dlq: blocking.DeadLetters, as_json: bool) -> int:
    has_failed = any(report.stopped or report.entries.get(Entry.FAILED) for report in reports)
    if as_json:
        operations = [
            {
                "operation": str(report.operation),
                "outcomes": {entry.value: count for entry, count in report.entries.items()},
                "skipped": report.skipped,
                "overtaken": report.overtaken,
                "stopped": report.stopped or None,
                "letters": [
                    {"id": str(row.letter), "outcome": row.entry.value, "detail": row.detail}
                    for row in _rows(dlq, report.operation)
                ],
            }
            for report in reports
        ]
        click.echo(to_json({"operations": operations}))
        return int(has_failed)
    from redrive.serve.cli.paper import console, legible

    paper = console()
    for report in reports:
        for entry, count in report.entries.items():
            style, words = _WORDS[entry]
            paper.print(f"[{style}]{count} {words}[/]")
        if report.skipped:
            paper.print(f"{report.skipped} skipped: not open any more, or held by somebody else")
        if report.overtaken:
            paper.print(f"{report.overtaken} overtaken: reopened or taken over while they were sent")
        for row in dlq.desk.ledger(report.operation, limit=20):
            if row.detail:
                paper.print(f"  {str(row.letter)[:8]}  {legible(row.detail)}", markup=False)
        if report.stopped:
            paper.print(f"stopped: {report.stopped}", markup=False)
    return int(has_failed)
