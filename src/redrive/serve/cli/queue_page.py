"""Queues and their items as `redrive queue` prints them: for people."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from redrive.model.counted import counted
from redrive.model.duration import written
from redrive.model.instant import instant
from redrive.model.item import Item, Place, Why
from redrive.model.story import heard
from redrive.queues.verbs import QueueStats
from redrive.serve.cli.paper import ago, brief, error_text, legible, one_line
from redrive.serve.cli.queue_shape import PLACES, Kept, Known

_DIM = "bright_black"
_SHOWN = 200
"""Signs of a payload that a line of a table may hold."""
_STYLES = {
    Place.READY: "green",
    Place.LEASED: "cyan",
    Place.SCHEDULED: "blue",
    Place.BEHIND: "yellow",
    Place.DYING: "red",
}
_WHY = {Why.ATTEMPTS: "attempts", Why.EXPIRED: "expired", Why.TOLD: "given up"}


def queues_table(found: Sequence[Known]) -> Table:
    places = [place for place in PLACES if place is not Place.BEHIND or any(known.count(place) for known in found)]
    table = _table("name", "dead queue")
    for name in ("partitions", *(place.value for place in places), "lease", "expires"):
        table.add_column(name, justify="right", no_wrap=True)
    for known in found:
        queue = known.queue
        table.add_row(
            Text(legible(queue.name), "bold"),
            Text(legible(queue.dead_queue)) if queue.dead_queue else Text("—", _DIM),
            f"{len(queue.partitions):,}",
            *(_number(known.count(place), _STYLES[place]) for place in places),
            written(queue.lease_timeout),
            "never" if known.dead_queue_of else written(queue.expire_timeout),
        )
    return table


def queue_page(known: Known) -> RenderableType:
    """Everything about one queue, what is in it first."""
    queue = known.queue
    stores = sorted(set(queue.partitions))
    expires = (
        "never, as a dead queue's items" if known.dead_queue_of else f"{written(queue.expire_timeout)} after it was produced"
    )
    rows: list[tuple[str, str | None]] = [
        ("a lease lasts", written(queue.lease_timeout)),
        ("an item expires", expires),
        ("max attempts", f"{queue.max_attempts:,}" if queue.max_attempts else "as many as it takes"),
        ("dead queue", queue.dead_queue or "none"),
        ("dead queue of", ", ".join(known.dead_queue_of) or None),
        ("partitions", f"{len(queue.partitions):,}" + (f" in {', '.join(stores)}" if stores != ["store"] else "")),
        ("ordered", "items of a key one at a time, in their order" if queue.ordered else None),
        ("dedupe", f"a reference that came within {written(queue.dedupe)} is not put again" if queue.dedupe else None),
        ("rate", f"at most {queue.rate:g} items leased a second" if queue.rate else None),
        ("reference", queue.reference or None),
        ("created", _moment(queue.created_us)),
        ("updated", _moment(queue.updated_us) if queue.updated_us != queue.created_us else None),
    ]
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style=_DIM, no_wrap=True)
    facts.add_column()
    for name, value in rows:
        if value is not None:
            facts.add_row(name, Text(legible(value)))
    standing = [Text(f"{known.count(place):,} {place.value}", _STYLES[place]) for place in PLACES if known.count(place)]
    title = Text.assemble((legible(queue.name), "bold"), "  ", Text(", ").join(standing) if standing else ("empty", _DIM))
    return Group(title, Padding(facts, (0, 0, 0, 2)))


def stats_table(stats: QueueStats) -> Table:
    table = _table()
    for name in ("partition", *(place.value for place in PLACES), "average age", "leased for", "failures"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in stats.partitions:
        table.add_row(
            str(one.partition),
            *(_number(getattr(one, place.value), _STYLES[place]) for place in PLACES),
            _length(one.average_age_us),
            _length(one.average_leased_age_us),
            _number(stats.failures.get(one.partition, 0), "red"),
        )
    return table


def leased_table(found: Sequence[Kept]) -> Table:
    """What a lease gave, each with the handle that settles it. A server does not tell how old its items are."""
    has_age, has_reference = any(kept.item.created_us for kept in found), any(kept.item.reference for kept in found)
    table = _items_table("attempts", *(["age"] if has_age else []), *(["reference"] if has_reference else []))
    for kept in found:
        item = kept.item
        cells = [Text(kept.handle, "bold"), Text(f"{item.attempts:,}")]
        cells += [Text(_age(item.created_us))] if has_age else []
        cells += [_line(item.reference)] if has_reference else []
        table.add_row(*cells, payload_text(item.payload))
    return table


def items_table(found: Sequence[Kept], *, is_narrow: bool = False) -> Table:
    """Stored items, where they are, and what is known of their failures and ends; a narrow one leaves out what `--json` tells."""
    is_dead = any(heard(kept.item.story).queue for kept in found)
    shown: dict[str, Callable[[Kept], Text]] = {"place": lambda kept: _place(kept.item)}
    if is_dead:
        shown |= {"died in": _died_in, "of": _died_of, "when": lambda kept: Text(_ago(heard(kept.item.story).died_us))}
    shown["attempts"] = lambda kept: Text(f"{_attempts(kept):,}")
    if not is_dead:
        shown["age"] = lambda kept: Text(_age(kept.item.created_us))
    if any(kept.failure for kept in found):
        shown["failed with"] = _failed_with
    if any(kept.item.reference for kept in found):
        shown["reference"] = lambda kept: _line(kept.item.reference)
    for name in ("place" if is_dead else "", "when", "attempts", "reference") if is_narrow else ():
        shown.pop(name, None)
    table = _items_table(*shown)
    for kept in found:
        table.add_row(Text(kept.handle, "bold"), *(cell(kept) for cell in shown.values()), payload_text(kept.item.payload))
    return table


def _attempts(kept: Kept) -> int:
    """Where it died, or else here."""
    story = heard(kept.item.story)
    return story.attempts if story.queue else kept.item.attempts


def _died_in(kept: Kept) -> Text:
    story = heard(kept.item.story)
    return Text(one_line(f"{story.queue}:{story.partition}" if story.queue else "—"))


def _died_of(kept: Kept) -> Text:
    return Text(_why(heard(kept.item.story).why))


def _failed_with(kept: Kept) -> Text:
    return error_text(kept.failure.type, kept.failure.message) if kept.failure else Text("")


def payload_text(payload: bytes) -> Text:
    """A payload in one line that gives way where there is no room."""
    begin = payload[: _SHOWN * 4]
    try:
        text = one_line(begin.decode("utf-8", "strict" if len(begin) == len(payload) else "ignore"))
    except UnicodeDecodeError:
        text = f"{repr(begin)[2:-1][:_SHOWN]}  ({counted(len(payload), 'byte')})"
        return Text(text, _DIM, no_wrap=True, overflow="ellipsis")
    return Text(text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…", no_wrap=True, overflow="ellipsis")


def _table(*names: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style=_DIM)
    for name in names:
        table.add_column(name, overflow="fold")
    return table


def _items_table(*names: str) -> Table:
    table = _table()
    table.add_column("item", no_wrap=True)
    for name in names:
        # Columns that may wrap give way on a narrow terminal; their texts themselves do not wrap.
        gives_way = name in ("failed with", "reference")
        table.add_column(
            name,
            justify="right" if name in ("attempts", "age") else "left",
            no_wrap=not gives_way,
            max_width=60 if gives_way else None,
        )
    table.add_column("payload")
    return table


def _line(text: str) -> Text:
    """A text in one line that gives way where there is no room."""
    return Text(one_line(text), no_wrap=True, overflow="ellipsis")


def _place(item: Item) -> Text:
    told = item.place.value
    if item.place is Place.LEASED:
        left = instant(item.lease_us) - datetime.now(UTC)
        told += f", {brief(left)} left" if left > timedelta() else ", lease over"
    elif item.place is Place.SCHEDULED:
        told += f", {_ago(item.enqueue_us)}"
    elif item.place is Place.DYING:
        told += f", {_why(item.why)}"
    return Text(told, _STYLES[item.place])


def _why(why: str) -> str:
    return _WHY.get(Why(why), why) if why in set(Why) else why


def _number(number: int, style: str) -> Text:
    return Text(f"{number:,}", style if number else _DIM)


def _length(micros: int) -> str:
    return brief(timedelta(microseconds=micros)) if micros else "—"


def _age(micros: int) -> str:
    return brief(max(datetime.now(UTC) - instant(micros), timedelta())) if micros else "—"


def _ago(micros: int) -> str:
    return ago(instant(micros)) if micros else "—"


def _moment(micros: int) -> str:
    return f"{instant(micros):%Y-%m-%d %H:%M:%S} UTC ({ago(instant(micros))})"


def listed(names: Iterable[str]) -> str:
    """`'a', 'b'`."""
    return ", ".join(f"'{name}'" for name in names)
