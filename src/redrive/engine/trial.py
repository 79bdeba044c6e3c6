"""Trial: a letter's message goes through a handler in a process of its own, and nothing about the letter changes.

Whatever the handler does there (hangs, ends its process, crashes it) is an answer too.
"""

from __future__ import annotations

import re
import signal
import sysconfig
from datetime import timedelta
from enum import StrEnum
from pathlib import Path

from msgspec import Struct

from redrive.engine.attend import Child
from redrive.engine.attend import Output as Output
from redrive.engine.perform import Mistaken, Task
from redrive.engine.perform import Raised as Raised
from redrive.engine.perform import Worked as Worked
from redrive.engine.redact import unsendable, without_marks
from redrive.model.errors import BadSettings, Unsupported
from redrive.model.letter import Failure, Letter
from redrive.model.message import Message, outgoing

LIMIT = timedelta(seconds=30)
"""How long a trial may take unless told otherwise."""

_OURS = str(Path(__file__).parents[1])


class Overran(Struct, frozen=True, kw_only=True, tag="overran"):
    """The time limit was reached; the process was ended with all that it had started."""

    limit: timedelta
    took: timedelta
    was_called: bool = True
    where: tuple[str, ...] = ()
    """Where it was then, the innermost call first, a line each; empty: in no code of the application's."""


class Died(Struct, frozen=True, kw_only=True, tag="died"):
    """The process ended before its handler did, with this status (negative: the signal that ended it)."""

    status: int
    took: timedelta
    was_called: bool = True

    @property
    def how(self) -> str:
        """`exit status 3`, `SIGKILL`."""
        if self.status >= 0:
            return f"exit status {self.status}"
        try:
            return signal.Signals(-self.status).name
        except ValueError:
            return f"signal {-self.status}"


Ending = Worked | Raised | Overran | Died


class Tried(Struct, frozen=True, kw_only=True):
    """What became of a trial, and what was printed meanwhile."""

    ending: Ending
    stdout: Output
    stderr: Output

    @property
    def has_worked(self) -> bool:
        return isinstance(self.ending, Worked)


class Likeness(StrEnum):
    """How a failure compares to the one that a letter was held for."""

    SAME = "same"
    SAME_TYPE = "same_type"
    """The same type of error, raised elsewhere or in another way."""
    OTHER = "other"


def message_of(letter: Letter, body: bytes) -> Message:
    """The message as it would be sent back; `Unsupported` when the letter must be repaired before."""
    if (reason := unsendable(letter)) is not None:
        raise Unsupported(f"letter {letter.id} cannot be sent: {reason}")
    return outgoing(without_marks(letter), body)


def likeness(failure: Failure, known: Failure) -> Likeness:
    """Is it the failure that is known, at least the same type of error, or another one?"""
    is_comparable = failure.fingerprint_version == known.fingerprint_version
    if is_comparable and failure.fingerprint and failure.fingerprint == known.fingerprint:
        return Likeness.SAME
    return Likeness.SAME_TYPE if failure.type == known.type else Likeness.OTHER


def tried(handler: str, message: Message, *, limit: timedelta = LIMIT, folder: Path | None = None) -> Tried:
    """Run a message through the handler that `module:function` names, found from `folder` (default: the current one).

    Blocks until it is over, at most for the limit and some seconds. Nothing that the process started is left running, unless
    it made itself a session of its own. `BadSettings` when there is no such handler.
    """
    if limit <= timedelta():
        raise BadSettings("the time limit must be longer than nothing; write 30s or 5m")
    return _attended(Task(handler=handler, message=message, folder=str(folder or Path.cwd())), limit)


def check(handler: str, *, folder: Path | None = None) -> None:
    """`BadSettings` when `module:function` names no handler. What its import does is not done in this process."""
    module = handler.partition(":")[0]
    match _attended(Task(handler=handler, message=None, folder=str(folder or Path.cwd())), LIMIT).ending:
        case Died(how=how):
            raise BadSettings(f"cannot import '{module}': the process that tried to ended with {how}")
        case Overran():
            raise BadSettings(f"cannot import '{module}': that takes longer than {LIMIT.seconds} seconds")


def _attended(task: Task, limit: timedelta) -> Tried:
    with Child(task) as child:
        child.attended(limit)
    return Tried(ending=_ending(child, limit), stdout=child.stdout.output(), stderr=child.stderr.output())


def _ending(child: Child, limit: timedelta) -> Ending:
    match child.final:
        case Mistaken(sentence=sentence):
            raise BadSettings(sentence)
        case None if child.is_late:
            where = _places(child.where.output().text)
            return Overran(limit=limit, took=child.took, was_called=child.was_called, where=where)
        case None:
            return Died(status=child.process.returncode, took=child.took, was_called=child.was_called)
        case final:
            return final


def _places(dump: str) -> tuple[str, ...]:
    """The frames in a dump of all threads that are neither Python's own nor ours."""
    found = re.findall(r'^ *File "(.+)", line (\d+) in (.+)$', dump, re.MULTILINE)
    return tuple(f"{file}:{line} in {function}" for file, line, function in found if not _is_machinery(file))


def _is_machinery(file: str) -> bool:
    if file.startswith(("<", f"{_OURS}/")):
        return True
    return file.startswith(f"{sysconfig.get_paths()['stdlib']}/") and "/site-packages/" not in file
