"""`redrive collect`: letters move from a dead queue or a mailbox into the store."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from redrive import wiring
from redrive.model.counted import counted
from redrive.model.queue import leading_to
from redrive.serve.cli.acts import say
from redrive.serve.cli.options import MOST, config_option, json_option, loaded, store_option, yes_option
from redrive.serve.cli.peek import queue_named
from redrive.serve.shape import as_json as to_json
from redrive.settings import Settings, masked


@click.command("collect")
@click.argument("where", metavar="queue:NAME|mailbox:NAME")
@click.option("--limit", type=click.IntRange(1, MOST), help="At most so many.  [default: all]")
@yes_option
@json_option
@store_option
@config_option
def command(where: str, limit: int | None, yes: bool, as_json: bool, store: str | None, config: Path | None) -> None:
    """Move letters from a dead queue or a mailbox into the store, where they can be searched, grouped, repaired and sent back.

    A letter leaves its queue only when the store has it. One that redrive had sent back, and that died again, is the same letter,
    reopened. Cut short, it is simply started again.
    """
    name, settings = queue_named(where), loaded(store, config).settings
    moved = asyncio.run(_collect(name, settings, limit, is_sure=yes))
    if as_json:
        click.echo(to_json({"collected": moved, "queue": name}))
    elif moved:
        say(f"Collected {counted(moved, 'letter')} from {where} into {masked(settings.store)}.")
    else:
        say(f"There is nothing to collect in {where}.")


async def _collect(name: str, settings: Settings, limit: int | None, *, is_sure: bool) -> int:
    from redrive.queues import opening
    from redrive.queues.collect import collect

    async with wiring.connect(settings) as dlq:
        queues = opening.beside(dlq, settings)
        if not is_sure and not leading_to(name, await queues.queues()):
            raise click.UsageError(
                f"'{name}' is no queue's dead queue: what waits there may be work that nobody has tried. Say --yes to collect it."
            )
        return await collect(dlq, queues, name, limit=limit)
