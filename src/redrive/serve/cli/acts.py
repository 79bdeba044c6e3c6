"""What the commands share that go over many letters: choosing, asking, showing how far they are, telling what became of it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import reduce
from pathlib import Path
from typing import Any, Protocol, TypeVar

import click

from redrive import blocking, wiring
from redrive.engine.bulk import BulkAct, Plan, Swept
from redrive.model.counted import counted
from redrive.model.errors import RedriveError
from redrive.model.language import parse
from redrive.model.query import Field, Query
from redrive.serve.cli.options import Duration, config_option, json_option, loaded, store_option, yes_option
from redrive.serve.shape import as_json as to_json
from redrive.settings import masked

F = TypeVar("F", bound=Callable[..., Any])

STOPPED = 130
_SOURCES_SHOWN = 5


class Show(Protocol):
    """Hears how much is done, of how much, and what else there is to tell."""

    def __call__(self, done: int, total: int, told: str = "") -> None: ...


_WORDS = {
    BulkAct.PURGE: ("Remove", " for good?"),
    BulkAct.ARCHIVE: ("Archive", "?"),
    BulkAct.RESTORE: ("Restore", "?"),
    BulkAct.DISCARD: ("Discard", "?"),
}
_DOING = {
    BulkAct.PURGE: "removing",
    BulkAct.ARCHIVE: "archiving",
    BulkAct.RESTORE: "restoring",
    BulkAct.DISCARD: "discarding",
}

_OPTIONS = (
    click.argument("query", nargs=-1),
    click.option("--older-than", type=Duration(), metavar="DURATION", help="Only letters that died longer ago, e.g. 30d."),
    click.option("--dry-run", is_flag=True, help="Only say what would be done."),
    yes_option,
    json_option,
    store_option,
    config_option,
)


def act_options(command: F) -> F:
    """The arguments and options that every bulk act has."""
    return reduce(lambda wrapped, option: option(wrapped), reversed(_OPTIONS), command)


def asked(query: tuple[str, ...]) -> Query:
    """The question that the words ask. Every letter must be asked for by that word: nothing happens to all by accident."""
    text = " ".join(query).strip()
    if not text:
        raise click.UsageError("Say which letters: a question such as 'status:completed age>30d', or all.")
    return parse(text, datetime.now(UTC))


def act(
    what: BulkAct,
    query: tuple[str, ...],
    *,
    older_than: timedelta | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    store: str | None,
    config: Path | None,
    reason: str = "",
) -> int:
    """Do one thing to all letters that match: count, ask, do, tell."""
    chosen = asked(query)
    settings = loaded(store, config).settings
    reached = Swept()
    with blocking.DeadLetters(wiring.connect(settings)) as dlq:
        plan = dlq.plan(what, chosen, older_than=older_than, reason=reason)
        sources = dlq.letters.tally(Field.SOURCE, plan.query) if plan.matched else {}
        free = plan.matched - plan.held
        verb, question = _WORDS[what]
        if free and not yes and not dry_run and (as_json or not sys.stdin.isatty()):
            raise click.UsageError(f"This would {verb.lower()} {letters(free)}. Say --yes to do it without being asked.")
        if not as_json:
            _tell_plan(plan, sources, masked(settings.store))
        if dry_run or not free:
            return _told_dry(plan, sources, as_json=as_json, dry_run=dry_run)
        if not yes:
            click.confirm(f"{verb} {letters(free)}{question}", abort=True)

        def progress(so_far: Swept) -> None:
            nonlocal reached
            reached = so_far
            show(so_far.done + so_far.skipped, so_far.matched)

        try:
            with bar(_DOING[what], is_wanted=sys.stderr.isatty() and not as_json) as show:
                swept = dlq.carry_out(plan, progress=progress)
        except (KeyboardInterrupt, RedriveError) as error:
            return cut_short(error, reached.done, reached.matched, what.done)
        return _told(plan, sources, swept, as_json=as_json)


def letters(number: int) -> str:
    """`1 letter`, `2,000 letters`."""
    return counted(number, "letter")


def cut_short(error: BaseException, done: int, total: int, how: str) -> int:
    """Say how far it came, and that nothing is lost; raise what is to be told besides."""
    is_stopped = isinstance(error, KeyboardInterrupt)
    if is_stopped or done:
        came = f" after {done:,} of {letters(total)} {'were' if total != 1 else 'was'} {how}" if done else ""
        click.echo(f"{'Stopped' if is_stopped else 'Broke off'}{came}; the same command goes on from there.", err=True)
    if not is_stopped:
        raise error
    return STOPPED


@contextmanager
def bar(doing: str, *, is_wanted: bool, unit: str = "letters") -> Iterator[Show]:
    """What shows people on a terminal how far it is, how fast it goes and how long it will take."""
    if not is_wanted:
        yield lambda done, total, told="": None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn(doing),
        BarColumn(),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f}"),
        TextColumn("{task.fields[rate]}", style="bright_black"),
        TextColumn("{task.fields[told]}"),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=Console(stderr=True, highlight=False), transient=True) as shown:
        task = shown.add_task(doing, total=0, rate="", told="", visible=False)

        def show(done: int, total: int, told: str = "") -> None:
            speed = shown.tasks[0].speed
            rate = f"{speed:,.0f} {unit}/s" if speed else ""
            shown.update(task, total=max(total, done), completed=done, rate=rate, told=told, visible=True)

        yield show


def say(sentence: str, style: str = "") -> None:
    """A sentence to standard output, in colour on a terminal."""
    from rich.text import Text

    from redrive.serve.cli.paper import console, legible

    console().print(Text(legible(sentence), style), soft_wrap=True)


def _tell_plan(plan: Plan, sources: Mapping[str, int], store: str) -> None:
    if not plan.matched:
        return say(f"No letters in {store} match that could be {plan.act.done}.")
    say(f"{letters(plan.matched)} {'match' if plan.matched != 1 else 'matches'}:")
    say(f"  status  {_counts(plan.statuses)}")
    say(f"  source  {_counts(sources)}")
    if plan.held:
        say(
            f"{letters(plan.held)} {'are' if plan.held != 1 else 'is'} held by somebody right now and will be left alone.",
            "yellow",
        )
    return None


def _counts(counts: Mapping[str, int]) -> str:
    """The largest first, and how many more there are."""
    ordered = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    shown = ", ".join(f"{count:,} {name}" for name, count in ordered[:_SOURCES_SHOWN])
    rest = ordered[_SOURCES_SHOWN:]
    return shown + (f", {sum(count for _, count in rest):,} of {len(rest)} more" if rest else "")


def _told_dry(plan: Plan, sources: Mapping[str, int], *, as_json: bool, dry_run: bool) -> int:
    """Nothing was done: because it was not wanted, or because there is nothing to do."""
    if as_json:
        click.echo(to_json(_shape(plan, sources, Swept(matched=plan.matched, held=plan.held), dry_run=dry_run)))
    elif plan.matched and not dry_run:
        say(f"Nothing was {plan.act.done}.")
    elif plan.matched:
        say(f"Would {_WORDS[plan.act][0].lower()} {letters(plan.matched - plan.held)}.")
    return 0


def _told(plan: Plan, sources: Mapping[str, int], swept: Swept, *, as_json: bool) -> int:
    if as_json:
        click.echo(to_json(_shape(plan, sources, swept, dry_run=False)))
        return 0
    say(f"{plan.act.done.capitalize()} {letters(swept.done)}.", "green" if not swept.skipped else "")
    if swept.held:
        say(f"Left alone {letters(swept.held)} that somebody holds; run it again when they are settled.", "yellow")
    if swept.changed:
        say(f"Left alone {letters(swept.changed)} that changed meanwhile.", "yellow")
    return 0


def _shape(plan: Plan, sources: Mapping[str, int], swept: Swept, *, dry_run: bool) -> dict[str, Any]:
    return {
        "act": plan.act.value,
        "dry_run": dry_run,
        "matched": plan.matched,
        "statuses": plan.statuses,
        "sources": dict(sources),
        "done": swept.done,
        "skipped": swept.skipped,
        "held": swept.held,
        "changed": swept.changed,
    }
