"""`redrive stats`: how the letters stand, once or live."""

from __future__ import annotations

from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import click
from msgspec import Struct, to_builtins

from redrive import blocking
from redrive.engine.statistics import Rates, Statistics
from redrive.model.errors import Unsupported
from redrive.model.query import Group, GroupOrder
from redrive.serve.cli.groups import group_shape
from redrive.serve.cli.options import Duration, config_option, json_option, loaded, opened, store_option
from redrive.serve.shape import as_json as to_json
from redrive.settings import masked

_GROWING = 5
_SHORTEST = timedelta(milliseconds=50)


class Look(Struct, frozen=True, kw_only=True):
    """What one look at a store saw."""

    store: str
    statistics: Statistics
    growing: tuple[Group, ...]
    """The groups that grow fastest."""
    rates: Rates | None = None
    """How fast counts changed since the look before."""
    trouble: str = ""
    """Why there is no later look: the store does not answer."""

    def shape(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"store": self.store, **to_builtins(self.statistics), "growing": list(map(group_shape, self.growing))}


def look(dlq: blocking.DeadLetters, store: str) -> Look:
    """Look at a store that is called so."""
    statistics = dlq.statistics()
    try:
        fastest = islice(dlq.groups(order=GroupOrder.GROWTH, page=_GROWING), _GROWING)
        growing = tuple(dlq.shown_group(group) for group in fastest if group.growth > 0)
    except Unsupported:
        growing = ()
    return Look(store=store, statistics=statistics, growing=growing)


@click.command("stats")
@click.option("--watch", is_flag=True, help="Look again and again, and show what changes a second, until Ctrl-C.")
@click.option("--interval", type=Duration(), help="How often with --watch. [default: 1s]")
@json_option
@store_option
@config_option
def command(watch: bool, interval: timedelta | None, as_json: bool, store: str | None, config: Path | None) -> None:
    """Show how many letters there are, of what, since when, and what grows; with --watch live.

    With --watch and --json there is one JSON object a line for each look.
    """
    if interval is not None and not watch:
        raise click.UsageError("--interval goes with --watch.")
    if interval is not None and interval < _SHORTEST:
        raise click.UsageError("--interval is too short; 50ms is the shortest.")
    name = masked(loaded(store, config).settings.store)
    with opened(store, config) as dlq:
        if watch:
            from redrive.serve.cli.watch import watched

            watched(lambda: look(dlq, name), interval or timedelta(seconds=1), as_json=as_json)
            return
        seen = look(dlq, name)
        if as_json:
            click.echo(to_json(seen.shape()))
            return
        from redrive.serve.cli.overview import page
        from redrive.serve.cli.paper import console

        paper = console()
        paper.print(page(seen, width=paper.width) if paper.is_terminal else page(seen))
