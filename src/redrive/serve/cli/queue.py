"""`redrive queue`: queues from the shell. Here they are defined, listed, cleared and deleted; `queue_items` and
`queue_settle` are what goes through them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import reduce
from typing import Any, TypeVar, cast

import click

from redrive.model.counted import counted
from redrive.model.errors import NoSuchQueue, QueueRefused
from redrive.model.item import Place as At
from redrive.model.queue import leading_to
from redrive.queues.definition import QueueSettings
from redrive.serve.cli import queue_items, queue_settle
from redrive.serve.cli.acts import say
from redrive.serve.cli.options import Duration, yes_option
from redrive.serve.cli.paper import console
from redrive.serve.cli.queue_page import listed, queue_page, queues_table, stats_table
from redrive.serve.cli.queue_place import Place, Plain, Verbs, ask, complete_names, every_queue, name_argument, place_options
from redrive.serve.cli.queue_shape import Known, queue_shape, stats_shape
from redrive.serve.shape import as_json as to_json

F = TypeVar("F", bound=Callable[..., Any])

_MINUTE, _DAY = timedelta(minutes=1), timedelta(days=1)
_MOST = 65536
_ORDER = ["create", "ls", "info", "update", "produce", "lease", "complete", "retry", "extend", "peek", "stats", "clear", "rm"]


class _InOrder(click.Group):
    """Its commands in the order in which one needs them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return _ORDER


@click.group("queue", cls=_InOrder)
def command() -> None:
    """Create queues, and put, lease and look at what waits in them.

    They live in the store (--store), or behind a server that is up (--endpoint http://127.0.0.1:2319).
    """


for _verb in (*queue_items.VERBS, *queue_settle.VERBS):
    command.add_command(_verb)


def _settings_options(*, is_new: bool) -> Callable[[F], F]:
    """What can be said of a queue; when it is new, what is not said has a default."""

    def default(value: str) -> str:
        return f" [default: {value}]" if is_new else ""

    options: list[Callable[[Any], Any]] = [
        click.option("--lease-timeout", type=Duration(), metavar="DURATION", help=f"How long a lease lasts.{default('1m')}"),
        click.option("--expire-timeout", type=Duration(), metavar="DURATION", help=f"How long an item may wait.{default('24h')}"),
        click.option(
            "--max-attempts",
            type=click.IntRange(0, _MOST),
            metavar="N",
            help="Give an item up when it failed more often; 0: never.",
        ),
        click.option(
            "--dead-queue",
            type=Plain(),
            metavar="NAME",
            shell_complete=complete_names,
            help="Where items go that are given up on or expire; without one they are deleted.",
        ),
        click.option("--partitions", type=click.IntRange(1, _MOST), metavar="N", help=f"In so many parts.{default('1')}"),
        click.option("--reference", type=Plain(), metavar="TEXT", help="Whatever you want to say of it."),
        click.option("--ordered", is_flag=True, help="Lease items of a key one at a time, in their order."),
        click.option(
            "--dedupe", type=Duration(), metavar="DURATION", help="Do not put an item whose reference came within this time."
        ),
        click.option(
            "--rate", type=click.FloatRange(0), metavar="N", help="Lease at most so many items a second; 0: any number."
        ),
    ]
    if not is_new:
        options.append(click.option("--no-dead-queue", is_flag=True, help="Delete what is given up on or expires."))
    return lambda wrapped: reduce(lambda made, option: option(made), reversed(options), wrapped)


def _said(given: dict[str, Any]) -> QueueSettings:
    return cast("QueueSettings", {name: value for name, value in given.items() if value is not None and value is not False})


@command.command("create")
@name_argument
@_settings_options(is_new=True)
@place_options
def create(name: str, place: Place, as_json: bool, **given: Any) -> None:
    """Create the queue NAME."""
    settings: QueueSettings = {"lease_timeout": _MINUTE, "expire_timeout": _DAY, "partitions": 1, **_said(given)}

    async def make(queues: Verbs) -> Known:
        await queues.create(name, **settings)
        return await _known(queues, name)

    made = place.within(make, name)
    _show(made, as_json=as_json)
    if not made.queue.dead_queue and not as_json and not name.endswith("-dead"):
        say("\nItems that are given up on or expire will be deleted. To keep them, give it a dead queue:", "yellow")
        say(f"  redrive queue create {name}-dead\n  redrive queue update {name} --dead-queue {name}-dead")


@command.command("update")
@name_argument
@_settings_options(is_new=False)
@place_options
def update(name: str, no_dead_queue: bool, place: Place, as_json: bool, **given: Any) -> None:
    """Change what is said of the queue NAME; the rest stays as it is."""
    settings = _said(given)
    if no_dead_queue and "dead_queue" in settings:
        raise click.UsageError("Say --dead-queue or --no-dead-queue, not both.")
    if no_dead_queue:
        settings["dead_queue"] = ""
    if not settings:
        raise click.UsageError("Say what to change, e.g. --max-attempts 5; redrive queue update --help lists all.")

    async def change(queues: Verbs) -> Known:
        became = await queues.update(name, **settings)
        for key, value in settings.items():
            # To the wire, zero and nothing are the same.
            if key != "partitions" and getattr(became, key) != value:
                raise QueueRefused(
                    f"the server left --{key.replace('_', '-')} as it was; change it where the store is, with --store"
                )
        return await _known(queues, name)

    _show(place.within(change, name), as_json=as_json)


@command.command("info")
@name_argument
@place_options
def info(name: str, place: Place, as_json: bool) -> None:
    """Show how the queue NAME is defined, and how it stands."""
    _show(place.within(lambda queues: _known(queues, name), name), as_json=as_json)


@command.command("ls")
@place_options
def ls(place: Place, as_json: bool) -> None:
    """List queues by name, and how many items they have."""

    async def look(queues: Verbs) -> list[Known]:
        defined, found = await every_queue(queues), []
        for queue in defined:
            with suppress(NoSuchQueue):  # somebody has just deleted it
                found.append(Known(queue, await queues.stats(queue.name), tuple(leading_to(queue.name, defined))))
        return found

    found = place.within(look)
    if as_json:
        click.echo(to_json({"queues": list(map(queue_shape, found))}))
    elif found:
        console().print(queues_table(found))
    else:
        say("There are no queues yet; redrive queue create NAME makes one.")


@command.command("stats")
@name_argument
@place_options
def stats(name: str, place: Place, as_json: bool) -> None:
    """Show how the partitions of the queue NAME stand."""
    found = place.within(lambda queues: queues.stats(name), name)
    if as_json:
        click.echo(to_json(stats_shape(name, found)))
        return
    console().print(stats_table(found))
    waiting = {"produce": found.producing, "lease": found.leasing, "complete or retry": found.settling}
    for what, number in waiting.items():
        if number:
            say(f"{counted(number, 'request')} to {what} {'waits' if number == 1 else 'wait'}.")


@command.command("clear")
@name_argument
@click.option("--queue", "waiting", is_flag=True, help="What waits to be leased.")
@click.option("--scheduled", is_flag=True, help="What is to be leased later.")
@click.option("--destructive", is_flag=True, help="Everything, leased items too.")
@yes_option
@place_options
def clear(name: str, waiting: bool, scheduled: bool, destructive: bool, yes: bool, place: Place, as_json: bool) -> None:
    """Delete items of the queue NAME; the queue stays."""
    if not (waiting or scheduled or destructive):
        raise click.UsageError("Say what to delete: --queue (what waits), --scheduled, both, or --destructive (everything).")
    known = place.within(lambda queues: _known(queues, name), name)
    if destructive:
        count, what = known.count(), _among(known)
    else:
        places = [*((At.READY, At.BEHIND) if waiting else ()), *((At.SCHEDULED,) if scheduled else ())]
        count = known.count(*places)
        what = f" ({' or '.join(['waiting'] * waiting + ['scheduled'] * scheduled)})"
    if count:
        ask(f"delete {counted(count, 'item')} of '{name}'{what} for good", yes=yes, as_json=as_json)
        count = place.within(
            lambda queues: queues.clear(name, queue=waiting or destructive, scheduled=scheduled, destructive=destructive), name
        )
    if as_json:
        click.echo(to_json({"queue": name, "deleted": count}))
    else:
        say(f"Deleted {counted(count, 'item')} of '{name}'." if count else f"There are no such items in '{name}'.")


@command.command("rm")
@name_argument
@click.option("--force", is_flag=True, help="Also when it is the dead queue of others.")
@yes_option
@place_options
def rm(name: str, force: bool, yes: bool, place: Place, as_json: bool) -> None:
    """Delete the queue NAME with all its items."""
    known = place.within(lambda queues: _known(queues, name), name)
    count, users = known.count(), known.dead_queue_of
    if users and not force:
        raise QueueRefused(
            f"'{name}' is the dead queue of {listed(users)}; give {'it' if len(users) == 1 else 'them'} another, or say --force"
        )
    ask(f"delete the queue '{name}' with {counted(count, 'item')}{_among(known)}", yes=yes, as_json=as_json)
    place.within(lambda queues: queues.delete(name, force=force), name)
    if as_json:
        click.echo(to_json({"queue": name, "deleted": count}))
        return
    say(f"Deleted the queue '{name}' with {counted(count, 'item')}.")
    for user in users:
        say(
            f"What is given up on in '{user}' waits there until it has another: redrive queue update {user} --dead-queue NAME",
            "yellow",
        )


def _among(known: Known) -> str:
    leased = known.count(At.LEASED)
    return f" ({leased:,} of them leased)" if leased else ""


async def _known(queues: Verbs, name: str) -> Known:
    queue = await queues.info(name)
    return Known(queue, await queues.stats(name), tuple(leading_to(name, await every_queue(queues))))


def _show(known: Known, *, as_json: bool) -> None:
    if as_json:
        click.echo(to_json({"queue": queue_shape(known)}))
        return
    console().print(queue_page(known))
