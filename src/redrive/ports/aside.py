"""Blocking work that nobody should have to wait for, not even the end of the process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from redrive.ports.inline import is_inline

P = ParamSpec("P")
T = TypeVar("T")


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

    def run() -> None:
        try:
            result = context.run(work, *args, **kwargs)
        except StopIteration as error:
            # No future can carry one.
            outcome.set_exception(RuntimeError(f"StopIteration: {error}"))
        except BaseException as error:
            outcome.set_exception(error)
        else:
            outcome.set_result(result)

    outcome.set_running_or_notify_cancel()
    threading.Thread(target=run, name="redrive-aside", daemon=True).start()
    return await asyncio.wrap_future(outcome)
