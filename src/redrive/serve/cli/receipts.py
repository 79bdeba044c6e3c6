"""`redrive receipts`: what handlers that work once have done, and of what nobody knows whether they did."""

from __future__ import annotations

import sys
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
from msgspec import to_builtins

from redrive import blocking
from redrive.engine.owner import person_name
from redrive.model.counted import counted
from redrive.model.errors import RedriveError
from redrive.model.operation import AuditRow
from redrive.model.receipt import Receipt, ReceiptState, Which
from redrive.serve.cli.acts import say
from redrive.serve.cli.options import MOST, Duration, config_option, json_option, opened, store_option, yes_option
from redrive.serve.shape import as_json as to_json

_COUNTED = 10_000
_STYLES = {ReceiptState.BEGUN: "cyan", ReceiptState.DONE: "green", ReceiptState.UNKNOWN: "magenta"}

_unknown_option = click.option("--unknown", is_flag=True, help="Only those of which nobody knows whether the work was done.")


@click.group("receipts")
def command() -> None:
    """Look at the receipts of handlers that work once (`@dlq.once()`), and forget some. See docs/once.md."""


@command.command("ls")
@_unknown_option
@click.option("--handler", metavar="NAME", help="Only those of this handler.")
@click.option("--limit", type=click.IntRange(1, MOST), default=50, show_default=True, help="So many, latest first.")
@json_option
@store_option
@config_option
def ls(unknown: bool, handler: str | None, limit: int, as_json: bool, store: str | None, config: Path | None) -> None:
    """List receipts, those begun latest first."""
    with opened(store, config) as dlq:
        _catch_up(dlq)
        states = [ReceiptState.UNKNOWN] if unknown else None
        found = dlq.desk.receipts(Which(namespace=dlq.namespace, handler=handler, states=states), limit=limit)
    if as_json:
        click.echo(to_json({"receipts": list(map(_shape, found))}))
    elif found:
        _print(found)
    else:
        say("There are none that are unknown." if unknown else "There are no receipts.")


@command.command("forget")
@click.argument("handler", required=False)
@click.argument("key", required=False)
@_unknown_option
@click.option("--older-than", type=Duration(), metavar="DURATION", help="Only those begun longer ago, e.g. 30d.")
@yes_option
@json_option
@store_option
@config_option
def forget(
    handler: str | None,
    key: str | None,
    unknown: bool,
    older_than: timedelta | None,
    yes: bool,
    as_json: bool,
    store: str | None,
    config: Path | None,
) -> None:
    """Forget receipts: the same deliveries are worked again when they come again.

    Those of HANDLER, or the one of HANDLER for KEY. What is being worked on is forgotten only by its KEY.
    """
    if handler is None and not unknown and older_than is None:
        raise click.UsageError("Say which receipts: a HANDLER, a HANDLER and a KEY, --unknown, or --older-than 30d.")
    with opened(store, config) as dlq:
        _catch_up(dlq)
        which = Which(
            namespace=dlq.namespace,
            handler=handler,
            key=key,
            states=_states(unknown, key),
            # Those that come while this goes on stay; else it might never end.
            before=None if key is not None else datetime.now(UTC) - (older_than or timedelta()),
        )
        count = len(dlq.desk.receipts(which, limit=_COUNTED + 1))
        told = f"more than {_COUNTED:,} receipts" if count > _COUNTED else counted(count, "receipt")
        if count and not yes and (as_json or not sys.stdin.isatty()):
            raise click.UsageError(f"This would forget {told}. Say --yes to do it without being asked.")
        if count and not yes:
            click.confirm(f"Forget {told}?", abort=True)
        gone = _forgotten(dlq, which) if count else 0
    if as_json:
        click.echo(to_json({"forgotten": gone}))
    else:
        say(f"Forgot {counted(gone, 'receipt')}." if gone else "There are no such receipts.")


def _states(unknown: bool, key: str | None) -> list[ReceiptState] | None:
    if unknown:
        return [ReceiptState.UNKNOWN]
    return None if key is not None else [ReceiptState.DONE, ReceiptState.UNKNOWN]


def _forgotten(dlq: blocking.DeadLetters, which: Which) -> int:
    gone = 0
    while some := dlq.desk.forget(which):
        gone += some
    subject = " ".join(part for part in (which.handler, which.key) if part) or "receipts"
    note = AuditRow(at=datetime.now(UTC), by=person_name(), act="forget", subject=subject, detail=counted(gone, "receipt"))
    dlq.desk.note([note])
    return gone


def _catch_up(dlq: blocking.DeadLetters) -> None:
    """Work whose time is over is unknown, also where no housekeeper has said so yet."""
    with suppress(RedriveError):
        dlq.desk.expire()


def _shape(receipt: Receipt) -> dict[str, Any]:
    shape: dict[str, Any] = to_builtins(receipt)
    del shape["token"]
    return shape


def _print(receipts: list[Receipt]) -> None:
    from rich.table import Table
    from rich.text import Text

    from redrive.serve.cli.paper import ago, console, legible

    table = Table(box=None, pad_edge=False, header_style="bright_black")
    for name in ("state", "handler", "key", "begun", "by"):
        table.add_column(name, overflow="fold" if name in ("handler", "key") else "ellipsis")
    for one in receipts:
        state = Text(one.state.value, _STYLES[one.state])
        table.add_row(state, *(Text(legible(part)) for part in (one.handler, one.key, ago(one.at), one.by)))
    console().print(table)
