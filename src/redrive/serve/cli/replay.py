"""`redrive replay`: send letters back, after a look at what that would mean."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from redrive import blocking
from redrive.engine.choose import RedrivePlan
from redrive.engine.operate import Report
from redrive.engine.owner import person_name
from redrive.model.duration import duration
from redrive.model.operation import Entry, Operation
from redrive.model.query import And, Query
from redrive.model.tempo import Tempo, rate_of, share_of
from redrive.serve.cli.acts import STOPPED, asked, bar, letters, say
from redrive.serve.cli.operation_page import operation_shape, outcomes, plan_page, plan_shape, report_shape, waited_for
from redrive.serve.cli.options import (
    Duration,
    are_ids,
    chosen,
    complete_ids,
    config_option,
    filter_options,
    json_option,
    opened,
    store_option,
    yes_option,
)
from redrive.serve.shape import as_json as to_json


@click.command("replay")
@click.argument("query", nargs=-1, shell_complete=complete_ids)
@filter_options
@click.option(
    "--to",
    metavar="TARGET",
    default="source",
    show_default=True,
    help="Where to: source, queue:NAME, mailbox:NAME, kafka:TOPIC, py:module:function, http://…, or source=target for each of several sources.",
)
@click.option("--rate", metavar="RATE", help="At most so many letters by time: 50/s, 300/min.")
@click.option("--batch", type=click.IntRange(1, 1000), default=100, show_default=True, help="Letters on the way at a time.")
@click.option(
    "--canary", type=click.IntRange(0), default=0, metavar="N", help="Send so many first; the others follow if they work."
)
@click.option("--ramp", type=Duration(), metavar="DURATION", help="From a tenth of the rate to all of it within so long.")
@click.option(
    "--stop-on-refail",
    metavar="SHARE",
    default="20%",
    show_default=True,
    help="Pause when more than this share fails again; 'never' goes on.",
)
@click.option("--keep-order", is_flag=True, help="Letters of one key one after the other; none follows one that failed.")
@click.option(
    "--max-rounds", type=click.IntRange(1), default=5, show_default=True, help="Quarantine what has gone round so often."
)
@click.option(
    "--at", "begins_at", metavar="TIME", help="Begin then, where `redrive up` runs: 03:00, 2h from now, or an ISO time."
)
@click.option(
    "--when-closed",
    metavar="SOURCE",
    help="Begin when the circuit breaker of this source is closed, where `redrive up` or your program's dispatcher runs.",
)
@click.option("--dry-run", is_flag=True, help="Only show the plan.")
@yes_option
@json_option
@store_option
@config_option
def command(
    query: tuple[str, ...],
    to: str,
    begins_at: str | None,
    when_closed: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    store: str | None,
    config: Path | None,
    **options: Any,
) -> int:
    """Send letters back: those with these ids, or the open ones that answer QUERY; for all of them write all.

    The letters are chosen once, the plan is shown, and what was shown is what is sent. It can be paused and gone on with:
    see `redrive ops`.
    """
    tempo = _tempo(options)
    when = None if begins_at is None else _moment(begins_at, datetime.now(UTC))
    if when_closed is not None and not when_closed.strip():
        raise click.UsageError("--when-closed needs the name of a source.")
    filters = {name: value for name, value in options.items() if name not in _TEMPO}
    sys.path.insert(0, str(Path.cwd()))
    with opened(store, config) as dlq:
        which = _which(dlq, query, filters)
        with bar("choosing", is_wanted=sys.stderr.isatty() and not as_json) as show:
            plan = dlq.operations.plan(
                to, tempo=tempo, by=person_name(), is_dry=dry_run, progress=lambda number: show(number, number), **which
            )
        is_asked = bool(plan.total) and not (dry_run or yes or len(which.get("ids") or ()) == 1)
        if is_asked and (as_json or not sys.stdin.isatty()):
            dlq.operations.forget(plan.operation.id)
            raise click.UsageError(
                f"This would send {letters(plan.total)} to {plan.operation.target}. Say --yes to do it without being asked."
            )
        if not as_json:
            _tell(plan)
        if dry_run or not plan.total:
            return _nothing(dlq, plan, as_json=as_json, dry_run=dry_run)
        if is_asked:
            _confirm(dlq, plan)
        if when is not None or when_closed is not None:
            return _scheduled(dlq, plan, when, when_closed, as_json=as_json)
        return run(dlq, plan.operation, as_json=as_json, plan=plan, to=to)


_TEMPO = ("rate", "batch", "canary", "ramp", "stop_on_refail", "keep_order", "max_rounds")


def _tempo(options: dict[str, Any]) -> Tempo:
    ramp: timedelta | None = options["ramp"]
    share = options["stop_on_refail"]
    return Tempo(
        rate=rate_of(options["rate"]) if options["rate"] else None,
        batch=options["batch"],
        canary=options["canary"],
        ramp=ramp,
        stop_on_refail=None if share == "never" else share_of(share),
        keeps_order=options["keep_order"],
        max_rounds=options["max_rounds"],
    )


def _moment(text: str, now: datetime) -> datetime:
    """When it is to begin: so long from now, at this time of day here, or at an ISO time."""
    try:
        if (length := duration(text)) is not None:
            return now + length
        if re.fullmatch(r"\d{1,2}:\d{2}", text):
            here = now.astimezone()
            hour, minute = map(int, text.split(":"))
            at = here.replace(hour=hour, minute=minute, second=0, microsecond=0)
            return (at if at > here else at + timedelta(days=1)).astimezone(UTC)
        given = datetime.fromisoformat(text)
        at = (given if given.tzinfo else given.astimezone()).astimezone(UTC)
    except (ValueError, OverflowError):
        raise click.UsageError(f"'{text}' is not a time; write 03:00, 2h (from now) or 2026-01-31T03:00.") from None
    if at <= now:
        raise click.UsageError(f"'{text}' is over; say a time that is still to come.")
    return at


def _scheduled(
    dlq: blocking.DeadLetters, plan: RedrivePlan, when: datetime | None, when_closed: str | None, *, as_json: bool
) -> int:
    operation = dlq.operations.schedule(plan.operation.id, when, when_closed=when_closed, by=person_name())
    if as_json:
        click.echo(to_json({"operation": operation_shape(operation), "plan": plan_shape(plan)}))
    else:
        short = str(operation.id)[:8]
        if when is not None:
            say(f"Scheduled for {when.astimezone():%Y-%m-%d %H:%M %Z}: it begins then where redrive up runs.", "green")
        if when_closed is not None:
            say(f"It waits {waited_for(operation)}.", "green")
        say(f"Before that: redrive ops resume {short} begins at once, redrive ops cancel {short} ends it.")
    return 0


def _which(dlq: blocking.DeadLetters, words: tuple[str, ...], filters: dict[str, Any]) -> dict[str, Any]:
    """The letters that are meant, as the plan takes them."""
    has_filters = any(value is not None for value in filters.values())
    if are_ids(words):
        if has_filters:
            raise click.UsageError("Give ids or filters, not both.")
        return {"ids": [dlq.get(word).id for word in words]}
    if not words and not has_filters:
        raise click.UsageError("Say which letters: ids, a question such as 'source:orders error:TimeoutError', or all.")
    parts: list[Query] = [*([asked(words)] if words else []), *([chosen(filters)] if has_filters else [])]
    return {"query": parts[0] if len(parts) == 1 else And(tuple(parts))}


def _tell(plan: RedrivePlan) -> None:
    if plan.total:
        from redrive.serve.cli.paper import console

        console().print(plan_page(plan))


def _nothing(dlq: blocking.DeadLetters, plan: RedrivePlan, *, as_json: bool, dry_run: bool) -> int:
    if not dry_run:
        dlq.operations.forget(plan.operation.id)
    if as_json:
        click.echo(to_json({"dry_run": dry_run, "plan": plan_shape(plan)}))
    elif plan.total:
        say("Nothing was sent.")
    else:
        say("No open letters match; nothing was sent.")
    return 0


def _confirm(dlq: blocking.DeadLetters, plan: RedrivePlan) -> None:
    """Ask; what was chosen is forgotten when the answer is no."""
    try:
        click.confirm(f"Send {letters(plan.total)}?", abort=True)
    except click.Abort:
        dlq.operations.forget(plan.operation.id)
        raise


def run(
    dlq: blocking.DeadLetters, operation: Operation, *, as_json: bool, plan: RedrivePlan | None = None, to: str | None = None
) -> int:
    """Run an operation before somebody's eyes, and tell what became of its letters. `to` is its target where that was just given:
    the operation itself knows no login."""

    def progress(now: Operation) -> None:
        show(now.total - now.left, now.total, outcomes(now.entries))

    try:
        with bar("sending", is_wanted=sys.stderr.isatty() and not as_json) as show:
            report = dlq.operations.run(operation.id, to=to, by=person_name(), progress=progress)
    except KeyboardInterrupt:
        short = str(operation.id)[:8]
        click.echo(f"Paused; what was not sent is where it was. Go on with: redrive ops resume {short}", err=True)
        return STOPPED
    now = dlq.operations.get(operation.id)
    if as_json:
        shape = report_shape(now, report, dlq.operations.ledger(operation.id))
        click.echo(to_json(shape | ({"plan": plan_shape(plan)} if plan else {})))
    else:
        _told(dlq, now, report)
    return int(bool(report.stopped or report.skipped or now.entries.get(Entry.FAILED)))


def _told(dlq: blocking.DeadLetters, operation: Operation, report: Report) -> None:
    from redrive.serve.cli.operation_page import report_page
    from redrive.serve.cli.paper import console

    console().print(report_page(operation, report, dlq.operations.ledger(operation.id)))
