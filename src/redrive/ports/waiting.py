"""Waiting for letters to come due, for stores that cannot tell by themselves when another process brings some."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from datetime import timedelta

from redrive.ports.inline import pause

LOOK_EVERY = timedelta(seconds=1)


async def wait_and_look(
    due_in: Callable[[], Awaitable[timedelta | None]],
    patience: timedelta,
    *,
    rest: Callable[[float], Awaitable[None]] = pause,
    every: timedelta = LOOK_EVERY,
) -> None:
    """Return when `due_in` says that nothing is left to wait for, or patience is over; look again now and then.

    `due_in` tells how long until the next letter is due by the store's own clock; None: none waits for a retry. `rest`
    passes the time in between, and may return early.
    """
    deadline = time.monotonic() + patience.total_seconds()
    while True:
        due = await due_in()
        left = deadline - time.monotonic()
        if left <= 0 or (due is not None and due <= timedelta()):
            return
        await rest(min(left, (every if due is None else min(every, due)).total_seconds()))
