"""`redrive`: its commands, loaded when they are called, and how mistakes are answered."""

from __future__ import annotations

import errno
import importlib
import io
import os
import sys
from contextlib import suppress
from difflib import get_close_matches
from typing import Any, TextIO

import click

from redrive.model.errors import BadQuery, RedriveError
from redrive.serve.errors import FAILED, exit_status
from redrive.version import __version__

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}

COMMANDS = {
    "up": "Stay up and serve health, metrics and what joins them.",
    "demo": "Watch a consumer fail in five ways, and its letters go back.",
    "ls": "List letters.",
    "search": "Find letters by words and conditions.",
    "show": "Show one letter with its whole story.",
    "groups": "List the failures among letters, and show one of them.",
    "stats": "Show how many letters there are, of what, and what grows; with --watch live.",
    "edit": "Repair letters: in your editor, by a patch or by a function; undo it.",
    "collect": "Move letters from a dead queue into the store.",
    "replay": "Send letters back, after a look at what that would mean.",
    "try": "Run a letter through a handler in a process of its own; the letter stays as it is.",
    "ops": "Look at replays; pause one, go on with it, cancel it.",
    "receipts": "Look at what handlers that work once have done; forget some.",
    "queue": "Create queues, and put, lease and look at what waits in them.",
    "capture": "Make a letter from the shell.",
    "run": "Run a program under a policy; keep its failures as letters.",
    "policy": "See what a policy decides, test one, or print one to start from.",
    "dlq": "Look after the workflow DLQ: status, list, show, retry, archive, clear.",
    "alerts": "Try the targets that are told of exhausted letters.",
    "archive": "Put letters away.",
    "restore": "Bring back letters that were archived or discarded.",
    "discard": "Give letters up, for a reason.",
    "purge": "Remove letters for good.",
    "export": "Write letters out as lines of JSON, whole and without loss.",
    "import": "Put letters that were exported into the store, as they are.",
    "copy": "Move house: copy all letters to another store, and verify them.",
    "config": "Print every setting and where it came from.",
    "doctor": "Check that everything is in order.",
    "tidy": "Do what the store has put off: index texts, sum up counts, give back space.",
    "testing": "Fill a store with made-up letters, to try things with.",
    "completion": "Print the completion script for your shell.",
}
"""Name → help, in the order a newcomer meets them; each is the object `command` of the module of its name."""


class Commands(click.Group):
    """Loads a command's module when it is called, and names the nearest when there is none."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"redrive.serve.cli.{cmd_name}").command
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and name not in COMMANDS:
            near = get_close_matches(name, COMMANDS, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(COMMANDS)}."
            raise click.UsageError(f"There is no command '{name}'; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="redrive")
def redrive() -> None:
    """The dead-letter layer: find, understand and drive back what your consumers failed on.

    The store is --store URL (or REDRIVE_STORE); the default is sqlite:redrive.db.
    """


def main(args: list[str] | None = None) -> Any:
    """Run a command. A mistake gets one clear sentence and no traceback; 0 done, 1 failed, 2 usage."""
    if sys.stdout is None:
        # It was closed by whoever started us: nobody wants to hear anything. Its number is taken, so that no store's file gets it.
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", closefd=False)
    stdout = sys.stdout
    for stream in (stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that cannot show a sign shows a question mark; no command fails for that.
            stream.reconfigure(errors="replace")
    mistake: OSError | None = None
    try:
        status = _status(redrive.main(args, prog_name="redrive", standalone_mode=False))
    except click.exceptions.Abort:
        click.echo("Stopped.", err=True)
        status = 130
    except click.ClickException as error:
        error.show()
        status = error.exit_code
    except RedriveError as error:
        click.echo(f"Error: {error}", err=True)
        if isinstance(error, BadQuery):
            click.echo(f"  {error.text}\n  {' ' * (error.column - 1)}{'^' * error.width}", err=True)
        status = exit_status(error)
    except SystemExit as ended:
        # When the reader of our output goes away (`redrive ls | head`), click puts another stream in its place and ends
        # with 1; but nothing is wrong then.
        sys.exit(0 if sys.stdout is not stdout else ended.code)
    except OSError as error:
        mistake, status = error, FAILED
    if (lost := _lost(stdout)) is not None and not isinstance(lost, BrokenPipeError):
        mistake, status = lost, status or FAILED
    if mistake is not None:
        click.echo(f"Error: {_sentence(mistake)}", err=True)
    sys.exit(status)


def _status(answer: Any) -> int:
    return answer if isinstance(answer, int) else 0


def _sentence(mistake: OSError) -> str:
    where = mistake.filename
    if where is None and isinstance(mistake, FileNotFoundError):
        where = "the folder you are in"
    if where is None and mistake.errno in _FULL:
        # Files are named, and stores have errors of their own.
        where = "standard output"
    return f"{mistake.strerror or mistake}: {where}" if where else str(mistake.strerror or mistake)


def _lost(stdout: TextIO | None) -> OSError | None:
    """Why what was said cannot be written to standard output, if it cannot. Nothing more is written there then."""
    if stdout is None:
        return None
    try:
        stdout.flush()
    except OSError as error:
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stdout.fileno())
        return error
    return None
