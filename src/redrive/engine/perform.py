"""Perform: the other side of a trial, in a process of its own. It takes its task, calls the handler, and reports.

The task comes on standard input and the reports go to a pipe of their own, in msgpack; standard output and error are the
handler's. By the end of its input the process knows that whoever started it is gone, and ends.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import sys
import threading
from datetime import timedelta
from pathlib import Path
from time import perf_counter
from typing import Any, assert_never

from msgspec import Struct, msgpack

from redrive.engine.call import FunctionTransport
from redrive.engine.describe import MESSAGE_LIMIT, clean, shortened, told
from redrive.model.errors import BadSettings
from redrive.model.letter import Failure
from redrive.model.message import Message
from redrive.model.operation import Delivered, Refused, Unknown

LENGTH_BYTES = 8
"""Before each value stands its length, so that its end is known although the pipe stays open."""
WHERE = signal.SIGUSR1
"""Has the process tell on its standard error where it is."""


class Task(Struct, frozen=True, kw_only=True):
    """What the process is to do; without a message, only to look whether there is such a handler."""

    handler: str
    message: Message | None
    folder: str
    """Where it runs, and where modules are looked for first."""


class Called(Struct, frozen=True, kw_only=True, tag="called"):
    """The handler was found, and is called next."""


class Mistaken(Struct, frozen=True, kw_only=True, tag="mistaken"):
    """There is no such handler."""

    sentence: str


class Worked(Struct, frozen=True, kw_only=True, tag="worked"):
    """The handler returned; `result` is the repr of what."""

    result: str
    took: timedelta


class Raised(Struct, frozen=True, kw_only=True, tag="raised"):
    """The handler raised an error; when it was not called, its arguments could not be made of the message."""

    failure: Failure
    took: timedelta
    was_called: bool = True


Final = Mistaken | Worked | Raised
Report = Called | Final


def perform(telling: int) -> None:
    """The life of the process: take the task, find the handler, call it, report."""
    os.set_inheritable(telling, False)
    faulthandler.register(WHERE)
    given = os.dup(0)
    task = msgpack.decode(_read(given, int.from_bytes(_read(given, LENGTH_BYTES), "big")), type=Task)
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    threading.Thread(target=_end_with, args=[given], name="redrive-end", daemon=True).start()
    sys.path.insert(0, task.folder)
    try:
        transport = FunctionTransport.named(task.handler)
    except BadSettings as error:
        _tell(telling, Mistaken(sentence=clean(str(error))))
        return
    if task.message is None:
        _tell(telling, Worked(result="", took=timedelta()))
        return
    _tell(telling, Called())
    asyncio.run(_performed(transport, task.message, telling))


async def _performed(transport: FunctionTransport, message: Message, telling: int) -> None:
    # Threads are told of first, and without the loop, which may be what hangs. It chains to what is there when it is
    # registered anew.
    faulthandler.unregister(WHERE)
    asyncio.get_running_loop().add_signal_handler(WHERE, _tell_where)
    faulthandler.register(WHERE, chain=True)
    # Reported before the loop ends, for it may wait long for what the handler left behind.
    started = perf_counter()
    (delivery,) = await transport.send([message])
    took = timedelta(seconds=perf_counter() - started)
    match delivery:
        case Delivered(result=result):
            _tell(telling, Worked(result=_repr(result), took=took))
        case Refused(failure=failure, was_reached=was_called):
            _tell(telling, Raised(failure=failure, took=took, was_called=was_called))
        case Unknown(reason=reason):
            _tell(telling, Raised(failure=told("unknown", reason), took=took))
        case _:
            assert_never(delivery)


def _tell_where() -> None:
    """Tell where tasks wait, as faulthandler tells of threads: a coroutine that waits is on no thread's stack."""
    for task in asyncio.all_tasks():
        frames: list[str] = []
        step: Any = task.get_coro()
        while (frame := getattr(step, "cr_frame", None)) is not None:
            frames.append(f'  File "{frame.f_code.co_filename}", line {frame.f_lineno} in {frame.f_code.co_name}\n')
            step = step.cr_await
        os.write(2, clean("".join(reversed(frames))).encode())


def _repr(result: object) -> str:
    try:
        return clean(shortened(repr(result), MESSAGE_LIMIT))
    except Exception as error:
        return f"<{type(result).__name__}: repr() raised {type(error).__name__}>"


def _end_with(given: int) -> None:
    """End the process with all that it started when its input ends: nobody is there any more to end it."""
    os.read(given, 1)
    os.killpg(0, signal.SIGKILL)


def _tell(telling: int, report: Report) -> None:
    rest = framed(report)
    while rest:
        rest = rest[os.write(telling, rest) :]


def framed(value: Struct) -> bytes:
    """The value as it goes through a pipe."""
    packed = msgpack.encode(value)
    return len(packed).to_bytes(LENGTH_BYTES, "big") + packed


def _read(descriptor: int, size: int) -> bytes:
    read = bytearray()
    while len(read) < size and (chunk := os.read(descriptor, min(size - len(read), 1 << 20))):
        read += chunk
    return bytes(read)
