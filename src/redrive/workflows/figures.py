"""Lifetime figures: what has happened since the queue was made, kept on the desk so that a restart forgets nothing."""

from __future__ import annotations

import logging
from collections import Counter

from redrive.model.errors import StoreError
from redrive.ports.desk import Desk

log = logging.getLogger("redrive.workflows")

NAMES = ("enqueued_total", "retry_success", "retry_failed", "exhausted", "manually_retried", "archived")


class Figures:
    """Counts after the fact: what a kill cuts off between an act and its count is not counted, but never counted twice."""

    def __init__(self, desk: Desk, prefix: str) -> None:
        self._desk = desk
        self._prefix = prefix
        self._waiting: Counter[str] = Counter()
        """What the desk has not heard of, because it was out of reach."""

    async def add(self, **amounts: int) -> None:
        """Count, and tell the desk of what waits. One that is out of reach hears of it with the next count."""
        self._waiting.update({name: amount for name, amount in amounts.items() if amount})
        if not self._waiting:
            return
        told, self._waiting = self._waiting, Counter()
        try:
            await self._desk.add({f"{self._prefix}{name}": amount for name, amount in told.items()})
        except StoreError as error:
            log.warning("lifetime figures wait to be written: %s", error.code)
            self._waiting.update(told)

    async def read(self) -> dict[str, int]:
        """All figures, those that wait included."""
        kept = await self._desk.totals(self._prefix)
        return {name: kept.get(f"{self._prefix}{name}", 0) + self._waiting[name] for name in NAMES}
