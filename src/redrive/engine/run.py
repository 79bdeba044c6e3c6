"""Running a program: as the handler of `redrive run`, and as the target its letters go back to."""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import NoReturn

from msgspec import Struct, ValidationError, convert

from redrive.engine.describe import MESSAGE_LIMIT, clean, describe, shortened, told
from redrive.engine.process import Input, lived
from redrive.model.errors import BadSettings, Unsupported
from redrive.model.letter import Failure, Letter
from redrive.model.message import Message
from redrive.model.operation import Delivered, Delivery, Refused
from redrive.ports.transport import Parcel

KIND = "command"
"""The `kind` of a letter whose source is a program."""
HEADER = "redrive-command"
"""Where such a message carries its command: JSON {"argv": […], "cwd": "…"}."""
ERROR = "redrive.CommandFailed"
"""The failure's type, as people search for it."""


class Command(Struct, frozen=True, kw_only=True):
    """A program, its arguments, and where it runs. The environment is not kept: it may hold secrets."""

    argv: tuple[str, ...]
    cwd: str


class CommandFailed(Exception):
    """A program ended with another status than 0."""

    def __init__(self, command: Command, exit: Exit) -> None:
        self.exit = exit
        self.redrive_failure = exit.failure(command)
        super().__init__(self.redrive_failure.message)


class Exit(Struct, frozen=True, kw_only=True):
    """How a program ended: its status (negative: the signal that ended it) and the end of its stderr."""

    status: int
    stderr: bytes = b""

    @property
    def as_shell(self) -> int:
        """The status as a shell reports it."""
        return 128 - self.status if self.status < 0 else self.status

    def failure(self, command: Command) -> Failure:
        """What went wrong, in the words of its stderr."""
        text = clean(self.stderr.decode("utf-8", "replace"))
        lines = [line for line in text.splitlines() if line.strip()]
        how = f"ended by {_signal_name(-self.status)}" if self.status < 0 else f"exit status {self.status}"
        message = shortened(f"{clean(command.argv[0])}: {how}" + (f": {lines[-1].strip()}" if lines else ""), MESSAGE_LIMIT)
        return told(ERROR, message, traceback=text)


async def run_command(command: Command, given: Input | None) -> Exit:
    """Run a program to its end; a program that cannot even be started has failed too."""
    try:
        status, stderr = await lived(command.argv, command.cwd, given)
    except FileNotFoundError:
        missing = command.cwd if not Path(command.cwd).is_dir() else command.argv[0]
        return Exit(status=127, stderr=clean(f"{missing}: not found").encode())
    except PermissionError:
        return Exit(status=126, stderr=clean(f"{command.argv[0]}: may not be run").encode())
    except OSError as error:
        return Exit(status=126, stderr=clean(f"{command.argv[0]}: cannot be run: {error.strerror}").encode())
    return Exit(status=status, stderr=stderr)


class CommandTransport:
    """Runs the command that each message carries again, with the message's body as its input."""

    name = "command:"

    async def send(self, messages: Sequence[Message]) -> list[Delivery]:
        return [await self._run(message) for message in messages]

    async def receive(self, *, limit: int = 10, lease: timedelta = timedelta(seconds=30)) -> list[Parcel]:
        _cannot("receive")

    async def settle(self, handles: Sequence[str], *, done: bool) -> list[bool]:
        _cannot("settle")

    async def peek(self, *, limit: int = 10) -> list[Message]:
        _cannot("peek")

    async def _run(self, message: Message) -> Delivery:
        try:
            command = command_of(message)
        except BadSettings as error:
            return Refused(failure=describe(error))
        exit = await run_command(command, Input.of(message.body))
        return Delivered(confirmed=True) if exit.status == 0 else Refused(failure=exit.failure(command))


def as_header(command: Command) -> bytes:
    """The command as its message carries it. Arguments need not be UTF-8: such bytes are escaped, as Python has them."""
    return json.dumps({"argv": command.argv, "cwd": command.cwd}).encode()


def command_of(carrier: Message | Letter) -> Command:
    """The command that a message or letter of `redrive run` carries."""
    raw = next((value for name, value in carrier.headers if name == HEADER), None)
    if raw is None:
        raise BadSettings("this letter does not come from `redrive run`; say where to send it with --to py:module:function")
    try:
        return convert(json.loads(raw), Command)
    except (ValueError, ValidationError) as error:
        raise BadSettings(f"the command of this letter cannot be read: {error}") from error


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _cannot(verb: str) -> NoReturn:
    raise Unsupported(f"a program can be run, but not {verb}")
