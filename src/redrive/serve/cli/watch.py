"""`redrive stats --watch`: look again and again, and show what changes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta

import click
from msgspec import to_builtins
from msgspec.structs import replace

from redrive.engine.statistics import rates
from redrive.model.duration import written
from redrive.model.errors import RedriveError
from redrive.serve.cli.stats import Look
from redrive.serve.shape import as_json as to_json


def watched(look: Callable[[], Look], interval: timedelta, *, as_json: bool) -> None:
    """Show a look every interval until Ctrl-C: on a terminal in place, elsewhere one after another."""
    try:
        if as_json:
            for seen in _looks(look, interval):
                more = {"rates": to_builtins(seen.rates), "trouble": seen.trouble or None}
                click.echo(to_json(seen.shape() | more))
        else:
            _shown(_looks(look, interval), interval)
    except KeyboardInterrupt:
        return


def _looks(look: Callable[[], Look], interval: timedelta) -> Iterator[Look]:
    """Looks with what changed since the one before; while the store does not answer, the last one again, which says so."""
    last, taken = None, 0.0
    while True:
        began = time.monotonic()
        try:
            seen = look()
        except RedriveError as error:
            if last is None or not error.transient:
                raise
            yield replace(last, rates=None, trouble=str(error))
        else:
            if last is not None:
                seen = replace(seen, rates=rates(last.statistics, seen.statistics, timedelta(seconds=began - taken)))
            last, taken = seen, began
            yield seen
        time.sleep(max(0.0, began + interval.total_seconds() - time.monotonic()))


def _shown(looks: Iterator[Look], interval: timedelta) -> None:
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    from redrive.serve.cli.overview import fitting, page
    from redrive.serve.cli.paper import console

    paper = console()
    if not paper.is_terminal or paper.is_dumb_terminal:
        for seen in looks:
            paper.print(page(seen), end="\n\n")
        return
    how = Text(f"\nevery {written(interval)}, Ctrl-C ends", "bright_black")
    with Live(console=paper, screen=True, auto_refresh=False) as live:
        for seen in looks:
            live.update(Group(fitting(seen, paper, paper.height - 2), how), refresh=True)
