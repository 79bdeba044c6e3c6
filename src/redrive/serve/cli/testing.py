"""`redrive testing`: made-up letters to try things with."""

from __future__ import annotations

import asyncio
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import click

from redrive import wiring
from redrive.serve.cli.acts import STOPPED, Show, bar, letters, say
from redrive.serve.cli.options import config_option, json_option, loaded, store_option
from redrive.serve.shape import as_json as to_json
from redrive.settings import masked


@click.group("testing")
def command() -> None:
    """Fill a store with made-up letters, to try things with. Needs the extra `testing`."""


@command.command("fill")
@click.option("--count", type=click.IntRange(1), default=10_000, show_default=True, help="So many letters.")
@click.option("--groups", type=click.IntRange(1), default=10_000, show_default=True, help="So many different failures, at most.")
@click.option("--seed", type=int, default=7, show_default=True, help="The same seed makes the same letters.")
@click.option(
    "--days", type=click.FloatRange(0, min_open=True), default=30, show_default=True, help="They died over so many days."
)
@click.option("--until", metavar="TIME", type=click.DateTime(), help="The last of them died then (UTC); now, unless it is given.")
@json_option
@store_option
@config_option
def fill(
    count: int,
    groups: int,
    seed: int,
    days: float,
    until: datetime | None,
    as_json: bool,
    store: str | None,
    config: Path | None,
) -> int:
    """Put made-up letters into the store: few failures make most of them, most words are rare, some hours are bad.

    A seed and a letter's number say which message it is: filled twice, a store has the same letters.
    """
    from redrive.testing import fill as filling  # needs the extra

    settings = loaded(store, config).settings
    end = datetime.now(UTC) if until is None else until.replace(tzinfo=UTC)
    made = filling.letters(count, groups=groups, seed=seed, days=days, end=end, namespace=settings.namespace)
    reached = 0

    async def run(show: Show) -> None:
        def progress(done: int) -> None:
            nonlocal reached
            reached = done
            show(done, count)

        async with wiring.connect(settings) as dlq:
            await filling.fill(dlq.letters, made, progress=progress)

    started = time.monotonic()
    try:
        with bar("filling", is_wanted=sys.stderr.isatty() and not as_json) as show:
            asyncio.run(run(show))
    except KeyboardInterrupt:
        click.echo(f"Stopped after {letters(reached)}; the same command goes on from there.", err=True)
        return STOPPED
    took = time.monotonic() - started
    if as_json:
        click.echo(to_json({"put": reached, "seconds": round(took, 3), "store": masked(settings.store)}))
    else:
        say(f"Put {letters(reached)} into {masked(settings.store)} in {took:.1f} s, {reached / took:,.0f} a second.")
    return 0
