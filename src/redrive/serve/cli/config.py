"""`redrive config`: every setting and where it came from."""

from __future__ import annotations

from pathlib import Path

import click

from redrive.serve.cli.options import config_option, json_option, loaded, store_option
from redrive.serve.shape import as_json as to_json


@click.command("config")
@json_option
@store_option
@config_option
def command(store: str | None, config: Path | None, as_json: bool) -> None:
    """Print every setting, its value and where that came from. Secrets are masked."""
    rows = loaded(store, config).entries()
    if as_json:
        settings = {row.name: {"value": row.value, "origin": row.origin, "about": row.doc} for row in rows}
        click.echo(to_json({"settings": settings}))
        return
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from redrive.serve.cli.paper import console, legible

    table = Table("setting", "value", "from", "what it is", box=box.SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        table.add_row(*(Text(legible(str(one))) for one in (row.name, row.value, row.origin, row.doc)))
    console().print(table)
