"""`redrive policy`: what a policy decides, what it would have decided, and where to start from."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from redrive import wiring
from redrive.engine.backtest import Backtest, Fate, backtest, names
from redrive.model.classify import Evidence
from redrive.model.counted import counted
from redrive.model.duration import written
from redrive.model.policy import Bury, Discard, Explained, Policy, Retry, Verdict
from redrive.model.policy_file import toml_of
from redrive.model.templates import TEMPLATES, template
from redrive.serve.cli.options import Duration, chosen, config_option, filter_options, json_option, loaded, store_option
from redrive.serve.shape import as_json as to_json
from redrive.settings import load_policy

_GROUPS_SHOWN = 20

policy_options = [
    click.option("--policy", "file", type=click.Path(path_type=Path, dir_okay=False), help="A policy in TOML or YAML."),
    click.option("--template", metavar="NAME", help="A policy to start from; see `redrive policy templates`."),
]


@click.group("policy")
def command() -> None:
    """See what a policy decides, and why; test one against letters; print one to start from."""


@command.command("explain")
@click.option("--error", "kind", required=True, metavar="TYPE", help="The error's type: TimeoutError, httpx.ConnectTimeout.")
@click.option("--message", default="", metavar="TEXT", help="What the error says.")
@click.option("--status", type=click.IntRange(100, 599), help="The HTTP status it carries.")
@click.option("--attempts", type=click.IntRange(min=1), default=1, show_default=True, help="How often it was tried.")
@click.option("--age", type=Duration(), help="How long ago it was first received: 2h.")
@policy_options[0]
@policy_options[1]
@json_option
def explain(
    kind: str,
    message: str,
    status: int | None,
    attempts: int,
    age: timedelta | None,
    file: Path | None,
    template: str | None,
    as_json: bool,
) -> None:
    """Say which rule of a policy decides about an error, with category, verdict, delay and why."""
    policy = _policy(file, template)
    evidence = Evidence(names=names(kind), message=message, http_status=status)
    explained = policy.explain(None, evidence, attempts=attempts, age=age)
    if as_json:
        verdict = explained.verdict
        delay = verdict.after.total_seconds() if isinstance(verdict, Retry) else None
        click.echo(
            to_json(
                {
                    "verdict": _kind(verdict),
                    "delay_seconds": delay,
                    "to": verdict.to if isinstance(verdict, Bury) else None,
                    "rule": explained.rule,
                    "why": explained.why,
                    "category": explained.category.value,
                    "category_why": explained.category_why,
                }
            )
        )
        return
    _tell(explained)


@command.command("test")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@filter_options
@json_option
@store_option
@config_option
def test(file: Path, store: str | None, config: Path | None, as_json: bool, **filters: Any) -> None:
    """Run the letters' history against a policy, and show what each would have met."""
    policy, settings = _policy(file, None), loaded(store, config).settings

    async def run() -> Backtest:
        async with wiring.connect(settings) as dlq:
            return await backtest(dlq.find(chosen(filters)), policy)

    report = asyncio.run(run())
    if as_json:
        click.echo(to_json(_shape(report)))
    else:
        _show(report, file)


@command.command("templates")
@click.argument("name", required=False)
@json_option
def templates(name: str | None, as_json: bool) -> None:
    """List policies for common kinds of work; with a NAME, print that one as TOML, to be kept in a file."""
    if name is not None:
        click.echo(toml_of(template(name).policy), nl=False)
        return
    if as_json:
        click.echo(to_json({"templates": {name: one.about for name, one in TEMPLATES.items()}}))
        return
    from rich.table import Table

    from redrive.serve.cli.paper import console

    table = Table.grid(padding=(0, 2))
    for known, one in TEMPLATES.items():
        table.add_row(known, one.about)
    paper = console()
    paper.print(table)
    paper.print("redrive policy templates NAME >policy.toml prints one of them.")


def _policy(file: Path | None, named: str | None) -> Policy:
    if file is not None and named is not None:
        raise click.UsageError("--policy and --template say different things; give one of them")
    if named is not None:
        return template(named).policy
    return Policy() if file is None else load_policy(file)


def _kind(verdict: Verdict) -> str:
    return type(verdict).__name__.lower()


def _said(verdict: Verdict) -> str:
    match verdict:
        case Retry(after=delay):
            return f"retry after {written(delay)}" if delay else "retry at once"
        case Bury(to=to):
            return "give up and hold the letter" + (f" in {to}" if to else "")
        case Discard(reason=reason):
            return f"discard: {reason}"


def _tell(explained: Explained) -> None:
    from rich.table import Table
    from rich.text import Text

    from redrive.serve.cli.paper import console

    table = Table.grid(padding=(0, 2))
    table.add_row("verdict", Text(_said(explained.verdict), "bold"))
    table.add_row("because of", Text(f"{explained.rule}: {explained.why}"))
    table.add_row("category", Text(f"{explained.category} ({explained.category_why})"))
    console().print(table)


def _show(report: Backtest, file: Path) -> None:
    from rich import box
    from rich.table import Table

    from redrive.serve.cli.paper import console, legible

    paper = console()
    if not report.letters:
        paper.print("No letters match; there is nothing to test against.")
        return
    paper.print(
        f"{counted(report.letters, 'letter')} after {report.attempts} {'try' if report.attempts == 1 else 'tries'}, under {file}:",
        markup=False,
    )
    paper.print(f"  {_fates(report.fates)}")
    paper.print(f"  decided by {', '.join(f'{rule} ({number})' for rule, number in report.rules.most_common())}")
    if report.saved:
        paper.print(f"  {report.saved} of {report.attempts} tries would not have been made")
    for url, number in report.routes.most_common():
        paper.print(f"  {counted(number, 'letter')} would be held in {url}", markup=False)
    table = Table(box=box.SIMPLE_HEAD)
    for title in ("group", "letters", "would have been", "decided by", "tries saved"):
        table.add_column(title, justify="right" if title in ("letters", "tries saved") else "left")
    for group, row in sorted(report.groups.items(), key=lambda entry: -entry[1].letters)[:_GROUPS_SHOWN]:
        told = legible(f"{row.error}: {row.message}".splitlines()[0][:60])
        table.add_row(f"{group[:8]} {told}", str(row.letters), _fates(row.fates), ", ".join(row.rules), str(row.saved or ""))
    paper.print(table)


_WORDS = {
    Fate.SAME: "given up on as they were",
    Fate.SOONER: "given up on sooner",
    Fate.GOING_ON: "tried again",
    Fate.DISCARDED: "discarded",
    Fate.ELSEWHERE: "held elsewhere",
}


def _fates(fates: Counter[Fate]) -> str:
    return ", ".join(f"{number} {_WORDS[fate]}" for fate, number in fates.most_common())


def _shape(report: Backtest) -> dict[str, Any]:
    return {
        "letters": report.letters,
        "attempts": report.attempts,
        "attempts_saved": report.saved,
        "fates": {fate.value: number for fate, number in report.fates.items()},
        "rules": dict(report.rules),
        "routes": dict(report.routes),
        "groups": [
            {
                "group": group,
                "error": row.error,
                "message": row.message,
                "letters": row.letters,
                "attempts_saved": row.saved,
                "fates": {fate.value: number for fate, number in row.fates.items()},
                "rules": dict(row.rules),
            }
            for group, row in report.groups.items()
        ],
        "letters_in_further_groups": report.groups_left_out,
    }
