"""`redrive edit`: repair letters, one in an editor or many by a patch or a function, after a look at the differences."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, BinaryIO

import click

from redrive import blocking
from redrive.engine.alter import UNDO, Mending, Valid, by_function, by_hand, by_patch, by_schema, by_type
from redrive.engine.foresee import Repaired, RepairPlan
from redrive.engine.owner import owner_name
from redrive.model.errors import RedriveError
from redrive.model.patch import Patch
from redrive.serve.cli.acts import asked, bar, cut_short, letters
from redrive.serve.cli.edit_page import show_plan, show_what_became, status_of, told_shape
from redrive.serve.cli.editor import edited
from redrive.serve.cli.options import are_ids, complete_ids, config_option, json_option, opened, store_option, yes_option
from redrive.serve.shape import as_json as to_json

_HAND = ("body", "content_type", "headers", "without", "target")


@click.command("edit")
@click.argument("query", nargs=-1, shell_complete=complete_ids)
@click.option("--body", type=click.File("rb"), metavar="FILE", help="The new body; - reads it from standard input.")
@click.option("--content-type", metavar="TYPE", help="The new type of the body.")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="Set a header; may be given often.")
@click.option("--without-header", "without", multiple=True, metavar="NAME", help="Take a header away; may be given often.")
@click.option(
    "--target",
    metavar="URL",
    help="Where it goes back to: queue:NAME, mailbox:NAME, kafka:TOPIC, py:module:function, http://…, or a source of [targets]; source: to its own.",
)
@click.option("--patch", type=click.File("rb"), metavar="FILE", help="A JSON Patch (RFC 6902) for JSON bodies.")
@click.option("--patch-inline", metavar="JSON", help='The patch itself: \'[{"op": "remove", "path": "/debug"}]\'.')
@click.option(
    "--function", metavar="MODULE:FUNCTION", help="A function that gets what a JSON body holds and returns what it becomes."
)
@click.option("--undo", is_flag=True, help="Put back what came: body, content type, headers and target.")
@click.option("--schema", type=click.File("rb"), metavar="FILE", help="Only bodies that fit this JSON Schema.")
@click.option(
    "--type", "kind", metavar="MODULE:TYPE", help="Only bodies that this pydantic model, msgspec type or dataclass takes."
)
@click.option("--sample", type=click.IntRange(0), default=3, show_default=True, help="Show the differences of so many letters.")
@click.option("--again", is_flag=True, help="Also letters that are as this very repair left them.")
@click.option("--dry-run", is_flag=True, help="Only show what would be changed.")
@yes_option
@json_option
@store_option
@config_option
def command(
    query: tuple[str, ...],
    sample: int,
    again: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    store: str | None,
    config: Path | None,
    **options: Any,
) -> int:
    """Repair letters: those with these ids, or that answer QUERY; for all of them write all.

    One id without an option opens its body in your editor. Many are shown first: how many change, and how. What came is kept
    for ever, and --undo puts it back as long as the letter was not sent.
    """
    sys.path.insert(0, str(Path.cwd()))
    if not query:
        raise click.UsageError("Say which letters: ids, a question such as 'source:orders error:UnknownCurrency', or all.")
    mending = _mending(options)
    with opened(store, config) as dlq:
        which = _which(dlq, query)
        is_one = len(which.get("ids", ())) == 1
        if mending is None:
            if not is_one:
                raise click.UsageError(
                    "Say what to change: --patch, --function, --header, --body, --target or --undo; or give one id to edit."
                )
            body = edited(dlq, which["ids"][0])
            if body is None:
                return _nothing(as_json)
            mending = by_hand(body=body, valid=_valid(options))
        is_shown = sys.stderr.isatty() and not as_json
        with bar("looking", is_wanted=is_shown) as show:
            plan = dlq.repairs.plan(
                mending, sample=sample, again=again, progress=lambda so_far: show(so_far.seen, so_far.seen), **which
            )
        is_asked = bool(plan.foreseen.done) and not (dry_run or yes or is_one)
        if is_asked and (as_json or not sys.stdin.isatty()):
            raise click.UsageError(f"This would change {letters(plan.foreseen.done)}. Say --yes to do it without being asked.")
        if not as_json:
            show_plan(dlq, plan)
        if dry_run or not plan.foreseen.done:
            return _told(dlq, plan, None, as_json=as_json, dry_run=dry_run)
        if is_asked:
            click.confirm(f"{'Put back' if mending.puts_back else 'Change'} {letters(plan.foreseen.done)}?", abort=True)
        return _carried_out(dlq, plan, as_json=as_json, is_shown=is_shown)


def _mending(options: dict[str, Any]) -> Mending | None:
    """What the options ask for; None: nothing, so the editor is opened."""
    by_name = ("patch", "patch_inline", "function", "undo")
    # An empty text is given too: a variable that is not set must not open an editor.
    given = {name for name, value in options.items() if value not in (None, False, ())}
    ways = [f"--{name.replace('_', '-')}" for name in by_name if name in given]
    ways += ["--body, --header, --content-type and --target"] if given & set(_HAND) else []
    if len(ways) > 1:
        raise click.UsageError(f"Give one of {' and '.join(ways)}.")
    if options["undo"] and given & {"schema", "kind"}:
        raise click.UsageError("What is put back is not checked; leave --schema and --type out.")
    if options["undo"]:
        return UNDO
    if not ways:
        return None
    valid = _valid(options)
    if "function" in given:
        return by_function(options["function"], valid=valid)
    if given & {"patch", "patch_inline"}:
        return by_patch(Patch.read(options["patch"].read() if "patch" in given else options["patch_inline"]), valid=valid)
    file: BinaryIO | None = options["body"]
    pairs = [(name, value.encode("utf-8", "surrogateescape")) for name, value in map(_pair, options["headers"])]
    return by_hand(
        body=None if file is None else file.read(),
        content_type=options["content_type"],
        headers=pairs,
        without=options["without"],
        target=options["target"],
        valid=valid,
    )


def _valid(options: dict[str, Any]) -> Valid | None:
    if options["schema"] and options["kind"] is not None:
        raise click.UsageError("Give --schema or --type, not both.")
    if options["schema"]:
        return by_schema(options["schema"].read())
    return None if options["kind"] is None else by_type(options["kind"])


def _pair(given: str) -> tuple[str, str]:
    name, equals, value = given.partition("=")
    if not equals or not name:
        raise click.UsageError(f"'{given}' is not a header; write NAME=VALUE")
    return name, value


def _which(dlq: blocking.DeadLetters, words: tuple[str, ...]) -> dict[str, Any]:
    """The letters that are meant, as a plan takes them."""
    if are_ids(words):
        return {"ids": [dlq.get(word).id for word in words]}
    return {"query": asked(words)}


def _carried_out(dlq: blocking.DeadLetters, plan: RepairPlan, *, as_json: bool, is_shown: bool) -> int:
    reached = Repaired()

    def progress(so_far: Repaired) -> None:
        nonlocal reached
        reached = so_far
        show(so_far.seen, so_far.matched)

    try:
        with bar("putting back" if plan.mending.puts_back else "changing", is_wanted=is_shown) as show:
            repaired = dlq.repairs.carry_out(plan, by=owner_name(), progress=progress)
    except (KeyboardInterrupt, RedriveError) as error:
        return cut_short(error, reached.done, plan.foreseen.matched, "changed")
    return _told(dlq, plan, repaired, as_json=as_json, dry_run=False)


def _told(dlq: blocking.DeadLetters, plan: RepairPlan, repaired: Repaired | None, *, as_json: bool, dry_run: bool) -> int:
    if as_json:
        click.echo(to_json(told_shape(dlq, plan, repaired, dry_run=dry_run)))
    else:
        show_what_became(plan, repaired, dry_run=dry_run)
    return 0 if dry_run else status_of(repaired or plan.foreseen)


def _nothing(as_json: bool) -> int:
    if as_json:
        click.echo(to_json({"act": "edit", "dry_run": False, "matched": 1, "done": 0, "unchanged": 1}))
    else:
        click.echo("Nothing was changed.")
    return 0
