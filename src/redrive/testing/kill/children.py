"""Processes of their own that start in milliseconds: forked from a server that has imported everything and opened nothing."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import msgpack

from redrive.testing.kit.samples import is_chaos

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext, SpawnContext

T = TypeVar("T")

PATIENCE_SECONDS = 300.0 if is_chaos() else 60.0
PRELOADED = ["redrive.testing", "redrive.testing.kill.law", "redrive.testing.kill.journal"]


def children() -> ForkServerContext | SpawnContext:
    """Where processes and their pipes come from. What a child runs must be something that other processes can import."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


def say(pipe: Connection, what: object) -> None:
    """Tell the other process a value."""
    pipe.send_bytes(msgpack.encode(what))


def heard(pipe: Connection, kind: type[T]) -> T:
    """The value that the other process tells; `EOFError` when it will tell no more."""
    assert pipe.poll(PATIENCE_SECONDS), "a process said nothing for too long"
    return msgpack.decode(pipe.recv_bytes(), type=kind)


def killed_after(messages: int, kind: type[T], live: Callable[..., None], *arguments: Any) -> list[T]:
    """Everything that a child said before it was killed, some time after so many messages.

    It runs `live` with these arguments and a pipe to say values of this kind on, and never ends by itself.
    """
    context = children()
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=live, args=(*arguments, theirs), daemon=True)
    child.start()
    theirs.close()
    said: list[T] = []
    try:
        while True:
            said.append(heard(ours, kind))
            if len(said) == messages:
                child.kill()
    except EOFError:
        pass
    finally:
        child.kill()
        child.join(PATIENCE_SECONDS)
        exit_code = child.exitcode
        child.close()
        ours.close()
    assert len(said) >= messages, f"the child died by itself (exit code {exit_code})"
    return said


def begin_together(pipe: Connection) -> None:
    """In a child of `answers_of`: wait until all of them are as far."""
    say(pipe, "ready")
    heard(pipe, str)


def answers_of(kind: type[T], work: Callable[..., None], each: Sequence[tuple[Any, ...]]) -> list[T]:
    """What several children answer, each of which runs `work` with its own arguments and a pipe.

    Each calls `begin_together`, and says a value of this kind when it is done.
    """
    context = children()
    pipes, processes = [], []
    for arguments in each:
        ours, theirs = context.Pipe()
        process = context.Process(target=work, args=(*arguments, theirs), daemon=True)
        process.start()
        theirs.close()
        pipes.append(ours)
        processes.append(process)
    try:
        for pipe in pipes:
            assert heard(pipe, str) == "ready"
        for pipe in pipes:
            say(pipe, "go")
        return [heard(pipe, kind) for pipe in pipes]
    finally:
        for process, pipe in zip(processes, pipes, strict=True):
            pipe.close()
            process.join(PATIENCE_SECONDS)
            process.close()
