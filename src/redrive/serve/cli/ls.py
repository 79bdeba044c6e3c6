"""`redrive ls`: list letters."""

from __future__ import annotations

from itertools import chain, islice
from pathlib import Path
from typing import Any

import click

from redrive.model.counted import counted
from redrive.model.query import Order, Query, phrases
from redrive.serve.cli.options import (
    catch_up,
    chosen,
    config_option,
    filter_options,
    json_option,
    listing_options,
    loaded,
    none_found,
    opened,
    print_json,
    store_option,
)
from redrive.serve.cli.peek import peeked
from redrive.serve.shape import letter_shape


@click.command("ls")
@click.argument("place", required=False, metavar="[queue:NAME|mailbox:NAME]")
@filter_options
@listing_options
@json_option
@store_option
@config_option
def command(
    place: str | None,
    store: str | None,
    config: Path | None,
    order: str,
    limit: int | None,
    as_json: bool,
    **filters: Any,
) -> None:
    """List letters, the newest first; or those of a dead queue or a mailbox where they are, with queue:NAME or mailbox:NAME."""
    if place is not None:
        peeked(place, loaded(store, config).settings, limit, as_json=as_json, is_filtered=any(filters.values()))
        return
    listed(chosen(filters), store, config, Order(order), limit, as_json=as_json)


def listed(query: Query, store: str | None, config: Path | None, order: Order, limit: int | None, *, as_json: bool) -> None:
    """Print the letters that answer a question, as a table or as JSON."""
    if order is Order.NEAREST and not phrases(query):
        raise click.UsageError("--order nearest needs words that letters can be near to, such as: redrive search refused")
    with opened(store, config) as dlq:
        behind = catch_up(dlq, query)
        found = map(dlq.shown, dlq.find(query, order=order, page=min(limit or 100, 100)))
        if as_json:
            print_json("letters", map(letter_shape, islice(found, limit or None)), behind)
            return
        from redrive.serve.cli.long_list import print_letters
        from redrive.serve.cli.paper import console

        most = 50 if limit is None else limit
        first = next(found, None)
        paper = console()
        if first is None:
            paper.print(none_found(query, store, config), markup=False, soft_wrap=True)
            return
        # What was found is shown before all that match are counted, which may take a while among a million.
        shown = print_letters(paper, islice(chain([first], found), most or None))
        total = dlq.count(query) if shown == most else shown
        if total > shown:
            paper.print(f"{shown:,} of {total:,} letters; --limit 0 shows all.")
        else:
            paper.print(f"{counted(shown, 'letter')}.")
