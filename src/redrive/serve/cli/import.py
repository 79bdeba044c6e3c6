"""`redrive import`: letters that `redrive export` wrote go into a store, whole and without loss."""

# ruff: noqa: N999 - a command lies in the module of its name, and this one is a keyword

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, BinaryIO

import click
from msgspec import DecodeError, Struct, ValidationError, json, to_builtins

from redrive import wiring
from redrive.backends.files.bodies import FileBodies
from redrive.engine.bring_in import BroughtIn, bring_in
from redrive.engine.observed import ObservedLetters
from redrive.engine.whole import Side
from redrive.model.counted import counted
from redrive.model.errors import BadSettings, NotHeld, RedriveError
from redrive.model.letter import Letter
from redrive.model.stored import stored
from redrive.serve.cli.acts import STOPPED, Show, bar, letters, say
from redrive.serve.cli.cloud_events import letter_of_event
from redrive.serve.cli.lines import letter_of
from redrive.serve.cli.options import config_option, json_option, loaded, store_option, yes_option
from redrive.serve.shape import as_json as to_json
from redrive.settings import Settings, masked

_STANDARD_INPUT = "-"
_LARGEST = 2**63
_MARK = b"\xef\xbb\xbf"
"""What some editors put before UTF-8."""


@click.command("import")
@click.argument("file", default=_STANDARD_INPUT, type=click.Path(path_type=Path))
@click.option("--replace", "overwrite", is_flag=True, help="Put letters of FILE in the place of those that differ.")
@click.option("--dry-run", is_flag=True, help="Only compare; write nothing.")
@yes_option
@json_option
@store_option
@config_option
def command(file: Path, overwrite: bool, dry_run: bool, yes: bool, as_json: bool, store: str | None, config: Path | None) -> int:
    """Put the letters of FILE, or of standard input (-), into the store, as they are: with status, history and generation.

    FILE is what `redrive export` wrote: lines of JSON or CloudEvents. What is in the store already is passed over, so after
    Ctrl-C or a crash the same command goes on from there. The exit status is 0 when every letter is in the store, else 1.
    """
    work = _Import(file, loaded(store, config).settings, as_json=as_json)
    if overwrite and not yes and not dry_run:
        work.ask()
    try:
        report = work.run("comparing" if dry_run else "importing", overwrite=overwrite, dry_run=dry_run)
    except (KeyboardInterrupt, RedriveError) as error:
        return _cut_short(error, work.reached)
    if as_json:
        click.echo(to_json({"store": work.name, "dry_run": dry_run, "whole": report.is_whole} | to_builtins(report)))
    else:
        _tell(report, work.name, is_dry=dry_run, overwrite=overwrite)
    if dry_run and overwrite:
        return int(bool(report.unreadable or report.failed))
    return int(not report.is_whole)


class _Import:
    """One file on its way into one store."""

    def __init__(self, file: Path, settings: Settings, *, as_json: bool) -> None:
        self._file = file
        self._settings = settings
        self._as_json = as_json
        self.name = masked(settings.store)
        self.reached = BroughtIn()

    def ask(self) -> None:
        """Have a person agree to what would be replaced, after it was counted."""
        if not self._is_read_twice():
            raise click.UsageError("What is read only once cannot be compared first. Say --yes to replace letters that differ.")
        differing = self.run("comparing", overwrite=True, dry_run=True).differing
        if differing and (self._as_json or sys.stdin is None or not sys.stdin.isatty()):
            raise click.UsageError(f"This would replace {letters(differing)}. Say --yes to do it without being asked.")
        if differing:
            question = "differs; replace it?" if differing == 1 else "differ; replace them?"
            click.confirm(f"{letters(differing)} in {self.name} {question}", abort=True)

    def _is_read_twice(self) -> bool:
        """Can it be read once to compare and once to import?"""
        if str(self._file) == _STANDARD_INPUT:
            return False
        with _opened(self._file) as given:
            return _is_on_disk(given)

    def run(self, doing: str, *, overwrite: bool, dry_run: bool) -> BroughtIn:
        """Read the file to its end; say what became of its letters."""
        is_wanted = sys.stderr.isatty() and not self._as_json
        self.reached = BroughtIn()
        total = 0

        async def work(lines: Iterator[bytes], show: Show) -> BroughtIn:
            def progress(so_far: BroughtIn) -> None:
                self.reached = so_far
                show(so_far.lines, total)

            opened = wiring.store(self._settings.store, desk=self._settings.desk)
            try:
                if not opened.letters.capabilities.shared:
                    raise BadSettings(f"{self.name} lives and ends with one process; name a store that lasts")
                bodies = FileBodies(opened.bodies_folder) if opened.bodies_folder else None
                side = Side(letters=ObservedLetters(opened.letters), bodies=bodies, body_limit=self._settings.body_limit)
                return await bring_in(lines, _letter_in, side, overwrite=overwrite, dry_run=dry_run, progress=progress)
            finally:
                await opened.letters.close()

        with _opened(self._file) as given, bar(doing, is_wanted=is_wanted, unit="lines") as show:
            total = _number_of_lines(given) if is_wanted else 0
            return asyncio.run(work(_lines(given, self._file), show))


@contextmanager
def _opened(file: Path) -> Iterator[BinaryIO | None]:
    """What letters are read from; `BadSettings` when it cannot be opened."""
    if str(file) == _STANDARD_INPUT:
        if sys.stdin is not None and sys.stdin.isatty():
            click.echo("Reading letters from the terminal; end them with Ctrl-D.", err=True)
        yield sys.stdin.buffer if sys.stdin is not None else None
        return
    try:
        given = file.open("rb")
    except FileNotFoundError as error:
        raise BadSettings(f"there is no file {file}; name one that redrive export wrote, or - for standard input") from error
    except IsADirectoryError as error:
        raise BadSettings(f"{file} is a directory; name a file that redrive export wrote") from error
    except (OSError, ValueError) as error:
        raise BadSettings(f"{file} cannot be opened: {getattr(error, 'strerror', error)}") from error
    with given:
        yield given


def _lines(given: BinaryIO | None, file: Path) -> Iterator[bytes]:
    """One line after the other, each with its end."""
    is_first = True
    while given is not None:
        try:
            with _interruptible():
                line = given.readline()
        except OSError as error:
            name = "standard input" if str(file) == _STANDARD_INPUT else file
            raise BadSettings(f"{name} cannot be read: {error.strerror}") from error
        if not line:
            return
        yield line.removeprefix(_MARK) if is_first else line
        is_first = False


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C end a read that waits for more: the event loop would hear of it only when the read is over."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        # What came just before this is known to the event loop alone, which has no turn until the read is over.
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise KeyboardInterrupt
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _is_on_disk(given: BinaryIO | None) -> bool:
    """Is it a file, which can be read again from its start?"""
    return given is not None and stat.S_ISREG(os.fstat(given.fileno()).st_mode)


def _number_of_lines(given: BinaryIO | None) -> int:
    """How many lines are still to be read; 0 when only reading them would tell."""
    if given is None or not _is_on_disk(given):
        return 0
    start = given.tell()
    number = sum(chunk.count(b"\n") for chunk in iter(lambda: given.read(1 << 20), b""))
    given.seek(start)
    return number


class _Kind(Struct, frozen=True):
    """As much of a line as says what it is."""

    specversion: Any = None
    schema: Any = None


def _letter_in(line: bytes) -> Letter:
    """The letter in a line, be it a line of JSON or a CloudEvent; `BadSettings` when it holds none."""
    try:
        line.decode()
        kind = json.decode(line, type=_Kind)
    except UnicodeDecodeError as error:
        raise BadSettings("this line is not UTF-8") from error
    except ValidationError as error:
        raise BadSettings("this line holds no letter: a letter is a JSON object") from error
    except DecodeError as error:
        raise BadSettings(f"this line is no JSON: {str(error).removeprefix('JSON is malformed: ')}") from error
    except RecursionError as error:
        raise BadSettings("this line holds no letter: it is nested too deep") from error
    if kind.specversion is None and kind.schema is None:
        raise BadSettings("this line holds no letter: it has neither schema nor specversion, as what redrive export writes has")
    if kind.specversion is None and not isinstance(kind.schema, int):
        raise BadSettings("this line holds no letter: its schema is no number")
    letter = letter_of(line) if kind.specversion is None else letter_of_event(line)
    _ensure_storable(letter)
    return letter


def _ensure_storable(letter: Letter) -> None:
    """Refuse what only a line made by hand can hold, before a store stumbles over it."""
    retry, redriven = letter.retry, letter.redrive
    instants = [letter.first_received_at, letter.dead_lettered_at, letter.updated_at, *(attempt.at for attempt in letter.history)]
    instants += filter(None, [letter.expires_at, retry.next_retry_at, redriven.last_at])
    counts = [letter.generation - 1, letter.history_dropped, retry.retry_count, retry.max_retries or 0, redriven.count]
    if any(instant.utcoffset() != timedelta(0) for instant in instants):
        raise BadSettings("this line holds no letter: its instants must be in UTC, e.g. 2026-01-31T14:00:00Z")
    if min(counts) < 0 or not all(-_LARGEST <= number < _LARGEST for number in (*counts, letter.priority)):
        raise BadSettings("this line holds no letter: a number in it is too small or too large")
    try:
        stored(letter)
    except NotHeld as error:
        raise BadSettings(f"this line holds no letter: {error}") from error


def _cut_short(error: BaseException, reached: BroughtIn) -> int:
    """Say how far it came, and that nothing is lost."""
    is_stopped = isinstance(error, KeyboardInterrupt)
    _tell_mistakes(reached)
    if is_stopped or reached.lines:
        came = f" after {counted(reached.lines, 'line')}" if reached.lines else ""
        click.echo(f"{'Stopped' if is_stopped else 'Broke off'}{came}; the same command goes on from there.", err=True)
    if not is_stopped:
        raise error
    return STOPPED


def _tell(report: BroughtIn, store: str, *, is_dry: bool, overwrite: bool) -> None:
    _tell_mistakes(report)
    if not report.lines:
        return say("There are no letters to import.")
    were = ("is" if report.already == 1 else "are") if is_dry else ("was" if report.already == 1 else "were")
    parts = [
        f"{'Would import' if is_dry else 'Imported'} {letters(report.brought)}",
        f"replaced {report.replaced:,}" if report.replaced else "",
        f"{report.already:,} {were} there already" if report.already else "",
    ]
    say("; ".join(part for part in parts if part) + ".", "green" if report.is_whole else "")
    if report.differing:
        some = ", ".join(str(id)[:8] for id in report.differing_ids[:3])
        verb = "differs" if report.differing == 1 else "differ"
        hint = "--replace puts what was read in their place"
        if overwrite:
            hint = "--replace would replace them" if is_dry else "they are held or were changed there; run it again"
        say(f"{letters(report.differing)} in {store} {verb} ({some}); {hint}.", "yellow")
    if report.held:
        were, are = ("was", "it is") if report.held == 1 else ("were", "they are")
        say(f"{letters(report.held)} {were} held by somebody when exported; {are} pending here.", "yellow")
    for problem in report.problems:
        say(f"Could not import {problem}", "red")
    if len(report.problems) < report.failed:
        say(f"Could not import {letters(report.failed)} in all.", "red")
    return None


def _tell_mistakes(report: BroughtIn) -> None:
    from redrive.serve.cli.paper import one_line

    for mistake in report.mistakes:
        click.echo(one_line(f"Could not read {mistake}"), err=True)
    if len(report.mistakes) < report.unreadable:
        click.echo(f"Could not read {counted(report.unreadable, 'line')} in all.", err=True)
