"""Options that commands share, and what they become: settings, an open store, a question."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar

import click

from redrive import blocking, settings, wiring
from redrive.engine.process import Input
from redrive.engine.walk import Stride
from redrive.model.category import Category
from redrive.model.counted import counted
from redrive.model.errors import RedriveError
from redrive.model.language import parse
from redrive.model.query import EVERYTHING, And, Field, Is, Op, Order, Query, Text, looks_behind, phrases
from redrive.model.spelling import spelled
from redrive.model.status import Status
from redrive.model.texts import Where
from redrive.serve.shape import SCHEMA

F = TypeVar("F", bound=Callable[..., Any])

store_option = click.option("--store", metavar="URL", help="Where letters live (REDRIVE_STORE).")
config_option = click.option("--config", metavar="PATH", type=click.Path(path_type=Path), help="Settings file (REDRIVE_CONFIG).")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, with a schema number.")
yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask.")

_ID = re.compile(r"[0-9a-f]{4,8}|[0-9a-f-]{9,36}", re.IGNORECASE)
_INDEXING_SECONDS = 1.0

_UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class Duration(click.ParamType[timedelta]):
    """`500ms`, `90s`, `15m`, `1h30m`, `7d`."""

    name = "duration"
    longest = timedelta(days=100_000)
    """Clocks can wait so long, and calendars reach as far back and ahead."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        parts = re.findall(r"(\d+(?:\.\d+)?)(ms|[smhdw])", value)
        if not parts or "".join(number + unit for number, unit in parts) != value:
            self.fail(f"'{value}' is not a duration; write 500ms, 90s, 15m, 1h30m or 7d", param, ctx)
        try:
            length = sum((timedelta(**{_UNITS[unit]: float(number)}) for number, unit in parts), timedelta())
        except OverflowError:
            length = timedelta.max
        if length > self.longest:
            self.fail(f"'{value}' is too long; {self.longest.days}d is the longest", param, ctx)
        return length


class Moment(click.ParamType[datetime]):
    """A duration ago (`2h`), or an ISO date or time."""

    name = "moment"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        if re.fullmatch(r"(\d+(\.\d+)?(ms|[smhdw]))+", value):
            return datetime.now(UTC) - Duration().convert(value, param, ctx)
        try:
            moment = datetime.fromisoformat(value)
            return moment if moment.tzinfo else moment.astimezone()
        except (ValueError, OverflowError):
            self.fail(f"'{value}' is not a time; write how long ago (2h, 7d) or an ISO time (2026-01-31T14:00)", param, ctx)


_MOST = "At most so many; 0: all. [default: 50 in a table, all in JSON]"
MOST = 1_000_000_000
"""What any listing can be limited to."""
limit_option = click.option("--limit", type=click.IntRange(0, MOST), help=_MOST)

_FILTERS = [
    click.option("--source", help="Only letters of this source."),
    click.option(
        "--status",
        type=click.Choice([status.value for status in Status]),
        metavar="STATUS",
        help="Only letters that stand there.",
    ),
    click.option("--error", help="Only this error type: TimeoutError, or fully qualified."),
    click.option(
        "--category",
        type=click.Choice([category.value for category in Category]),
        metavar="CATEGORY",
        help="Only this kind of failure.",
    ),
    click.option("--group", help="Only this failure's fingerprint."),
    click.option("--tag", help="Only letters with this tag."),
    click.option("--since", type=Moment(), help="Only letters from then on: 2h, 7d, or an ISO time."),
    click.option("--until", type=Moment(), help="Only letters before then."),
    click.option("--where", metavar="QUERY", help="Only letters that answer this question: see docs/queries.md."),
]


def filter_options(command: F) -> F:
    """Options that choose letters; `chosen` makes a question of them."""
    return reduce(lambda wrapped, option: option(wrapped), reversed(_FILTERS), command)


def listing_options(command: F) -> F:
    """In which order letters are listed, and how many."""
    orders = click.Choice([order.value for order in Order])
    near = "How they are listed; nearest: to the words that are looked for."
    command = limit_option(command)
    return click.option("--order", type=orders, default="newest", show_default=True, help=near)(command)


def chosen(filters: dict[str, Any]) -> Query:
    """The question that the filter options ask."""
    parts: list[Query] = [
        Is(Field(name), value)
        for name in ("source", "status", "error", "category", "group", "tag")
        if (value := filters.get(name)) is not None
    ]
    if filters.get("since"):
        parts.append(Is(Field.DEAD_LETTERED_AT, filters["since"], Op.GE))
    if filters.get("until"):
        parts.append(Is(Field.DEAD_LETTERED_AT, filters["until"], Op.LT))
    if filters.get("where"):
        parts.append(parse(filters["where"], datetime.now(UTC)))
    return And(tuple(parts))


@contextmanager
def opened(store: str | None, config: Path | None = None) -> Iterator[blocking.DeadLetters]:
    """The store that the options name, open for blocking use."""
    with blocking.DeadLetters(wiring.connect(loaded(store, config).settings)) as dlq:
        yield dlq


def catch_up(dlq: blocking.DeadLetters, query: Query) -> dict[str, int]:
    """Before a question that looks into bodies and tracebacks: index for about a second what was just captured.

    What is left then is told on standard error, and answered for JSON. A store that cannot be written to is searched as it is.
    """
    if not looks_behind(query):
        return {}
    left, deadline, stride = dlq.letters.tidy(0), time.monotonic() + _INDEXING_SECONDS, Stride()
    with suppress(RedriveError):
        while left.texts and (started := time.monotonic()) < deadline:
            left = dlq.letters.tidy(stride.size)
            took = time.monotonic() - started
            stride.learn(took, stride.size)
            # Who captures meanwhile has as much of the store.
            time.sleep(min(took, max(0.0, deadline - time.monotonic())) if left.texts else 0.0)
    if left.texts:
        are = "is" if left.texts == 1 else "are"
        click.echo(
            f"{counted(left.texts, 'letter')} {are} not searched in body and traceback yet; `redrive tidy` indexes them.",
            err=True,
        )
    return {"unsearched": left.texts}


def none_found(query: Query, store: str | None, config: Path | None) -> str:
    """What to say when no letter answers a question, and where else its words can be looked for."""
    what = "No letters" if query == EVERYTHING else "No letters match"
    said = f"{what} in {settings.masked(loaded(store, config).settings.store)}."
    told = [text for text in phrases(query) if text.where is Where.MESSAGE]
    if not told:
        return said
    elsewhere = spelled(Text(told[0].phrase, Where.ANYWHERE))
    return f"{said} Words are looked for in messages; {elsewhere} also looks into bodies and tracebacks."


def are_ids(words: Sequence[str]) -> bool:
    """Are these letters' ids, or beginnings of them, rather than a question?"""
    return bool(words) and all(map(_ID.fullmatch, words))


def loaded(store: str | None, config: Path | None, **flags: object) -> settings.Loaded:
    given = {"store": store, **flags}
    return settings.load({name: value for name, value in given.items() if value is not None}, config=config)


def print_json(name: str, shapes: Iterable[dict[str, Any]], more: Mapping[str, int]) -> None:
    """One JSON object with a list in it, written as its items come, so that a million of them need no memory."""
    from msgspec import json

    out = sys.stdout
    out.write(f'{{"schema":{SCHEMA},"{name}":[')
    for number, shape in enumerate(shapes):
        out.write(",\n" if number else "\n")
        out.write(json.encode(shape).decode())
    out.write("".join(["\n]", *(f',"{key}":{number}' for key, number in more.items()), "}\n"]))


def standard_input() -> Input | None:
    """What is and comes on standard input; nothing when it is closed, None when a person sits at it."""
    if sys.stdin is None:
        return Input.of(b"")
    return None if sys.stdin.isatty() else Input(sys.stdin.fileno())


def complete_ids(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Letter ids that begin so, for the shell's completion."""
    try:
        with opened(ctx.params.get("store"), ctx.params.get("config")) as dlq:
            page = dlq.letters.find(limit=1000)
            return [str(letter.id) for letter in page.letters if str(letter.id).startswith(incomplete)]
    except Exception:
        return []
