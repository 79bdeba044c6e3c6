"""`redrive doctor`: check that everything is in order."""

from __future__ import annotations

import asyncio
import importlib.util
import platform
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import click
from msgspec import Struct, to_builtins

from redrive import wiring
from redrive.backends.files.bodies import FileBodies
from redrive.engine import journal
from redrive.engine.hold import body_refs
from redrive.model.census import Miscount
from redrive.model.counted import counted
from redrive.model.finding import Finding, Health
from redrive.model.query import Field
from redrive.ports.letters import LetterStore
from redrive.serve.cli.options import config_option, json_option, loaded, store_option
from redrive.serve.shape import as_json as to_json
from redrive.settings import Settings, masked
from redrive.version import __version__

_EXTRAS = {
    "http": ("httptools", "google.protobuf", "prometheus_client"),
    "otel": ("opentelemetry",),
    "yaml": ("yaml",),
    "postgres": ("asyncpg",),
    "redis": ("redis",),
    "opensearch": ("opensearchpy",),
    "kafka": ("confluent_kafka",),
    "schema": ("jsonschema",),
    "testing": ("pytest", "hypothesis"),
}
_NEEDED = ("store", "integrity", "rights")
"""What must be in order before letters are looked at; what else is amiss does not keep anybody from that."""
_SHOWN = 20
_PAGE = 1000
_MARKS = {Health.OK: ("✓", "green"), Health.NOTE: ("•", "yellow"), Health.BAD: ("✗", "red")}


class _Examined(Struct, frozen=True, kw_only=True):
    """What was found; `miscounts` is None when letters were not recounted."""

    findings: list[Finding]
    miscounts: list[Miscount] | None = None


@click.command("doctor")
@click.option("--recount", is_flag=True, help="Also count all letters, and compare that with the counts that the store keeps.")
@click.option("--repair", is_flag=True, help="With --recount: put right what differs.")
@json_option
@store_option
@config_option
def command(recount: bool, repair: bool, as_json: bool, store: str | None, config: Path | None) -> int:
    """Check the installation, the store, its bodies and the journal; exit 1 when something must be done."""
    if repair and not recount:
        raise click.UsageError("--repair goes with --recount.")
    settings = loaded(store, config).settings
    with _counting(is_wanted=recount and sys.stderr.isatty() and not as_json):
        examined = asyncio.run(_examined(settings, recount=recount, repair=repair))
    findings, miscounts = examined.findings, examined.miscounts or []
    is_sick = any(finding.health is Health.BAD for finding in findings)
    if as_json:
        shape: dict[str, object] = {
            "healthy": not is_sick,
            "checks": [{"what": one.what, "health": one.health.value, "detail": one.detail} for one in findings],
        }
        if examined.miscounts is not None:
            shape["recount"] = {"miscounts": to_builtins(miscounts), "repaired": repair and bool(miscounts)}
        click.echo(to_json(shape))
        return int(is_sick)
    from rich.table import Table
    from rich.text import Text

    from redrive.serve.cli.paper import console, legible

    table = Table.grid(padding=(0, 2))
    for finding in findings:
        table.add_row(Text(*_MARKS[finding.health]), finding.what, Text(finding.detail))
    paper = console()
    paper.print(table)
    for one in miscounts[:_SHOWN]:
        paper.print(Text(legible(f"   {one.what}: kept {one.kept:,}, there are {one.real:,}")), soft_wrap=True)
    if len(miscounts) > _SHOWN:
        paper.print(f"   and {len(miscounts) - _SHOWN:,} more")
    paper.print("Something must be done." if is_sick else "All is well.")
    return int(is_sick)


@contextmanager
def _counting(*, is_wanted: bool) -> Iterator[None]:
    """Say on a terminal what takes so long: a million letters take some seconds."""
    if not is_wanted:
        yield
        return
    from rich.console import Console

    with Console(stderr=True, highlight=False).status("counting…"):
        yield


async def _examined(settings: Settings, *, recount: bool, repair: bool) -> _Examined:
    opened = wiring.store(settings.store, desk=settings.desk)
    miscounts = None
    try:
        findings = [*_installation(), *await opened.examine()]
        in_the_way = [one.what for one in findings if one.what in _NEEDED and one.health is not Health.OK]
        if recount and not opened.letters.capabilities.counters:
            findings.append(Finding("counts", Health.OK, "this store keeps none: it counts when somebody asks"))
        elif recount and not in_the_way:
            miscounts = await opened.letters.recount(repair=repair)
            findings.append(_counts(miscounts, is_repaired=repair))
        elif recount:
            findings.append(Finding("counts", Health.NOTE, f"not recounted before this is in order: {', '.join(in_the_way)}"))
        if not in_the_way:
            by_status = await opened.letters.tally(Field.STATUS)
            told = ", ".join(f"{count:,} {status}" for status, count in sorted(by_status.items()))
            findings.append(Finding("letters", Health.OK, f"{masked(settings.store)}: {told or 'none'}"))
            if opened.bodies_folder is not None and opened.bodies_folder.exists():
                findings.append(await _bodies(opened.letters, opened.bodies_folder))
        return _Examined(findings=[*findings, *_journals(settings.journal_folder())], miscounts=miscounts)
    finally:
        await opened.letters.close()


def _counts(miscounts: list[Miscount], *, is_repaired: bool) -> Finding:
    if not miscounts:
        return Finding("counts", Health.OK, "recounted: all that are kept are what is there")
    number, is_one = counted(len(miscounts), "count"), len(miscounts) == 1
    if is_repaired:
        return Finding("counts", Health.NOTE, f"{number} differed from what is there and {'was' if is_one else 'were'} put right")
    differ = "differs" if is_one else "differ"
    return Finding("counts", Health.BAD, f"{number} {differ} from what is there; mend with: redrive doctor --recount --repair")


def _installation() -> list[Finding]:
    missing = [extra for extra, modules in _EXTRAS.items() if any(importlib.util.find_spec(name) is None for name in modules)]
    present = [extra for extra in _EXTRAS if extra not in missing]
    extras = f"installed: {', '.join(present) or 'none'}" + (f"; not installed: {', '.join(missing)}" if missing else "")
    versions = f"{__version__} on Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    return [Finding("redrive", Health.OK, versions), Finding("extras", Health.OK, extras)]


async def _bodies(letters: LetterStore, folder: Path) -> Finding:
    """Body files that are missing, whose letter is gone, or was never held because the process died in between."""
    known: set[str] = set()
    page = await letters.find(limit=_PAGE)
    while True:
        known |= {ref.name for letter in page.letters for ref in body_refs(letter)}
        if page.next is None:
            break
        page = await letters.find(limit=_PAGE, after=page.next)
    missing = [name for name in sorted(known) if not (folder / name).exists()]
    if missing:
        return Finding("bodies", Health.BAD, f"{folder}: {len(missing)} missing, e.g. {missing[0]}; restore them from a backup")
    orphans = await FileBodies(folder).orphans(known, timedelta(hours=1))
    if not orphans:
        return Finding("bodies", Health.OK, f"{folder}: {len(known)} large bodies, none without a letter")
    return Finding(
        "bodies", Health.NOTE, f"{folder}: {len(orphans)} files belong to no letter and may be removed, e.g. {orphans[0]}"
    )


def _journals(folder: Path) -> list[Finding]:
    try:
        waiting = [one for one in journal.pending(folder) if one.letters != 0] if folder.exists() else []
        aside = journal.set_aside(folder)
    except OSError as error:
        return [Finding("journal", Health.BAD, f"{folder}: {error.strerror}; choose another folder with REDRIVE_JOURNAL")]
    looked = [
        Finding("journal", Health.NOTE, f"{path.name}: could not go to the store and was kept for you to look at")
        for path in aside
    ]
    if not waiting:
        return looked or [Finding("journal", Health.OK, "nothing waits")]
    return looked + [
        Finding(
            "journal",
            Health.NOTE,
            f"{one.name}: {'an unknown number of' if one.letters is None else one.letters} letters wait for their store"
            + ("" if one.is_owned else "; its process is gone, the next one that opens the store takes it over"),
        )
        for one in waiting
    ]
