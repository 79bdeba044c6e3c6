"""`redrive tidy`: do what the store has put off."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click
from msgspec import to_builtins

from redrive import wiring
from redrive.engine.housekeeper import tidied
from redrive.model.census import Backlog
from redrive.model.counted import counted
from redrive.serve.cli.acts import STOPPED, Show, bar, letters, say
from redrive.serve.cli.options import config_option, json_option, loaded, store_option
from redrive.serve.shape import as_json as to_json

_PAGE = 4096
"""Bytes that count as one step of the bar."""


@click.command("tidy")
@json_option
@store_option
@config_option
def command(as_json: bool, store: str | None, config: Path | None) -> int:
    """Do all that the store has put off: index bodies and tracebacks, sum up counts, give back space.

    `redrive up` does it by itself, behind. It goes in small steps, so that captures are not held up; after Ctrl-C the same
    command goes on.
    """
    settings = loaded(store, config).settings

    async def run(show: Show) -> tuple[Backlog, Backlog]:
        def progress(first: Backlog, left: Backlog) -> None:
            show(_steps(first) - _steps(left), _steps(first))

        async with wiring.connect(settings) as dlq:
            return await tidied(dlq.letters, progress)

    try:
        with bar("tidying", is_wanted=sys.stderr.isatty() and not as_json, unit="steps") as show:
            first, left = asyncio.run(run(show))
    except KeyboardInterrupt:
        click.echo("Stopped; the same command goes on from there.", err=True)
        return STOPPED
    done = Backlog(**{what: getattr(first, what) - getattr(left, what) for what in Backlog.__struct_fields__})
    if as_json:
        click.echo(to_json({"done": to_builtins(done), "left": to_builtins(left)}))
    else:
        say(f"{_told(done)}." if done else "Nothing was put off." if not left else "Nothing more could be done.")
        if left:
            say(f"Left: {_left(left)}.", "yellow")
    return 0


def _steps(backlog: Backlog) -> int:
    return backlog.texts + backlog.counts + backlog.space // _PAGE


def _told(done: Backlog) -> str:
    parts = [
        f"indexed the texts of {letters(done.texts)}" if done.texts else "",
        f"summed up {counted(done.counts, 'change')} of counts" if done.counts else "",
        f"gave back {_size(done.space)}" if done.space else "",
    ]
    told = ", ".join(part for part in parts if part)
    return told[:1].upper() + told[1:]


def _left(left: Backlog) -> str:
    parts = [
        f"the texts of {letters(left.texts)}" if left.texts else "",
        f"{counted(left.counts, 'change')} of counts" if left.counts else "",
        f"{_size(left.space)} to give back" if left.space else "",
    ]
    return ", ".join(part for part in parts if part)


def _size(number: int) -> str:
    """Bytes as people say them."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number} bytes"
