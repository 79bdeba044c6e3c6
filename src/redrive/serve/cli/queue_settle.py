"""What becomes of leased items, from the shell: completed, given back, given up, kept for longer."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import click

from redrive.engine.describe import clean, told
from redrive.model.counted import counted
from redrive.model.errors import RedriveError
from redrive.model.instant import instant, micros
from redrive.model.item import Again
from redrive.model.queue import Queue
from redrive.model.story import failure_told
from redrive.queues.checks import MOST_ITEMS
from redrive.serve.cli.acts import say
from redrive.serve.cli.options import Duration, yes_option
from redrive.serve.cli.paper import ago
from redrive.serve.cli.queue_place import Ahead, Handle, Place, Verbs, ask, name_argument, place_options
from redrive.serve.shape import as_json as to_json

_ERROR = re.compile(r"([A-Za-z_][\w.]*): (.*)", re.DOTALL)
_handles = click.argument("handles", metavar="PARTITION:ID...", nargs=-1, required=True, type=Handle())


@click.command("complete")
@name_argument
@_handles
@place_options
def complete(name: str, handles: tuple[tuple[int, str], ...], place: Place, as_json: bool) -> None:
    """Say that leased items are worked off.

    Those of one partition all, or none.
    """

    async def act(queues: Verbs, partition: int, ids: list[str]) -> None:
        await queues.complete(name, partition, ids)

    done = _settled(place, name, handles, act, "completed")
    _tell(name, {"completed": done}, f"Completed {counted(done, 'item')}.", as_json=as_json)


@click.command("retry")
@name_argument
@_handles
@click.option("--at", type=Ahead(), metavar="TIME", help="Not to be leased again before: 10m (from now), or an ISO time.")
@click.option("--dead", is_flag=True, help="Give them up, whatever their attempts.")
@click.option("--error", "error", metavar="TEXT", help="What went wrong, e.g. 'TimeoutError: no answer'.")
@yes_option
@place_options
def retry(
    name: str,
    handles: tuple[tuple[int, str], ...],
    at: datetime | None,
    dead: bool,
    error: str | None,
    yes: bool,
    place: Place,
    as_json: bool,
) -> None:
    """Give leased items back, or give them up.

    They can be leased again now or, with --at, later. With --dead they go to the dead queue of NAME, or are deleted when it
    has none.
    """
    if dead and at is not None:
        raise click.UsageError("Say --at or --dead, not both: what is given up is not tried again.")
    queue = place.within(lambda queues: queues.info(name), name)
    if dead and not queue.dead_queue:
        count = counted(len(dict.fromkeys(handles)), "item")
        ask(f"delete {count} for good, as '{name}' has no dead queue", yes=yes, as_json=as_json)
    failure = b"" if error is None else _failure(error)

    async def act(queues: Verbs, partition: int, ids: list[str]) -> None:
        again = [Again(id=id, at_us=micros(at) if at else 0, dead=dead, failure=failure) for id in ids]
        await queues.retry(name, partition, again)

    done = _settled(place, name, handles, act, "given back" if not dead else "given up")
    _tell(name, {"dead" if dead else "retried": done}, _given_back(queue, done, at, dead=dead), as_json=as_json)


def _given_back(queue: Queue, done: int, at: datetime | None, *, dead: bool) -> str:
    items = counted(done, "item")
    if dead:
        there = f"in '{queue.dead_queue}' now" if queue.dead_queue else f"deleted, as '{queue.name}' has no dead queue"
        return f"Gave up {items}: {'it is' if done == 1 else 'they are'} {there}."
    return f"Gave {items} back to '{queue.name}'" + (f"; to be leased again {ago(at)}." if at else ".")


def _failure(text: str) -> bytes:
    """A failure of which only its words are known: `TimeoutError: no answer`, or a sentence alone."""
    found = _ERROR.fullmatch(clean(text))
    kind, message = (found[1], found[2]) if found else ("Error", clean(text))
    return failure_told(told(kind, message, known_as=[kind, f"builtins.{kind}"]))


@click.command("extend")
@name_argument
@_handles
@click.option("--by", "length", type=Duration(), required=True, metavar="DURATION", help="So long from now, e.g. 5m.")
@place_options
def extend(name: str, handles: tuple[tuple[int, str], ...], length: timedelta, place: Place, as_json: bool) -> None:
    """Keep leased items for longer."""
    until: list[datetime] = []

    async def act(queues: Verbs, partition: int, ids: list[str]) -> None:
        until.append(instant(await queues.extend(name, partition, ids, length)))

    done = _settled(place, name, handles, act, "extended")
    said = f"Extended {counted(done, 'item')}: yours until {until[0].astimezone():%H:%M:%S} ({ago(until[0])})."
    _tell(name, {"extended": done, "leased_until": min(until)}, said, as_json=as_json)


VERBS = (complete, retry, extend)


def _settled(
    place: Place,
    name: str,
    handles: Sequence[tuple[int, str]],
    act: Callable[[Verbs, int, list[str]], Awaitable[None]],
    how: str,
) -> int:
    """Do something to leased items, by partition; answers with how many."""
    by_partition: dict[int, list[str]] = {}
    for partition, id in dict.fromkeys(handles):
        by_partition.setdefault(partition, []).append(id)
    done = 0

    async def work(queues: Verbs) -> None:
        nonlocal done
        for partition, ids in by_partition.items():
            for begin in range(0, len(ids), MOST_ITEMS):
                some = ids[begin : begin + MOST_ITEMS]
                await act(queues, partition, some)
                done += len(some)

    try:
        place.within(work, name)
    except RedriveError:
        if done:
            click.echo(f"{counted(done, 'item')} {'was' if done == 1 else 'were'} {how}; then it broke off.", err=True)
        raise
    return done


def _tell(name: str, shape: dict[str, Any], sentence: str, *, as_json: bool) -> None:
    if as_json:
        click.echo(to_json({"queue": name, **shape}))
    else:
        say(sentence)
