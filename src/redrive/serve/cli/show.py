"""`redrive show`: one letter with its whole story."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from msgspec.structs import replace

from redrive.serve.cli.options import complete_ids, config_option, json_option, opened, store_option
from redrive.serve.shape import as_json as to_json
from redrive.serve.shape import letter_shape


@click.command("show")
@click.argument("id", shell_complete=complete_ids)
@click.option("--body", "only_body", is_flag=True, help="Print only the body, byte for byte where no rule redacts it.")
@json_option
@store_option
@config_option
def command(id: str, store: str | None, config: Path | None, only_body: bool, as_json: bool) -> None:
    """Show the letter whose id begins with ID."""
    with opened(store, config) as dlq:
        letter = dlq.get(id)
        if as_json:
            click.echo(to_json({"letter": letter_shape(dlq.shown(letter))}))
            return
        letter = dlq.shown(replace(letter, body=dlq.body(letter)))
        body = letter.body
        if only_body:
            sys.stdout.buffer.write(body)
            return
        from redrive.serve.cli.paper import console, letter_story

        console().print(letter_story(letter, body))
