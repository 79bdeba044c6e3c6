"""`redrive export`: letters out as lines of JSON or CloudEvents, or one as a regression test."""

from __future__ import annotations

import asyncio
import sys
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

import click
from msgspec.structs import replace

from redrive import blocking, wiring
from redrive.engine.dead_letters import DeadLetters
from redrive.engine.trial import check, message_of
from redrive.engine.walk import newest, up_to, walk
from redrive.model.errors import RedriveError, StoreError
from redrive.model.language import parse
from redrive.model.letter import Letter
from redrive.model.query import Query
from redrive.model.redaction import SECRET_HEADERS
from redrive.model.status import Status
from redrive.serve.cli.acts import STOPPED, Show, bar, letters
from redrive.serve.cli.cloud_events import event_of
from redrive.serve.cli.lines import line_of
from redrive.serve.cli.options import complete_ids, config_option, loaded, store_option
from redrive.serve.cli.place import NotWritten, is_put_in_place, named, place

_FORMS = {"lines": line_of, "cloudevents": event_of}


@click.command("export")
@click.argument("query", nargs=-1)
@click.option(
    "--output", "-o", metavar="FILE", type=click.Path(), callback=named, help="Write to FILE; it is there when it is whole."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(list(_FORMS)),
    default="lines",
    show_default=True,
    help="What a line is: a letter, or a CloudEvent 1.0 that holds one.",
)
@click.option(
    "--pytest",
    "tested",
    metavar="ID",
    shell_complete=complete_ids,
    help="Write a test that fails until this letter's error is fixed.",
)
@click.option("--handler", metavar="MODULE:FUNCTION", help="What the test calls, e.g. shop.orders:handle.")
@store_option
@config_option
def command(
    query: tuple[str, ...],
    output: Path | None,
    form: str,
    tested: str | None,
    handler: str | None,
    store: str | None,
    config: Path | None,
) -> int:
    """Write the letters that answer QUERY, or all, as lines of JSON: one whole letter a line, the oldest first.

    This is the raw data, for its owner: nothing is redacted or left out, and bodies are there. `redrive import` reads it back;
    docs/moving.md says what a line holds. With --pytest, write one letter as a regression test for the handler: see
    docs/trying.md.
    """
    if tested is not None:
        if query:
            raise click.UsageError("Give --pytest one letter's id or ask for letters with a QUERY, not both.")
        if handler is None:
            raise click.UsageError("Say with --handler what the test is to call, e.g. --handler shop.orders:handle.")
        return _write_test(tested, handler, output, store, config)
    if handler is not None:
        raise click.UsageError("--handler goes with --pytest ID: letters as lines of JSON need none.")
    question = parse(" ".join(query), datetime.now(UTC))
    settings = loaded(store, config).settings
    written_as = _FORMS[form]
    written = held = failed = 0

    async def run(out: BinaryIO, show: Show) -> None:
        nonlocal written, held, failed
        async with wiring.connect(settings) as dlq:
            asked, total = await _frozen(dlq, question)
            async with aclosing(walk(dlq.letters, asked, is_polite=False)) as pages:
                async for page in pages:
                    for letter in page:
                        try:
                            out.write(written_as(await _whole(dlq, letter)))
                        except StoreError as error:
                            if error.transient:
                                raise
                            click.echo(f"Could not export {letter.id}: {error}", err=True)
                            failed += 1
                            continue
                        written += 1
                        held += letter.status is Status.RETRYING
                    show(written + failed, total)

    try:
        with (
            place(output, settings) as out,
            bar("exporting", is_wanted=sys.stderr.isatty() and (output is not None or not sys.stdout.isatty())) as show,
        ):
            asyncio.run(run(out, show))
    except KeyboardInterrupt:
        click.echo(f"Stopped after {letters(written)}{_unwritten(output)}.", err=True)
        return STOPPED
    except BrokenPipeError:
        raise
    except (RedriveError, NotWritten, OSError):
        click.echo(f"Broke off after {letters(written)}{_unwritten(output)}.", err=True)
        raise
    click.echo(f"Exported {letters(written)}" + (f" to {output}." if output else "."), err=True)
    if held:
        are, say = ("is", "says") if held == 1 else ("are", "say")
        click.echo(f"{letters(held)} {are} held by somebody right now: the status {say} retrying.", err=True)
    return int(bool(failed))


def _unwritten(output: Path | None) -> str:
    return f"; {output} was not written" if output is not None and is_put_in_place(output) else ""


def _write_test(id: str, handler: str, output: Path | None, store: str | None, config: Path | None) -> int:
    settings = loaded(store, config).settings
    with blocking.DeadLetters(wiring.connect(settings)) as dlq:
        letter = dlq.get(id)
        message = message_of(letter, dlq.body(letter))
        shown = dlq.shown(letter)
    from redrive.serve.cli.paper import one_line
    from redrive.serve.cli.regression import regression

    check(handler)
    # A test is likely to be kept with the code, where everybody sees it.
    open_headers = tuple(pair for pair in message.headers if pair[0].lower() not in SECRET_HEADERS)
    text = regression(shown, replace(message, headers=open_headers), handler)
    with place(output, settings) as out:
        out.write(text.encode())
    if gone := dict.fromkeys(name for name, _ in message.headers if name.lower() in SECRET_HEADERS):
        click.echo(f"Left out of the test, since they are secret: {', '.join(map(one_line, gone))}.", err=True)
    where = f" to {output}" if output else ""
    click.echo(f"Wrote a test of {letter.id}{where}. It holds the message as it came: read it before you share it.", err=True)
    return 0


async def _frozen(dlq: DeadLetters, question: Query) -> tuple[Query, int]:
    """What is there now and answers the question, and how many letters that are."""
    asked = dlq.within(question)
    return up_to(asked, await newest(dlq.letters, asked)), await dlq.letters.count(asked)


async def _whole(dlq: DeadLetters, letter: Letter) -> Letter:
    """The letter with its bodies inside, also those that lie in files of their own."""
    if letter.body_ref is None and (letter.original is None or letter.original.body_ref is None):
        return letter
    original = letter.original
    if original is not None:
        first = await dlq.body(replace(letter, body=original.body, body_ref=original.body_ref))
        original = replace(original, body=first, body_ref=None)
    return replace(letter, body=await dlq.body(letter), body_ref=None, original=original)
