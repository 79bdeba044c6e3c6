"""`redrive groups ack|assign|snooze|resolve|reopen|note`: what people say of a failure."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar

import click
from msgspec import to_builtins

from redrive.engine.owner import person_name
from redrive.model.triage import Standing, Triage
from redrive.serve.cli.acts import say
from redrive.serve.cli.options import Duration, config_option, json_option, opened, store_option
from redrive.serve.shape import as_json as to_json

F = TypeVar("F", bound=Callable[..., Any])


def _act(command: F) -> F:
    """The arguments and options that all of these have."""
    note = click.option("--note", default="", metavar="TEXT", help="Why, for whoever comes next.")
    options = (click.argument("fingerprint"), note, json_option, store_option, config_option)
    return reduce(lambda wrapped, option: option(wrapped), reversed(options), command)


@click.command("ack", short_help="Say that somebody has seen it.")
@_act
def ack(**given: Any) -> None:
    """Say that somebody has seen the group whose fingerprint begins with FINGERPRINT."""
    _said(Standing.ACKNOWLEDGED, **given)


@click.command("assign", short_help="Say who looks after it.")
@_act
@click.option("--to", "assignee", required=True, metavar="NAME", help="Who looks after it.")
def assign(**given: Any) -> None:
    """Say who looks after the group whose fingerprint begins with FINGERPRINT."""
    _said(Standing.ASSIGNED, **given)


@click.command("snooze", short_help="Leave it alone for a while.")
@_act
@click.option("--for", "length", type=Duration(), required=True, metavar="DURATION", help="How long: 8h, 3d.")
def snooze(length: timedelta, **given: Any) -> None:
    """Leave the group whose fingerprint begins with FINGERPRINT alone for a while; then it is open again."""
    _said(Standing.SNOOZED, until=datetime.now(UTC) + length, **given)


@click.command("resolve", short_help="Say that it is fixed; it regresses when letters come.")
@_act
@click.option("--in", "release", default="", metavar="RELEASE", help="The release that has the fix.")
def resolve(**given: Any) -> None:
    """Say that the group whose fingerprint begins with FINGERPRINT is fixed. When letters come again, it has regressed."""
    _said(Standing.RESOLVED, **given)


@click.command("reopen", short_help="Take back what was said of it.")
@_act
def reopen(**given: Any) -> None:
    """Take back what was said of the group whose fingerprint begins with FINGERPRINT: it is open, and nobody's."""
    _said(Standing.OPEN, **given)


@click.command("note", short_help="Write something about it.")
@click.argument("fingerprint")
@click.argument("text")
@json_option
@store_option
@config_option
def note(fingerprint: str, text: str, as_json: bool, store: str | None, config: Path | None) -> None:
    """Write TEXT about the group whose fingerprint begins with FINGERPRINT."""
    with opened(store, config) as dlq:
        triage = dlq.triage.note(dlq.group(fingerprint), text, by=person_name())
    _tell(triage, as_json, "noted")


ACTS = (ack, assign, snooze, resolve, reopen, note)


def _said(said: Standing, *, fingerprint: str, as_json: bool, store: str | None, config: Path | None, **more: Any) -> None:
    with opened(store, config) as dlq:
        triage = dlq.triage.say(dlq.group(fingerprint), said, by=person_name(), **more)
    _tell(triage, as_json, told(triage.said, triage))


def told(standing: Standing, triage: Triage | None) -> str:
    """`assigned to ann`, `snoozed until 2026-01-31 12:00 UTC`, `resolved in 1.2`."""
    if triage is None:
        return standing.value
    whose = f" to {triage.assignee}" if triage.assignee and standing is Standing.ASSIGNED else ""
    owner = f" ({triage.assignee})" if triage.assignee and standing not in (Standing.ASSIGNED, Standing.OPEN) else ""
    until = f" until {triage.until:%Y-%m-%d %H:%M} UTC" if triage.until and standing is Standing.SNOOZED else ""
    release = f" in {triage.release}" if triage.release and standing is Standing.RESOLVED else ""
    since = f", resolved in {triage.release} before" if triage.release and standing is Standing.REGRESSED else ""
    return f"{standing}{whose}{until}{release}{since}{owner}"


def _tell(triage: Triage, as_json: bool, what: str) -> None:
    if as_json:
        click.echo(to_json({"group": to_builtins(triage)}))
    else:
        say(f"{triage.fingerprint[:8]} is {what}." if what != "noted" else f"Noted of {triage.fingerprint[:8]}.")
