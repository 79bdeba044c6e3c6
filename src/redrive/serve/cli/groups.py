"""`redrive groups`: which failures there are, and one of them in full."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import click
from msgspec import Struct, to_builtins

from redrive import blocking
from redrive.model.counted import counted
from redrive.model.language import parse
from redrive.model.query import Field, Group, GroupOrder, Is
from redrive.model.triage import Standing, Triage
from redrive.serve.cli.group_acts import ACTS
from redrive.serve.cli.options import (
    MOST,
    catch_up,
    config_option,
    json_option,
    limit_option,
    none_found,
    opened,
    print_json,
    store_option,
)
from redrive.serve.shape import as_json as to_json
from redrive.serve.shape import letter_shape

_SHORT = 8
_LATEST = 10
_PAGE = 1000


class Listing(click.Group):
    """A group of commands that lists when none of them is named: its help tells how."""

    default = "list"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return self.commands[self.default].collect_usage_pieces(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.commands[self.default].format_options(ctx, formatter)
        self.format_commands(ctx, formatter)


@click.group("groups", cls=Listing)
def command() -> None:
    """List the failures among letters, those seen last first; or only among the letters that answer QUERY.

    QUERY is as in `redrive search`: redrive groups status:exhausted. What groups are is told in docs/grouping.md.
    """


@command.command("list", hidden=True)
@click.argument("query", nargs=-1)
@click.option(
    "--order",
    type=click.Choice([order.value for order in GroupOrder]),
    default=GroupOrder.LAST_SEEN.value,
    show_default=True,
    help="What comes first; growth: in the last two hours against the two before.",
)
@click.option(
    "--state",
    "states",
    type=click.Choice([standing.value for standing in Standing]),
    multiple=True,
    help="Only groups that stand so; repeatable.",
)
@limit_option
@json_option
@store_option
@config_option
def list_(
    query: tuple[str, ...],
    store: str | None,
    config: Path | None,
    order: str,
    states: tuple[str, ...],
    limit: int | None,
    as_json: bool,
) -> None:
    """List the failures among letters, a line a group."""
    asked = parse(" ".join(query), datetime.now(UTC))
    with opened(store, config) as dlq:
        behind = catch_up(dlq, asked)
        most = 50 if limit is None and not as_json else limit
        # Each page may take a look at all letters that match: all that is wanted comes by one, and one group more tells whether there are others.
        page = min(most + 1, _PAGE) if most and not states else _PAGE
        all_groups = dlq.groups(asked, order=GroupOrder(order), page=page)
        found = (one for one in _standing(dlq, all_groups, page) if not states or one.standing in states)
        if as_json:
            print_json("groups", (one.shape for one in islice(found, most or None)), behind)
            return
        from redrive.serve.cli.group_page import groups_table
        from redrive.serve.cli.paper import console

        groups = list(islice(found, most or None))
        paper = console()
        if not groups:
            paper.print(none_found(asked, store, config), markup=False, soft_wrap=True)
            return
        paper.print(groups_table([one.group for one in groups], [one.standing for one in groups], width=paper.width))
        if len(groups) == most and next(found, None) is not None:
            paper.print(f"The first {counted(most, 'group')}; --limit 0 shows all.")
        else:
            paper.print(f"{counted(len(groups), 'group')}, {counted(sum(one.group.count for one in groups), 'letter')}.")


class Stood(Struct, frozen=True, kw_only=True):
    """A group as people may see it, and how it stands."""

    group: Group
    standing: Standing
    triage: Triage | None

    @property
    def shape(self) -> dict[str, Any]:
        return group_shape(self.group) | {"state": self.standing.value, "triage": to_builtins(self.triage)}


def _standing(dlq: blocking.DeadLetters, groups: Iterator[Group], page: int = 1) -> Iterator[Stood]:
    """Each group with how it stands, a page at a time."""
    while some := list(islice(groups, page)):
        for group, (standing, triage) in zip(some, dlq.triage.of(some), strict=True):
            yield Stood(group=dlq.shown_group(group), standing=standing, triage=triage)


def complete_groups(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Fingerprints that begin so, for the shell's completion."""
    try:
        with opened(ctx.params.get("store"), ctx.params.get("config")) as dlq:
            known = (group.fingerprint for group in islice(dlq.groups(), 1000))
            return [name for name in known if name.startswith(incomplete)]
    except Exception:
        return []


@command.command("show", short_help="Show one group: its course, its sources, its latest letters.")
@click.argument("fingerprint", shell_complete=complete_groups)
@click.option(
    "--limit", type=click.IntRange(0, MOST), default=_LATEST, show_default=True, help="So many of its latest letters; 0: all."
)
@json_option
@store_option
@config_option
def show(fingerprint: str, store: str | None, config: Path | None, limit: int, as_json: bool) -> None:
    """Show the group whose fingerprint begins with FINGERPRINT: its course, its sources, its latest letters."""
    with opened(store, config) as dlq:
        group = dlq.group(fingerprint)
        query = Is(Field.GROUP, group.fingerprint)
        sources = _sources(dlq, group)
        letters = map(dlq.shown, islice(dlq.find(query, page=min(limit or 100, 100)), limit or None))
        (stood,) = _standing(dlq, iter([group]))
        group = stood.group
        if as_json:
            shape = {"group": stood.shape | {"sources": sources}, "letters": list(map(letter_shape, letters))}
            click.echo(to_json(shape))
            return
        from redrive.serve.cli.group_page import group_story
        from redrive.serve.cli.paper import console, legible

        paper = console()
        paper.print(group_story(group, sources, letters, stood.standing, stood.triage, width=paper.width))
        if 0 < limit < group.count:
            more = f"redrive ls --group {shlex.quote(legible(group.fingerprint))} --limit 0"
            paper.print(f"{limit:,} of {group.count:,} letters; {more} lists all.", markup=False, soft_wrap=True)


for _command in ACTS:
    command.add_command(_command)


def _sources(dlq: blocking.DeadLetters, group: Group) -> dict[str, int]:
    """Where the group's letters come from, the most frequent first."""
    sources = dlq.letters.tally(Field.SOURCE, dlq.within(Is(Field.GROUP, group.fingerprint)))
    return dict(sorted(sources.items(), key=lambda source: (-source[1], source[0])))


def group_shape(group: Group) -> dict[str, Any]:
    """A group as JSON has it."""
    shape: dict[str, Any] = to_builtins(group)
    return shape | {"growth": group.growth}


def short_names(fingerprints: Iterable[str]) -> Iterator[str]:
    """The beginnings of fingerprints that tell those apart which are listed together."""
    names = list(fingerprints)
    longest = max(map(len, names), default=0)
    length = next((size for size in range(_SHORT, longest) if _are_distinct([name[:size] for name in names])), longest)
    return (name[: max(length, _SHORT)] for name in names)


def _are_distinct(names: Sequence[str]) -> bool:
    return len(set(names)) == len(names)
