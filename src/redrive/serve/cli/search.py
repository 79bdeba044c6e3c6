"""`redrive search`: letters that answer a question."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from redrive.model.language import parse
from redrive.model.query import Order
from redrive.serve.cli.ls import listed
from redrive.serve.cli.options import config_option, json_option, listing_options, store_option


@click.command("search", context_settings={"ignore_unknown_options": True})
@click.argument("query", nargs=-1, required=True)
@listing_options
@json_option
@store_option
@config_option
def command(query: tuple[str, ...], store: str | None, config: Path | None, order: str, limit: int | None, as_json: bool) -> None:
    """Find letters by words and conditions: status:exhausted error:TimeoutError age>1d "connection refused".

    Conditions side by side must all hold; and, or, not and parentheses say more. Words are looked for in messages;
    body~"acme corp", traceback~client.py and anywhere~refused look elsewhere too. Quote the whole for your shell.
    """
    listed(parse(" ".join(query), datetime.now(UTC)), store, config, Order(order), limit, as_json=as_json)
