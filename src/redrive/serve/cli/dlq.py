"""`redrive dlq`: the workflow DLQ from the shell, in its own words. The general commands know its letters too."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar

import click
from msgspec import Struct, json

from redrive import wiring
from redrive.engine.call import FunctionTransport
from redrive.model.category import Category
from redrive.model.counted import counted
from redrive.model.errors import UnknownLetter
from redrive.serve.cli.options import MOST, Duration, config_option, json_option, loaded, store_option, yes_option
from redrive.serve.shape import as_json as to_json
from redrive.workflows import DeadLetterQueue, DeadLetterStatus, FailedTask, WorkflowSettings
from redrive.workflows.queue import SOURCE

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_STATUSES = click.Choice([status.value for status in DeadLetterStatus])


class Place(Struct, frozen=True):
    """Where the queue is, as the options say."""

    store: str | None
    config: Path | None
    source: str

    def within(self, work: Callable[[DeadLetterQueue], Awaitable[T]]) -> T:
        """Do something with the queue, and close it."""

        async def run() -> T:
            letters = wiring.connect(loaded(self.store, self.config).settings)
            try:
                limits = WorkflowSettings.load()
                return await work(DeadLetterQueue(limits.dlq_max_size, store=letters, source=self.source, is_for_display=True))
            finally:
                await letters.close()

        return asyncio.run(run())


def _options(command: F) -> F:
    source = click.option("--source", default=SOURCE, show_default=True, help="The queue's name in its store.")
    return reduce(lambda wrapped, option: option(wrapped), (config_option, store_option, source, json_option), command)


@click.group("dlq")
def command() -> None:
    """Look after the workflow DLQ: what `redrive.workflows.DeadLetterQueue` keeps."""


@command.command("status")
@_options
def status(as_json: bool, source: str, store: str | None, config: Path | None) -> None:
    """How full the queue is, what is in it, and what has happened since it was made."""

    async def look(dlq: DeadLetterQueue) -> dict[str, Any]:
        return {**await dlq.get_statistics(), "health": await dlq.health()}

    found = Place(store, config, source).within(look)
    # This process runs no processor; whether another does is not known here.
    del found["is_processor_running"], found["retry_interval_seconds"]
    if as_json:
        click.echo(to_json(found))
        return
    from redrive.serve.cli.paper import console

    paper = console()
    paper.print(f"{found['queue_size']}/{found['max_size']} in the queue ({found['utilization_percent']} %)", highlight=False)
    for title, key in (
        ("status", "status_breakdown"),
        ("category", "error_categories"),
        ("retry policy", "retry_policies"),
        ("lifetime", "lifetime_stats"),
    ):
        paper.print(_counts(title, found[key]))
    health = found["health"]
    if health["status"] != "healthy":
        paper.print(f"degraded: {health['store_error'] or counted(health['journaled_tasks'], 'task') + ' in the journal'}")


@command.command("list")
@click.option("--status", "wanted", type=_STATUSES, metavar="STATUS", help="Only those; otherwise what is in the queue.")
@click.option("--category", type=click.Choice([category.value for category in Category]), metavar="CATEGORY")
@click.option("--limit", type=click.IntRange(1, MOST), default=100, show_default=True, help="At most so many.")
@_options
def list_(
    wanted: str | None, category: str | None, limit: int, as_json: bool, source: str, store: str | None, config: Path | None
) -> None:
    """List tasks, the newest first."""
    tasks = Place(store, config, source).within(lambda dlq: dlq.list_tasks(wanted, limit, category))
    if as_json:
        click.echo(to_json({"tasks": [task.to_dict() for task in tasks]}))
        return
    from redrive.serve.cli.paper import console

    paper = console()
    if tasks:
        paper.print(_table(tasks))
    paper.print(f"{counted(len(tasks), 'task')}." if tasks else "No tasks.")


@command.command("show")
@click.argument("task_id")
@_options
def show(task_id: str, as_json: bool, source: str, store: str | None, config: Path | None) -> None:
    """Show one task; `redrive show` tells the whole story of its letter."""
    task = Place(store, config, source).within(lambda dlq: _found(dlq, task_id))
    if as_json:
        click.echo(to_json({"task": task.to_dict()}))
        return
    from rich.table import Table
    from rich.text import Text

    from redrive.serve.cli.paper import ago, console, legible

    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim")
    rows = [
        ("task", task.task_id),
        ("status", task.status.value),
        ("failed", f"{task.failed_at:%Y-%m-%d %H:%M:%S} UTC ({ago(task.failed_at)})"),
        ("error", f"{task.error} ({task.error_category})"),
        ("last error", task.last_error if task.last_error != task.error else None),
        ("retries", f"{task.retry_count}/{task.max_retries}, {task.retry_policy}, next {ago(task.next_retry_at)}"),
        ("attempts", str(task.total_attempts)),
        ("waits for", task.waits_for or None),
        ("depends on", ", ".join(task.depends_on) or None),
        ("priority", str(task.priority) if task.priority else None),
        ("repos", ", ".join(task.repos) or None),
        ("content", json.encode(task.task).decode()),
        ("metadata", json.encode(task.metadata).decode() if task.metadata else None),
    ]
    for name, value in rows:
        if value is not None:
            facts.add_row(name, Text(legible(value)))
    console().print(facts)


@command.command("retry")
@click.argument("task_ids", nargs=-1, required=True)
@click.option("--handler", required=True, metavar="MODULE:FUNCTION", help="Called with the task and its repositories.")
@_options
def retry(task_ids: tuple[str, ...], handler: str, as_json: bool, source: str, store: str | None, config: Path | None) -> int:
    """Retry tasks now, whatever their time; exit 1 when one fails."""
    sys.path.insert(0, str(Path.cwd()))
    callback = FunctionTransport.named(handler.removeprefix("py:")).handler

    async def work(dlq: DeadLetterQueue) -> list[dict[str, Any]]:
        return [await dlq.retry_task(task_id, callback) for task_id in task_ids]

    results = Place(store, config, source).within(work)
    if as_json:
        click.echo(to_json({"results": [{**result, "result": _plain(result.get("result"))} for result in results]}))
    else:
        for result in results:
            click.echo(f"{result['task_id']}: {result['message']}" + (f": {result['error']}" if "error" in result else ""))
    return int(not all(result["success"] for result in results))


@command.command("archive")
@click.argument("task_ids", nargs=-1)
@click.option("--exhausted", is_flag=True, help="All that are exhausted.")
@click.option(
    "--older", type=Duration(), metavar="DURATION", help="With --exhausted: only those that failed longer ago, e.g. 7d."
)
@_options
def archive(
    task_ids: tuple[str, ...],
    exhausted: bool,
    older: timedelta | None,
    as_json: bool,
    source: str,
    store: str | None,
    config: Path | None,
) -> int:
    """Put tasks away: out of the queue, kept in the record."""
    if bool(task_ids) == exhausted:
        raise click.UsageError("Say which tasks: their ids, or --exhausted.")
    if older is not None and not exhausted:
        raise click.UsageError("--older goes with --exhausted.")

    async def work(dlq: DeadLetterQueue) -> dict[str, bool]:
        wanted = list(task_ids)
        if exhausted:
            before = datetime.now(UTC) - (older or timedelta())
            tasks = await dlq.list_tasks(DeadLetterStatus.EXHAUSTED, limit=sys.maxsize)
            wanted = [task.task_id for task in tasks if task.failed_at <= before]
        return {task_id: await dlq.archive_task(task_id) for task_id in wanted}

    done = Place(store, config, source).within(work)
    missing = [task_id for task_id, is_done in done.items() if not is_done]
    if as_json:
        click.echo(to_json({"archived": [task_id for task_id, is_done in done.items() if is_done], "not_archived": missing}))
    else:
        click.echo(f"{counted(len(done) - len(missing), 'task')} archived.")
        for task_id in missing:
            click.echo(f"{task_id} was not: it is not in the queue, or is being retried right now.", err=True)
    return int(bool(missing))


@command.command("clear")
@yes_option
@_options
def clear(yes: bool, as_json: bool, source: str, store: str | None, config: Path | None) -> None:
    """Take every task out of the queue. Their letters are discarded, not removed: they can be restored until they are purged."""
    place = Place(store, config, source)
    if not yes:
        size = place.within(lambda dlq: dlq.get_statistics())["queue_size"]
        if as_json or not sys.stdin.isatty():
            raise click.UsageError(f"This would clear {counted(size, 'task')}. Say --yes to do it without being asked.")
        click.confirm(f"Clear {counted(size, 'task')}?", abort=True)
    cleared = place.within(lambda dlq: dlq.clear_all())
    click.echo(to_json({"cleared": cleared}) if as_json else f"Cleared {counted(cleared, 'task')}.")


async def _found(dlq: DeadLetterQueue, task_id: str) -> FailedTask:
    task = await dlq.get_task(task_id)
    if task is None:
        raise UnknownLetter(f"Task {task_id} not found in dead letter queue")
    return task


def _counts(title: str, counts: Mapping[str, int]) -> Any:
    from rich.text import Text

    line = Text(f"  {title:<14}", "dim")
    for name, count in counts.items():
        line.append(f"{name} {count}   ", "bold" if count else "dim")
    return line


def _table(tasks: list[FailedTask]) -> Any:
    from rich.table import Table
    from rich.text import Text

    from redrive.serve.cli.paper import ago, legible

    table = Table(box=None, header_style="dim", pad_edge=False)
    for name in ("task", "status", "category", "retries", "failed", "next"):
        table.add_column(name, no_wrap=True)
    table.add_column("error", overflow="ellipsis", no_wrap=True)
    for task in tasks:
        table.add_row(
            Text(legible(task.task_id)),
            task.status.value,
            task.error_category,
            f"{task.retry_count}/{task.max_retries} {task.retry_policy}",
            ago(task.failed_at),
            ago(task.next_retry_at),
            Text(legible(task.last_error or "")),
        )
    return table


def _plain(result: Any) -> Any:
    """A result as JSON takes it."""
    try:
        to_json({"result": result})
    except TypeError:
        return repr(result)
    return result
