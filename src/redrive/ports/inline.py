"""Driving a verb from blocking code without an event loop.

A coroutine that never suspends can be run to its end by one `send`. A backend that claims `Capabilities.inline` keeps to
that while `is_inline()`: it does its work in the calling thread. So there is one implementation of every verb, and the
blocking face pays for no hop through another thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class _Here(threading.local):
    depth = 0


_here = _Here()


def is_inline() -> bool:
    """Is this thread driving a verb by hand right now? Then do not suspend."""
    return _here.depth > 0


async def here(work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Do blocking work in this thread when a verb is driven by hand, else where no event loop waits for it."""
    if is_inline():
        return work(*args, **kwargs)
    import asyncio  # whoever awaits this has loaded it; those who only drive verbs by hand need not

    return await asyncio.to_thread(work, *args, **kwargs)


async def pause(seconds: float) -> None:
    """Let some time pass: in this thread when a verb is driven by hand, else on the event loop."""
    if is_inline():
        time.sleep(seconds)  # noqa: ASYNC251 - no event loop is running here
        return
    import asyncio

    await asyncio.sleep(seconds)


@contextmanager
def outside() -> Iterator[None]:
    """While somebody else's code is called from a driven verb: it may run event loops of its own."""
    depth, _here.depth = _here.depth, 0
    try:
        yield
    finally:
        _here.depth = depth


def drive(verb: Coroutine[Any, Any, T]) -> T:
    """Run an inline-capable verb to its end in this thread."""
    _here.depth += 1
    try:
        verb.send(None)
    except StopIteration as finished:
        result: T = finished.value
        return result
    finally:
        _here.depth -= 1
    verb.close()
    raise RuntimeError("a verb that claims to be inline suspended; this is a defect of its backend")
