"""Letters of a dead queue or a mailbox, listed where they are."""

from __future__ import annotations

import asyncio
from itertools import islice

import click

from redrive import wiring
from redrive.model.counted import counted
from redrive.model.letter import Letter
from redrive.serve.cli.options import print_json
from redrive.serve.shape import letter_shape
from redrive.settings import Settings

_SCHEMES = ("queue:", "mailbox:")
_USUAL = 50


def queue_named(where: str) -> str:
    """The queue that `queue:NAME` names, or the one behind `mailbox:NAME`."""
    scheme, colon, name = where.partition(":")
    if f"{scheme}{colon}" not in _SCHEMES or not name:
        raise click.UsageError(
            f"'{where}' is no place of letters; a dead queue is written queue:NAME, e.g. queue:orders-dead, a mailbox mailbox:NAME"
        )
    return name


def peeked(where: str, settings: Settings, limit: int | None, *, as_json: bool, is_filtered: bool) -> None:
    """Print what waits there, the oldest first."""
    name = queue_named(where)
    if is_filtered:
        raise click.UsageError(f"Letters of a queue are listed as they wait; `redrive collect {where}` makes them searchable.")
    most = limit if limit is not None else None if as_json else _USUAL
    letters, total = asyncio.run(_read(name, settings, most or None))
    if as_json:
        print_json("letters", map(letter_shape, letters), {})
        return
    from redrive.serve.cli.long_list import print_letters
    from redrive.serve.cli.paper import console

    paper = console()
    if not letters:
        paper.print(f"No letters in {where}.", markup=False)
        return
    print_letters(paper, letters)
    more = f" of {counted(total, 'item')}" if total > len(letters) else ""
    paper.print(
        f"{counted(len(letters), 'letter')}{more} in {where}; `redrive collect {where}` moves them into the store.", markup=False
    )


async def _read(name: str, settings: Settings, most: int | None) -> tuple[list[Letter], int]:
    from redrive.queues import collect, opening

    async with wiring.connect(settings) as dlq:
        queues = opening.beside(dlq, settings)
        letters: list[Letter] = []
        async for letter in collect.peeked(dlq, queues, name):
            letters.append(dlq.shown(letter))
            if len(letters) == most:
                break
        total = sum(one.total for one in (await queues.stats(name)).partitions)
    return list(islice(letters, most)), total
