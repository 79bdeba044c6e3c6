"""`redrive try`: a letter through today's handler, in a process of its own, before it is sent."""

# ruff: noqa: N999 - a command lies in the module of its name, and this one is a keyword

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, assert_never

import click
from msgspec import to_builtins
from msgspec.structs import replace

from redrive import blocking, wiring
from redrive.engine.redact import Redactor, for_display
from redrive.engine.trial import (
    LIMIT,
    Died,
    Ending,
    Likeness,
    Output,
    Overran,
    Raised,
    Tried,
    Worked,
    likeness,
    message_of,
    tried,
)
from redrive.model.letter import Letter
from redrive.serve.cli.options import Duration, complete_ids, config_option, json_option, loaded, store_option
from redrive.serve.shape import as_json as to_json

_COMPARED = {
    Likeness.SAME: "with the letter's own error",
    Likeness.SAME_TYPE: "with the letter's type of error, but at another place",
    Likeness.OTHER: "with another error than the letter's",
}


@click.command("try")
@click.argument("id", shell_complete=complete_ids)
@click.option("--handler", required=True, metavar="MODULE:FUNCTION", help="What to call, e.g. shop.orders:handle.")
@click.option("--timeout", type=Duration(), default=f"{LIMIT.seconds}s", show_default=True, help="End it after so long.")
@json_option
@store_option
@config_option
def command(id: str, handler: str, timeout: timedelta, as_json: bool, store: str | None, config: Path | None) -> int:
    """Run the letter whose id begins with ID through a handler, and see what comes of it.

    The handler is called as `redrive replay` would call it, but in a process of its own that is ended after the time limit.
    The letter stays as it is; what the handler itself does, it does for real. The exit status is 0 when it worked, else 1.
    """
    settings = loaded(store, config).settings
    with blocking.DeadLetters(wiring.connect(settings)) as dlq:
        letter = dlq.get(id)
        message = message_of(letter, dlq.body(letter))
    # The store is closed by now: the handler may want it for itself.
    with _waiting(f"trying {handler}", is_wanted=sys.stderr.isatty() and not as_json):
        done = tried(handler, message, limit=timeout)
    redactor = for_display(settings.redact)
    letter, done = redactor.shown(letter), _shown(done, redactor)
    if as_json:
        click.echo(to_json(_shape(letter, handler, done)))
    else:
        _print(letter, handler, done)
    return 0 if done.has_worked else 1


@contextmanager
def _waiting(what: str, *, is_wanted: bool) -> Iterator[None]:
    """Show people on a terminal that something is going on."""
    if not is_wanted:
        yield
        return
    from rich.console import Console

    from redrive.serve.cli.paper import legible

    with Console(stderr=True, highlight=False, markup=False).status(legible(what)):
        yield


def _shown(done: Tried, redactor: Redactor) -> Tried:
    """What a trial told, as people may see it."""

    def printed(output: Output) -> Output:
        return replace(output, text=redactor.text(output.text))

    return Tried(ending=_shown_ending(done.ending, redactor), stdout=printed(done.stdout), stderr=printed(done.stderr))


def _shown_ending(ending: Ending, redactor: Redactor) -> Ending:
    match ending:
        case Worked(result=result):
            return replace(ending, result=redactor.text(result))
        case Raised(failure=failure):
            return replace(ending, failure=redactor.failure(failure))
        case Overran() | Died():
            return ending
        case _:
            assert_never(ending)


def _shape(letter: Letter, handler: str, done: Tried) -> dict[str, Any]:
    """Every field always there; null where it has no meaning."""
    ending = done.ending
    raised = ending if isinstance(ending, Raised) else None
    known = letter.failure
    return {
        "letter": str(letter.id),
        "handler": handler,
        "ending": _NAMES[type(ending)],
        "took": to_builtins(ending.took),
        "was_called": getattr(ending, "was_called", True),
        "result": ending.result if isinstance(ending, Worked) else None,
        "failure": {name: to_builtins(getattr(raised.failure, name)) for name in raised.failure.__struct_fields__}
        if raised
        else None,
        "likeness": likeness(raised.failure, known) if raised else None,
        "exit_status": ending.status if isinstance(ending, Died) and ending.status >= 0 else None,
        "where": ending.where if isinstance(ending, Overran) else None,
        "signal": ending.how if isinstance(ending, Died) and ending.status < 0 else None,
        "letter_failure": {"type": known.type, "message": known.message, "fingerprint": known.fingerprint},
        "stdout": done.stdout.text,
        "stdout_dropped_bytes": done.stdout.dropped,
        "stderr": done.stderr.text,
        "stderr_dropped_bytes": done.stderr.dropped,
    }


_NAMES = {Worked: "worked", Raised: "raised", Overran: "overran", Died: "died"}


def _print(letter: Letter, handler: str, done: Tried) -> None:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    from redrive.serve.cli.paper import console, heading, legible

    verdict, style = _verdict(done.ending, letter)
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bright_black", no_wrap=True)
    facts.add_column()
    for name, value in _facts(letter, handler, done.ending):
        facts.add_row(name, Text(legible(value)))
    paper = console()
    paper.print(Text(verdict, f"bold {style}"), soft_wrap=True)
    paper.print(Padding(facts, (0, 0, 0, 2)))
    for title, text in _sections(done):
        paper.print(heading(title))
        paper.print(Padding(Text(legible(text.rstrip())), (0, 0, 0, 2)))
    paper.print(Text(f"\n{_advice(letter, handler, done.ending)}", "bright_black"), soft_wrap=True)


def _verdict(ending: Ending, letter: Letter) -> tuple[str, str]:
    """The one line that people look for, and its colour."""
    took = _took(ending.took)
    match ending:
        case Worked():
            return f"Worked in {took}.", "green"
        case Raised(was_called=False):
            return "Failed: the handler was not called, for no arguments could be made of the message.", "red"
        case Raised(failure=failure):
            return f"Failed in {took}, {_COMPARED[likeness(failure, letter.failure)]}.", "red"
        case Overran(limit=limit, was_called=was_called):
            what = "" if was_called else "the handler was not even imported; "
            return f"Failed: not done within {_took(limit)}; {what}its process was ended.", "magenta"
        case Died(how=how, was_called=was_called):
            when = f"while the handler ran, after {took}" if was_called else "before the handler was called"
            return f"Failed: its process ended {when}, with {how}.", "red"
        case _:
            assert_never(ending)


def _took(took: timedelta) -> str:
    seconds = took.total_seconds()
    return f"{max(seconds * 1000, 1):.0f}ms" if seconds < 1 else f"{seconds:.1f}s"


def _facts(letter: Letter, handler: str, ending: Ending) -> Iterator[tuple[str, str]]:
    known = letter.failure
    yield "letter", f"{letter.id}, {letter.source} / {letter.source_id}"
    yield "handler", handler
    match ending:
        case Worked(result=result):
            yield "returned", result
        case Raised(failure=failure):
            yield "failed with", f"{failure.type} ({failure.category})"
            yield "", failure.message
            if likeness(failure, known) is Likeness.SAME:
                return
    yield "failed before", f"{known.type}: {known.message}" if known.message else known.type


def _sections(done: Tried) -> Iterator[tuple[str, str]]:
    for name, output in (("standard output", done.stdout), ("standard error", done.stderr)):
        if output.text:
            cut = f"  the end of it, after {output.dropped:,} bytes more" if output.dropped else ""
            yield f"{name}{cut}", output.text
    if isinstance(done.ending, Overran) and done.ending.where:
        yield "where it was, the innermost call first", "\n".join(done.ending.where)
    if isinstance(done.ending, Raised) and done.ending.failure.traceback:
        yield "traceback", done.ending.failure.traceback


def _advice(letter: Letter, handler: str, ending: Ending) -> str:
    short = str(letter.id)[:8]
    if isinstance(ending, Worked):
        return f"The letter is as it was. Send it: redrive replay {short} --to py:{handler}"
    if isinstance(ending, Overran):
        return "The letter is as it was. If it only needs more time, give it: --timeout 5m"
    if isinstance(ending, Died):
        return "The letter is as it was."
    return f"The letter is as it was. Make a test of it: redrive export --pytest {short} --handler {handler}"
