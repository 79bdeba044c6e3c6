"""What goes through queues, from the shell: produced, leased, looked at."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any

import click

from redrive.model.counted import counted
from redrive.model.duration import written
from redrive.model.errors import QueueEmpty, RedriveError
from redrive.model.instant import instant
from redrive.model.item import PRIORITIES, Leased
from redrive.model.item import Place as At
from redrive.queues.checks import MOST_ITEMS
from redrive.queues.opening import client_name
from redrive.queues.verbs import QueueStats, item
from redrive.serve.cli.acts import STOPPED, say
from redrive.serve.cli.options import Duration
from redrive.serve.cli.paper import ago, console
from redrive.serve.cli.queue_lines import batches
from redrive.serve.cli.queue_page import items_table, leased_table
from redrive.serve.cli.queue_place import Ahead, Place, Plain, Verbs, name_argument, place_options
from redrive.serve.cli.queue_shape import Kept, item_shape
from redrive.serve.shape import as_json as to_json

_MOST = 65_536
_NARROW = 120


@click.command("produce")
@name_argument
@click.argument("texts", metavar="[TEXT]...", nargs=-1)
@click.option("--reference", type=Plain(), default="", metavar="TEXT", help="What you call it; dedupe goes by it.")
@click.option("--kind", type=Plain(), default="", metavar="TEXT", help="What kind of thing it is.")
@click.option("--encoding", type=Plain(), default="", metavar="TEXT", help="How its payload is written, e.g. application/json.")
@click.option("--key", type=Plain(), default="", metavar="TEXT", help="In an ordered queue, items of a key keep their order.")
@click.option("--priority", type=click.IntRange(0, PRIORITIES - 1), default=0, metavar="N", help="9 goes first.  [default: 0]")
@click.option("--at", type=Ahead(), metavar="TIME", help="Not to be leased before: 10m (from now), or an ISO time.")
@click.option("--header", "header_list", type=Plain(), multiple=True, metavar="NAME=VALUE", help="A header; may be given often.")
@place_options
def produce(
    name: str, texts: tuple[str, ...], header_list: tuple[str, ...], place: Place, as_json: bool, **given: Any
) -> int | None:
    """Put items into the queue NAME.

    Each TEXT is an item, or each line of standard input that is not empty.
    """
    headers = dict(map(_pair, header_list))
    overhead = sum(len(str(part)) * 4 for part in (*given.values(), *headers.items())) + 64
    done = 0

    async def send(queues: Verbs) -> None:
        nonlocal done
        await queues.info(name)
        if not texts and sys.stdin is not None and sys.stdin.isatty():
            click.echo("Reading items from the terminal, one a line; end them with Ctrl-D.", err=True)
        async for batch in batches(texts, overhead):
            await queues.produce(name, [item(payload, headers=headers, **given) for payload in batch])
            done += len(batch)

    try:
        place.within(send, name)
    except KeyboardInterrupt:
        click.echo(f"Stopped after {counted(done, 'item')}.", err=True)
        return STOPPED
    except RedriveError:
        if done:
            click.echo(f"{counted(done, 'item')} {'was' if done == 1 else 'were'} produced; then it broke off.", err=True)
        raise
    if as_json:
        click.echo(to_json({"queue": name, "produced": done}))
    else:
        when = f"; to be leased {ago(given['at'])}" if done and given["at"] else ""
        say(f"Produced {counted(done, 'item')}{when}." if done else "There was nothing to produce.")
    return None


@click.command("lease")
@name_argument
@click.option("--limit", type=click.IntRange(1, MOST_ITEMS), default=10, show_default=True, help="At most so many items.")
@click.option("--client", type=Plain(), metavar="NAME", help="Who leases them. [default: this host and process]")
@click.option("--timeout", type=Duration(), default="5s", show_default=True, metavar="DURATION", help="Wait so long for some.")
@click.option(
    "--lease", "length", type=Duration(), metavar="DURATION", help="How long they are yours. [default: as the queue says]"
)
@place_options
def lease(
    name: str, limit: int, client: str | None, timeout: timedelta, length: timedelta | None, place: Place, as_json: bool
) -> None:
    """Lease items of the queue NAME.

    They are yours until you complete or retry them, or the lease is over.
    """

    async def take(queues: Verbs) -> Leased:
        try:
            return await queues.lease(name, limit, client=client or client_name(), timeout=timeout, lease=length)
        except QueueEmpty:
            raise QueueEmpty(_nothing(name, timeout, await queues.stats(name))) from None

    leased = place.within(take, name)
    found = [Kept(leased.partition, one) for one in leased.items]
    until = instant(leased.until_us)
    if as_json:
        shape = {"queue": name, "partition": leased.partition, "leased_until": until, "items": list(map(item_shape, found))}
        click.echo(to_json(shape))
        return
    console().print(leased_table(found))
    say(
        f"\n{counted(len(found), 'item')}, yours until {until.astimezone():%H:%M:%S} ({ago(until)}). Then say what became of each:"
    )
    say(
        f"  redrive queue complete {name} {found[0].handle}\n  redrive queue retry {name} {found[0].handle} --error 'what went wrong'"
    )


def _nothing(name: str, timeout: timedelta, stats: QueueStats) -> str:
    """Nothing came: why that may be."""
    counts = {place.value: sum(getattr(one, place.value) for one in stats.partitions) for place in At}
    there = ", ".join(f"{number:,} {place}" for place, number in counts.items() if number)
    return f"no item of '{name}' came within {written(timeout)}; " + (f"there are {there}" if there else "it is empty")


@click.command("peek")
@name_argument
@click.option("--limit", type=click.IntRange(1, _MOST), default=10, show_default=True, help="At most so many items.")
@click.option("--partition", "only", type=click.IntRange(0), metavar="N", help="Only those of this partition.")
@place_options
def peek(name: str, limit: int, only: int | None, place: Place, as_json: bool) -> None:
    """Look at items and leave them as they are.

    In a dead queue: where each died, of what, and how it had failed.
    """

    async def look(queues: Verbs) -> tuple[list[Kept], int]:
        numbers = range(len((await queues.info(name)).partitions)) if only is None else [only]
        stored, scheduled = [], []
        for number in numbers:
            stored += [Kept(number, one) for one in await queues.items(name, number, limit=limit)]
            scheduled += [Kept(number, one) for one in await queues.scheduled(name, number, limit=limit)]
        stored.sort(key=lambda kept: kept.item.id)
        scheduled.sort(key=lambda kept: kept.item.enqueue_us)
        stats = await queues.stats(name)
        total = sum(one.total + one.scheduled for one in stats.partitions if one.partition in numbers)
        return [*stored, *scheduled][:limit], total

    found, total = place.within(look, name)
    if as_json:
        click.echo(to_json({"queue": name, "total": total, "items": list(map(item_shape, found))}))
    elif found:
        paper = console()
        paper.print(items_table(found, is_narrow=paper.width < _NARROW))
        if total > len(found):
            say(f"\n{total - len(found):,} more; --limit {min(total, _MOST)} shows {'all' if total <= _MOST else 'most'}.")
    else:
        say(f"'{name}' is empty." if only is None else f"Partition {only} of '{name}' is empty.")


VERBS = (produce, lease, peek)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.UsageError(f"'{text}' is not a header; write NAME=VALUE")
    return name, value
