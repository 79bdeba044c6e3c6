"""What commands print: tables and stories for people, in colour only on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import TextIO, cast

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from redrive.model.letter import Letter
from redrive.model.query import last_name
from redrive.model.status import Status

_PIPE_WIDTH = 200

STYLE = {
    Status.PENDING: "yellow",
    Status.RETRYING: "cyan",
    Status.REDRIVEN: "blue",
    Status.EXHAUSTED: "red",
    Status.QUARANTINED: "magenta",
    Status.COMPLETED: "green",
    Status.ARCHIVED: "bright_black",
    Status.DISCARDED: "bright_black",
}


def console() -> Console:
    """Standard output: the terminal's width and colours there, plain wide lines elsewhere."""
    if sys.stdout.isatty():
        return _Paper(highlight=False)
    return _Paper(file=cast("TextIO", _Unpadded()), highlight=False, width=_PIPE_WIDTH, color_system=None, force_terminal=False)


class _Paper(Console):
    def on_broken_pipe(self) -> None:
        """Whoever read our output has enough (`redrive ls | head`): nothing is wrong then."""
        try:
            super().on_broken_pipe()
        except SystemExit:
            sys.exit(0)


class _Unpadded:
    """Standard output without the spaces that fill a table's lines up."""

    def write(self, text: str) -> None:
        sys.stdout.write("\n".join(line.rstrip() for line in text.split("\n")))

    def flush(self) -> None:
        sys.stdout.flush()


def ago(moment: datetime | None, now: datetime | None = None) -> str:
    """`3m ago`, `in 2h`."""
    if moment is None:
        return "—"
    delta = (now or datetime.now(UTC)) - moment
    if abs(delta) < timedelta(seconds=1):
        return "just now"
    text = brief(abs(delta))
    return f"{text} ago" if delta >= timedelta() else f"in {text}"


def brief(delta: timedelta) -> str:
    """A duration in its largest unit."""
    seconds = delta.total_seconds()
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.0f}s"


def letters_table(letters: Iterable[Letter], *, is_narrow: bool = False) -> Table:
    """A line a letter; a narrow one leaves out what can be looked up, for the error is what people want to see."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("id", style="bold", no_wrap=True)
    table.add_column("when", no_wrap=True)
    table.add_column("source", no_wrap=True, max_width=20 if is_narrow else 40, overflow="ellipsis")
    if not is_narrow:
        table.add_column("message id", no_wrap=True, max_width=24, overflow="ellipsis")
    table.add_column("status", no_wrap=True)
    if not is_narrow:
        table.add_column("tries", justify="right", no_wrap=True)
    # The only column that may wrap, so it alone gives way on a narrow terminal; its texts themselves do not wrap.
    table.add_column("failed with")
    for letter in letters:
        cells: list[RenderableType] = [
            short_id(letter),
            ago(letter.dead_lettered_at),
            Text(one_line(letter.source)),
            Text(one_line(letter.source_id)),
            status_text(letter.status),
            str(letter.attempts),
            error_text(letter.failure.type, letter.failure.message),
        ]
        table.add_row(*(cell for number, cell in enumerate(cells) if not is_narrow or number not in (3, 5)))
    return table


def error_text(kind: str, message: str) -> Text:
    """`TimeoutError: no answer`, in one line that gives way where there is no room."""
    told = one_line(message)
    name = (one_line(last_name(kind)), "bold")
    return Text.assemble(name, f": {told}" if told else "", no_wrap=True, overflow="ellipsis")


def short_id(letter: Letter) -> str:
    """The beginning of the id, which every command takes."""
    return str(letter.id)[:8]


def status_text(status: Status) -> Text:
    return Text(status.value, STYLE[status])


def letter_story(letter: Letter, body: bytes) -> RenderableType:
    """Everything about one letter, the failure first."""
    failure = letter.failure
    title = Text.assemble((str(letter.id), "bold"), "  ", status_text(letter.status))
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bright_black", no_wrap=True)
    facts.add_column()
    retries = (
        str(letter.retry.retry_count)
        if letter.retry.max_retries is None
        else f"{letter.retry.retry_count}/{letter.retry.max_retries}"
    )
    rows: list[tuple[str, str | None]] = [
        ("source", f"{letter.source} / {letter.source_id}"),
        ("goes to", f"{letter.target}, its own target" if letter.target else None),
        ("namespace", letter.namespace if letter.namespace != "default" else None),
        ("failed with", f"{failure.type} ({failure.category})"),
        ("", failure.message),
        ("dead-lettered", f"{letter.dead_lettered_at:%Y-%m-%d %H:%M:%S} UTC ({ago(letter.dead_lettered_at)})"),
        ("first received", f"{letter.first_received_at:%Y-%m-%d %H:%M:%S} UTC"),
        ("group", f"{failure.fingerprint} ({failure.fingerprint_reason})" if failure.fingerprint_reason else failure.fingerprint),
        ("generation", str(letter.generation) if letter.generation > 1 else None),
        (
            "retry",
            f"{letter.retry.policy}, {retries} done, next {ago(letter.retry.next_retry_at)}"
            if letter.retry.policy != "never"
            else None,
        ),
        ("waits for", letter.retry.waits_for or None),
        ("depends on", ", ".join(letter.depends_on) or None),
        ("priority", str(letter.priority) if letter.priority else None),
        ("redriven", f"{letter.redrive.count} time(s), last {ago(letter.redrive.last_at)}" if letter.redrive.count else None),
        ("tags", ", ".join(letter.tags) or None),
        ("amended", "yes, the original is kept" if letter.original else None),
        ("redacted", ", ".join(letter.redacted) or None),
        *((f"· {name}", str(value)) for name, value in letter.metadata.items()),
    ]
    for name, value in rows:
        if value is not None:
            facts.add_row(legible(name), Text(legible(value)))
    parts: list[RenderableType] = [title, Padding(facts, (0, 0, 0, 2))]
    parts += [heading("history"), Padding(_history(letter), (0, 0, 0, 2))]
    if failure.traceback:
        parts += [heading("traceback"), Padding(Text(legible(failure.traceback.rstrip())), (0, 0, 0, 2))]
    if letter.headers:
        headers = Table.grid(padding=(0, 2))
        for name, raw in letter.headers:
            headers.add_row(Text(legible(name), "bright_black"), Text(legible(raw.decode("utf-8", "backslashreplace"))))
        parts += [heading("headers"), Padding(headers, (0, 0, 0, 2))]
    where = f" in {letter.body_ref.name}" if letter.body_ref else ""
    parts += [
        heading(f"body  {letter.content_type}, {letter.body_size} bytes{where}"),
        Padding(_body(letter, body), (0, 0, 0, 2)),
    ]
    return Group(*parts)


def heading(text: str) -> Text:
    """What stands above a part of a page, with room before it."""
    return Text(f"\n{legible(text)}", "bold")


def _history(letter: Letter) -> Table:
    table = Table.grid(padding=(0, 2))
    for number, attempt in enumerate(letter.history, 1):
        took = f"took {brief(attempt.took)}" if attempt.took is not None else ""
        outcome = "answer lost" if attempt.outcome_unknown else last_name(attempt.error)
        table.add_row(
            Text(f"{number}.", "bright_black"),
            f"{attempt.at:%Y-%m-%d %H:%M:%S}",
            Text(took, "bright_black"),
            Text(one_line(outcome), "bold"),
            Text(one_line(attempt.message), overflow="ellipsis", no_wrap=True),
        )
    if letter.history_dropped:
        table.add_row("", Text(f"and {letter.history_dropped} more that are no longer kept", "bright_black"))
    return table


def _body(letter: Letter, body: bytes) -> RenderableType:
    if "json" in letter.content_type:
        from msgspec import DecodeError, json

        try:
            return Syntax(json.format(body, indent=2).decode(), "json", background_color="default", word_wrap=True)
        except DecodeError:
            return Text(repr(body))
    try:
        return Text(legible(body.decode()))
    except UnicodeDecodeError:
        return Text(repr(body[:2000]) + (" …" if len(body) > 2000 else ""))


def legible(text: str) -> str:
    """The text with control characters shown, not sent: a message must not steer the terminal of who reads it."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() or sign in "\n\t" else repr(sign)[1:-1] for sign in text)


def one_line(text: str) -> str:
    """The text without its line breaks, and legible."""
    return legible(" ".join(text.split()))
