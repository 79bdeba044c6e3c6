"""Telling an observability manager what happens, whatever it is."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

log = logging.getLogger("redrive.workflows")


class Records(Protocol):
    """An observability manager that takes events by a method of this name."""

    def record(self, event: str, attributes: dict[str, Any], /) -> Any: ...


Observability = Records | Callable[[str, dict[str, Any]], Any]
"""What is told of `dlq.enqueued`, `dlq.retried`, `dlq.exhausted` and `dlq.archived`: an object with `record`, or a function."""


class Observer:
    """Tells, and comes to no harm by it."""

    def __init__(self, manager: Observability | None) -> None:
        self._record = getattr(manager, "record", manager if callable(manager) else None)

    def tell(self, event: str, **attributes: Any) -> None:
        if self._record is None:
            return
        try:
            self._record(event, attributes)
        except Exception:
            log.exception("the observability manager failed")
