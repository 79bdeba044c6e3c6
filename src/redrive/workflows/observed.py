"""Telling an observability manager what happens, whatever it is."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

log = logging.getLogger("redrive.workflows")


class Records(Protocol):
    """An observability manager that takes events by a method of this name."""

    def record(self, event: str, attributes: dict[str, Any], /) -> Any: ...


Observability = Records | Callable[[str, dict[str, Any]], Any]
"""What is told of `dlq.enqueued`, `dlq.retried`, `dlq.exhausted` and `dlq.archived`: an object with `record`, or a function. Either may be
async."""


class Observer:
    """Tells, and comes to no harm by it."""

    def __init__(self, manager: Observability | None) -> None:
        self._record = getattr(manager, "record", manager if callable(manager) else None)
        self._told: set[asyncio.Task[None]] = set()
        if manager is not None and self._record is None:
            log.warning("%s is told of nothing: it has no record(event, attributes), and is no function", type(manager).__name__)

    def tell(self, event: str, **attributes: Any) -> None:
        if self._record is None:
            return
        try:
            result = self._record(event, attributes)
        except Exception:
            log.exception("the observability manager failed")
            return
        if inspect.isawaitable(result):
            task = asyncio.ensure_future(_awaited(result))
            self._told.add(task)
            task.add_done_callback(self._told.discard)


async def _awaited(result: Awaitable[Any]) -> None:
    try:
        await result
    except Exception:
        log.exception("the observability manager failed")
