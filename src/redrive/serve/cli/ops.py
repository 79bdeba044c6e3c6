"""`redrive ops`: what redrives are under way or were, and pause, resume or cancel one."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from redrive.engine.owner import person_name
from redrive.model.operation import Entry, Operation
from redrive.serve.cli.acts import say
from redrive.serve.cli.operation_page import operation_page, operation_shape, operations_table, row_shape
from redrive.serve.cli.options import MOST, config_option, json_option, opened, store_option
from redrive.serve.cli.replay import run
from redrive.serve.shape import as_json as to_json


@click.group("ops")
def command() -> None:
    """Look at operations, each a replay of letters that were chosen once; pause one, go on with it, cancel it."""


@command.command("ls")
@click.option("--limit", type=click.IntRange(1, MOST), default=20, show_default=True, help="So many, latest first.")
@json_option
@store_option
@config_option
def ls(limit: int, as_json: bool, store: str | None, config: Path | None) -> None:
    """List operations, latest first."""
    with opened(store, config) as dlq:
        found = dlq.operations.list(limit=limit)
    if as_json:
        click.echo(to_json({"operations": list(map(operation_shape, found))}))
    elif found:
        from redrive.serve.cli.paper import console

        console().print(operations_table(found))
    else:
        say("There are no operations yet; redrive replay makes one.")


@command.command("show")
@click.argument("id")
@click.option(
    "--only", type=click.Choice([entry.value for entry in Entry]), multiple=True, help="Only letters that stand so; repeatable."
)
@json_option
@store_option
@config_option
def show(id: str, only: tuple[str, ...], as_json: bool, store: str | None, config: Path | None) -> None:
    """Show the operation whose id begins with ID: how far it is, and what became of its letters by now."""
    with opened(store, config) as dlq:
        operation = dlq.operations.observe(dlq.operations.get(id).id)
        rows = dlq.operations.ledger(operation.id, entries=[Entry(one) for one in only] or None)
        if as_json:
            click.echo(to_json({"operation": operation_shape(operation), "letters": list(map(row_shape, rows))}))
            return
        from redrive.serve.cli.paper import console

        console().print(operation_page(operation, rows))


@command.command("pause")
@click.argument("id")
@click.option("--why", default="", help="What to tell others.")
@json_option
@store_option
@config_option
def pause(id: str, why: str, as_json: bool, store: str | None, config: Path | None) -> None:
    """Let an operation stop after the batch that is under way."""
    with opened(store, config) as dlq:
        operation = dlq.operations.pause(dlq.operations.get(id).id, why=why, by=person_name())
    _tell(operation, as_json, f"Paused; go on with: redrive ops resume {str(operation.id)[:8]}")


@command.command("resume")
@click.argument("id")
@click.option("--to", metavar="TARGET", help="Its target once more, where that has a login: logins are not kept.")
@json_option
@store_option
@config_option
def resume(id: str, to: str | None, as_json: bool, store: str | None, config: Path | None) -> int:
    """Go on with an operation that was paused, or whose runner died, or begin one that was planned."""
    sys.path.insert(0, str(Path.cwd()))
    with opened(store, config) as dlq:
        return run(dlq, dlq.operations.get(id), as_json=as_json, to=to)


@command.command("cancel")
@click.argument("id")
@click.option("--why", default="", help="What to tell others.")
@json_option
@store_option
@config_option
def cancel(id: str, why: str, as_json: bool, store: str | None, config: Path | None) -> None:
    """End an operation; what was not sent stays where it is."""
    with opened(store, config) as dlq:
        operation = dlq.operations.cancel(dlq.operations.get(id).id, why=why, by=person_name())
    _tell(operation, as_json, f"Cancelled; {operation.left:,} were not sent and stay where they are.")


def _tell(operation: Operation, as_json: bool, sentence: str) -> None:
    if as_json:
        click.echo(to_json({"operation": operation_shape(operation)}))
    else:
        say(sentence)
