"""`redrive run`: dead letters for cron jobs and shell scripts."""

from __future__ import annotations

import asyncio
import signal
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import click
from msgspec.structs import replace

from redrive import wiring
from redrive.engine.process import Input
from redrive.engine.run import HEADER, KIND, Command, CommandFailed, as_header, run_command
from redrive.model.backoff import Backoff, exponential, immediate, linear
from redrive.model.letter import headers, letter_id
from redrive.model.message import Message
from redrive.model.policy import Policy
from redrive.model.redaction_rules import rules_of
from redrive.serve.cli.options import Duration, config_option, loaded, standard_input, store_option
from redrive.settings import Settings, load_policy


@click.command("run", context_settings={"allow_interspersed_args": False})
@click.option("--source", required=True, help="The name of this job, e.g. nightly.")
@click.option("--source-id", help="An id for this run; a later failure under the same id joins the same letter.")
@click.option("--attempts", type=click.IntRange(min=1), default=1, show_default=True, help="Tries in all.")
@click.option("--backoff", type=click.Choice(["immediate", "linear", "exponential"]), default="exponential", show_default=True)
@click.option("--first", type=Duration(), default="1s", show_default=True, help="The first wait between tries.")
@click.option("--cap", type=Duration(), default="1m", show_default=True, help="The longest wait.")
@click.option(
    "--policy", "file", type=click.Path(path_type=Path, dir_okay=False), help="A policy in TOML or YAML, instead of these."
)
@click.option("--no-input", is_flag=True, help="Give the program no standard input.")
@click.option("--quiet", "-q", is_flag=True, help="Say nothing when a letter is held.")
@store_option
@config_option
@click.argument("argv", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND…")
def command(
    source: str,
    source_id: str | None,
    attempts: int,
    backoff: str,
    first: timedelta,
    cap: timedelta,
    file: Path | None,
    no_input: bool,
    quiet: bool,
    store: str | None,
    config: Path | None,
    argv: tuple[str, ...],
) -> int:
    """Run a program under a policy. When it fails for good, keep a letter with its arguments, input, exit status and stderr.

    Its output passes through and its exit status is ours. `redrive replay ID` runs it again, in the same folder, with the
    same input. The environment is not kept: it may hold secrets.
    """
    waits: dict[str, Backoff] = {
        "immediate": immediate(),
        "linear": linear(first, cap=cap),
        "exponential": exponential(first, cap=cap),
    }
    policy = load_policy(file) if file else Policy(max_attempts=attempts, backoff=waits[backoff])
    settings = loaded(store, config).settings
    what = Command(argv=argv, cwd=str(Path.cwd()))
    given = Input.of(b"") if no_input else standard_input()
    message = Message(body=b"", id=source_id or str(uuid4()), kind=KIND, headers=headers({HEADER: as_header(what)}))
    try:
        asyncio.run(_guarded(settings, source, message, what, given, policy))
    except CommandFailed as failed:
        if not quiet:
            held = letter_id(settings.namespace, source, rules_of(settings.redact).identity(message.id or ""))
            click.echo(f"redrive: kept as letter {held}; `redrive replay {str(held)[:8]}` runs it again", err=True)
        return failed.exit.as_shell
    except asyncio.CancelledError:
        return 128 + signal.SIGTERM
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 0


async def _guarded(settings: Settings, source: str, message: Message, what: Command, given: Input | None, policy: Policy) -> None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with wiring.connect(settings) as dlq:
        # Better to learn now than after hours of work that its failure could not be kept.
        await dlq.letters.check()

        @dlq.guard(
            source=source,
            policy=policy,
            extract=lambda: replace(message, body=bytes(given.kept) if given else b""),
            after="raise",
        )
        async def job() -> None:
            exit = await run_command(what, given)
            if exit.status != 0:
                raise CommandFailed(what, exit)

        await job()
