"""Blocking work that nobody should have to wait for, not even the end of the process."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from queue import Empty, SimpleQueue
from typing import ParamSpec, TypeVar

from redrive.ports.inline import is_inline

P = ParamSpec("P")
T = TypeVar("T")

_IDLE_SECONDS = 0.5
"""A thread that has had nothing to do for so long ends: one that is there already begins sooner than one that must be started."""
Task = Callable[[], Callable[[], None]]
"""What a thread does; it answers with how to tell of it."""

_idle: list[SimpleQueue[Task]] = []
"""Where threads wait for work, each at its own."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.clear)


_STRETCH = 64
"""What is done at a stretch, where it is done for many: a fraction of a millisecond."""


def giving_way(items: Iterable[T]) -> Iterator[T]:
    """The items, and now and then an instant for other threads.

    A thread that talks to a database needs the interpreter for an instant between two statements. While another computes, it gets
    it only after milliseconds, and whoever waits for the database with it.
    """
    for number, item in enumerate(items, 1):
        yield item
        if not number % _STRETCH:
            time.sleep(0)


async def aside(work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Like `redrive.ports.inline.here`, but in a thread that may be left behind when its caller is cancelled.

    A thread of asyncio's own pool would hold up the end of the event loop, and of the program, for as long as it hangs.
    """
    if is_inline():
        return work(*args, **kwargs)
    import asyncio  # whoever awaits this has loaded it
    import contextvars
    from concurrent.futures import Future

    outcome: Future[T] = Future()
    context = contextvars.copy_context()

    def task() -> Callable[[], None]:
        try:
            result = context.run(work, *args, **kwargs)
        except StopIteration as error:
            # No future can carry one.
            return partial(outcome.set_exception, RuntimeError(f"StopIteration: {error}"))
        except BaseException as error:
            return partial(outcome.set_exception, error)
        return partial(outcome.set_result, result)

    outcome.set_running_or_notify_cancel()
    _hand_over(task)
    return await asyncio.wrap_future(outcome)


def _hand_over(task: Task) -> None:
    try:
        door = _idle.pop()
    except IndexError:
        door = SimpleQueue()
        threading.Thread(target=_work, args=[door], name="redrive-aside", daemon=True).start()
    door.put(task)


def _work(door: SimpleQueue[Task]) -> None:
    task: Task | None = door.get()
    while task is not None:
        tell = task()
        # First idle, then heard of: so who goes on because of this finds the thread free.
        _idle.append(door)
        tell()
        del task, tell  # a thread that waits keeps nothing alive
        task = _next(door)


def _next(door: SimpleQueue[Task]) -> Task | None:
    try:
        return door.get(timeout=_IDLE_SECONDS)
    except Empty:
        try:
            _idle.remove(door)
        except ValueError:
            # Somebody has just chosen this thread, and is about to say what for.
            return door.get()
    return None
