"""`redrive copy`: move house, from any store to any other."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click
from msgspec import to_builtins

from redrive import wiring
from redrive.backends.files.bodies import FileBodies
from redrive.engine.copy import Copied, copy
from redrive.engine.observed import ObservedLetters
from redrive.engine.whole import Side
from redrive.model.errors import BadSettings, RedriveError
from redrive.model.finding import Health
from redrive.ports.opening import Opened
from redrive.serve.cli.acts import STOPPED, Show, bar, letters, say
from redrive.serve.cli.options import config_option, json_option, loaded
from redrive.serve.shape import as_json as to_json
from redrive.settings import masked


@click.command("copy")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option("--overwrite", is_flag=True, help="Replace letters in TO that differ from those in FROM.")
@click.option("--batch", type=click.IntRange(1, 10_000), default=500, show_default=True, help="Letters at a time, at most.")
@click.option("--dry-run", is_flag=True, help="Only compare; write nothing.")
@json_option
@config_option
def command(source: str, target: str, overwrite: bool, batch: int, dry_run: bool, as_json: bool, config: Path | None) -> int:
    """Copy all letters of the store FROM to the store TO (both are URLs), and verify them by count and checksum.

    What is in TO already is passed over, so after Ctrl-C or a crash the same command goes on from there. FROM stays as it is.
    """
    body_limit = loaded(None, config).settings.body_limit
    reached = Copied()

    async def run(show: Show) -> Copied:
        def progress(so_far: Copied) -> None:
            nonlocal reached
            reached = so_far
            show(so_far.seen, so_far.source_count)

        there, here = _opened(source, target)
        try:
            await _ensure_something(source, there)
            sides = [_side(opened, body_limit) for opened in (there, here)]
            return await copy(*sides, batch=batch, overwrite=overwrite, dry_run=dry_run, progress=progress)
        finally:
            await here.letters.close()
            await there.letters.close()

    try:
        with bar("copying", is_wanted=sys.stderr.isatty() and not as_json) as show:
            report = asyncio.run(run(show))
    except (KeyboardInterrupt, RedriveError) as error:
        return _cut_short(error, reached)
    if as_json:
        answer = {"from": masked(source), "to": masked(target), "dry_run": dry_run, "verified": report.is_verified}
        click.echo(to_json(answer | to_builtins(report)))
    else:
        _tell(report, masked(source), masked(target), is_dry=dry_run, overwrite=overwrite)
    if dry_run:
        return int(bool(report.held or report.failed or (report.differing and not overwrite)))
    return int(not report.is_verified)


def _opened(source: str, target: str) -> tuple[Opened, Opened]:
    """Both stores; `BadSettings` for what cannot be copied."""
    if _are_one(source, target):
        raise BadSettings(f"{masked(source)} and {masked(target)} are the same store; name another one to copy to")
    stores = wiring.store(source), wiring.store(target)
    for url, opened in zip((source, target), stores, strict=True):
        if not opened.letters.capabilities.shared:
            raise BadSettings(f"{masked(url)} lives and ends with one process; name a store that lasts")
    return stores


def _are_one(source: str, target: str) -> bool:
    """Do two URLs name one store: by the same words, or by paths that lead to one file?"""
    (scheme, _, first), (other, _, second) = (url.partition(":") for url in (source, target))
    if scheme not in wiring.STORES or wiring.STORES[scheme] != wiring.STORES.get(other):
        return False
    try:
        paths = [Path(location.removeprefix("//")).expanduser() for location in (first, second)]
        return first == second or paths[0].samefile(paths[1])
    except (OSError, ValueError, RuntimeError):
        return False


async def _ensure_something(url: str, opened: Opened) -> None:
    """Say what is wrong with a source that has no letters because it is not there; looking makes none."""
    if await opened.letters.count():
        return
    for finding in await opened.examine():
        if finding.what == "store" and finding.health is not Health.OK:
            raise BadSettings(f"there is nothing to copy from {masked(url)}: {finding.detail}")


def _side(opened: Opened, body_limit: int) -> Side:
    bodies = FileBodies(opened.bodies_folder) if opened.bodies_folder else None
    return Side(letters=ObservedLetters(opened.letters), bodies=bodies, body_limit=body_limit)


def _cut_short(error: BaseException, reached: Copied) -> int:
    """Say how far it came, and that nothing is lost."""
    is_stopped = isinstance(error, KeyboardInterrupt)
    if is_stopped or reached.seen:
        came = f" after {reached.seen:,} of {letters(reached.source_count)}" if reached.seen else ""
        click.echo(f"{'Stopped' if is_stopped else 'Broke off'}{came}; the same command goes on from there.", err=True)
    if not is_stopped:
        raise error
    return STOPPED


def _tell(report: Copied, source: str, target: str, *, is_dry: bool, overwrite: bool) -> None:
    if not report.seen:
        return say(f"{source} has no letters; nothing was copied.")
    were = ("is" if report.already == 1 else "are") if is_dry else ("was" if report.already == 1 else "were")
    parts = [
        f"{'Would copy' if is_dry else 'Copied'} {letters(report.copied)}",
        f"replaced {report.replaced:,}" if report.replaced else "",
        f"{report.already:,} {were} there already" if report.already else "",
    ]
    say("; ".join(part for part in parts if part) + ".")
    if report.differing:
        some = ", ".join(str(id)[:8] for id in report.differing_ids[:3])
        verb = "differs" if report.differing == 1 else "differ"
        hint = f"--overwrite puts what {source} has in their place"
        if overwrite:
            hint = "--overwrite would replace them" if is_dry else "they are held or were changed there; run it again"
        say(f"{letters(report.differing)} in {target} {verb} ({some}); {hint}.", "yellow")
    if report.held:
        are, they_are = ("is", "it is") if report.held == 1 else ("are", "they are")
        say(f"{letters(report.held)} {are} held by somebody and not copied; run it again when {they_are} settled.", "yellow")
    for problem in report.problems:
        say(f"Could not copy {problem}", "red")
    if len(report.problems) < report.failed:
        say(f"Could not copy {letters(report.failed)} in all.", "red")
    if report.seen != report.source_count:
        say(f"{source} changed meanwhile: {report.seen:,} were read, it has {report.source_count:,} now; run it again.", "yellow")
    if is_dry:
        return None
    if report.is_verified:
        checksum = report.source_checksum[:12]
        say(f"Verified by count and checksum {checksum}: every letter of {source} is in {target}, unchanged.", "green")
    else:
        say(f"Not verified: {report.arrived:,} of {report.source_count:,} letters of {source} are in {target}, unchanged.", "red")
    if report.others:
        say(f"{target} also has {letters(report.others)} from elsewhere.")
    return None
