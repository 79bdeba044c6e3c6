"""`redrive ls`: list letters."""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path
from typing import Any

import click

from redrive.model.query import EVERYTHING, Order, Query
from redrive.serve.cli.options import (
    chosen,
    config_option,
    counted,
    filter_options,
    json_option,
    listing_options,
    loaded,
    opened,
    store_option,
)
from redrive.serve.shape import SCHEMA, letter_shape
from redrive.settings import masked


@click.command("ls")
@filter_options
@listing_options
@json_option
@store_option
@config_option
def command(store: str | None, config: Path | None, order: str, limit: int | None, as_json: bool, **filters: Any) -> None:
    """List letters, the newest first."""
    listed(chosen(filters), store, config, Order(order), limit, as_json=as_json)


def listed(query: Query, store: str | None, config: Path | None, order: Order, limit: int | None, *, as_json: bool) -> None:
    """Print the letters that answer a question, as a table or as JSON."""
    with opened(store, config) as dlq:
        found = map(dlq.shown, dlq.find(query, order=order, page=min(limit or 100, 100)))
        if as_json:
            _print_json(found if not limit else islice(found, limit))
            return
        from redrive.serve.cli.paper import console, letters_table

        total = dlq.count(query)
        most = 50 if limit is None else limit or total
        paper = console()
        if not total:
            what = "No letters" if query == EVERYTHING else "No letters match"
            paper.print(f"{what} in {masked(loaded(store, config).settings.store)}.", markup=False)
            return
        paper.print(letters_table(islice(found, most), is_narrow=paper.width < 100))
        if total > most:
            paper.print(f"{most} of {total} letters; --limit 0 shows all.")
        else:
            paper.print(f"{counted(total, 'letter')}.")


def _print_json(letters: Any) -> None:
    """One JSON object, written as the letters come, so that a million of them need no memory."""
    from msgspec import json

    out = sys.stdout
    out.write(f'{{"schema":{SCHEMA},"letters":[')
    for number, letter in enumerate(letters):
        out.write(",\n" if number else "\n")
        out.write(json.encode(letter_shape(letter)).decode())
    out.write("\n]}\n")
