"""Where the queues of `redrive queue` are: in the store, opened here, or behind a server that is up."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import reduce, wraps
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import click
from msgspec import Struct

from redrive.engine.describe import clean
from redrive.model.duration import duration
from redrive.model.errors import NoSuchQueue
from redrive.model.queue import Queue
from redrive.queues import connect
from redrive.queues.client import QueueClient
from redrive.queues.opening import of
from redrive.queues.service import Queues
from redrive.serve.cli.options import config_option, json_option, loaded
from redrive.settings import masked

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
Verbs: TypeAlias = Queues | QueueClient

_VARIABLE = "REDRIVE_ENDPOINT"
_PAGE = 1000
_HANDLE = re.compile(r"(\d{1,6}):(\w+)", re.ASCII)

_OPTIONS = (
    json_option,
    click.option("--endpoint", metavar="URL", help=f"A server that is up, e.g. http://127.0.0.1:2319 ({_VARIABLE})."),
    click.option("--store", metavar="URL", help="Where queues live, opened by this command itself (REDRIVE_STORE)."),
    config_option,
)


class Place(Struct, frozen=True):
    """Where the queues are, as the options say. What stands on the command line goes before the environment."""

    store: str | None = None
    config: Path | None = None
    endpoint: str | None = None

    def within(self, work: Callable[[Verbs], Awaitable[T]], name: str | None = None) -> T:
        """Do something with the queues, and close them; `name` is the queue it is about."""
        queues = self._opened()

        async def run() -> T:
            async with queues:
                try:
                    return await work(queues)
                except NoSuchQueue as error:
                    raise (no_queue(name, [queue.name for queue in await every_queue(queues)]) if name else error) from None

        return asyncio.run(run())

    def _opened(self) -> Verbs:
        if self.endpoint and self.store:
            raise click.UsageError("Say --endpoint or --store, not both: queues are behind a server, or in a store opened here.")
        is_here = self.store is not None or self.config is not None
        if endpoint := self.endpoint or (None if is_here else os.environ.get(_VARIABLE)):
            return connect(endpoint)
        settings = loaded(self.store, self.config).settings
        for url in (settings.store, *settings.queues.values()):
            if url.startswith("memory:"):
                raise click.UsageError(
                    f"Queues in {masked(url)} are gone when this command ends;"
                    " name a store that stays, or with --endpoint a server that is up."
                )
        return of(settings)


def place_options(command: F) -> F:
    """Options that say where the queues are, given to the command as its `place`; and `--json`."""

    @wraps(command)
    def placed(*args: Any, store: str | None, config: Path | None, endpoint: str | None, **given: Any) -> Any:
        return command(*args, place=Place(store, config, endpoint), **given)

    return reduce(lambda wrapped, option: option(wrapped), reversed(_OPTIONS), placed)  # type: ignore[return-value] # options leave a function as it is


async def every_queue(queues: Verbs) -> list[Queue]:
    """All of them by name, however many pages they fill."""
    found = await queues.queues(limit=_PAGE)
    while len(found) and len(page := await queues.queues(pivot=found[-1].name, limit=_PAGE)) > 1:
        found += page[1:]
    return found


def no_queue(name: str, names: list[str]) -> NoSuchQueue:
    """There is none of this name: what could have been meant."""
    if not names:
        return NoSuchQueue(f"there is no queue '{name}', nor any other; redrive queue create {name} makes it")
    near = get_close_matches(name, names, n=1)
    hint = f"did you mean '{near[0]}'?" if near else "redrive queue ls lists those there are"
    return NoSuchQueue(f"there is no queue '{name}'; {hint}")


def ask(what: str, *, yes: bool, as_json: bool) -> None:
    """Nothing is destroyed unless somebody says so."""
    if yes:
        return
    if as_json or not sys.stdin.isatty():
        raise click.UsageError(f"This would {what}. Say --yes to do it without being asked.")
    click.confirm(f"{what[0].upper()}{what[1:]}?", abort=True)


def complete_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Queues whose names begin so, for the shell's completion."""
    try:
        given = {name: ctx.params.get(name) for name in ("store", "config", "endpoint")}
        return [queue.name for queue in Place(**given).within(every_queue) if queue.name.startswith(incomplete)]
    except Exception:
        return []


class Plain(click.ParamType[str]):
    """Text that can be stored, whatever bytes the shell gave."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return clean(value)


name_argument = click.argument("name", type=Plain(), shell_complete=complete_names)


class Handle(click.ParamType[tuple[int, str]]):
    """A leased item: `PARTITION:ID`."""

    name = "handle"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, str]:
        if isinstance(value, tuple):
            return value
        if (found := _HANDLE.fullmatch(value)) is None:
            self.fail(f"'{value}' names no leased item; write PARTITION:ID, as redrive queue lease prints it", param, ctx)
        return int(found[1]), found[2]


class Ahead(click.ParamType[datetime]):
    """A duration from now (`10m`), or an ISO time."""

    name = "moment"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            if (length := duration(value)) is not None:
                return datetime.now(UTC) + length
            moment = datetime.fromisoformat(value)
            return (moment if moment.tzinfo else moment.astimezone()).astimezone(UTC)
        except (ValueError, OverflowError):
            self.fail(f"'{value}' is not a time; write how long from now (10m, 2h) or an ISO time (2026-01-31T14:00)", param, ctx)
