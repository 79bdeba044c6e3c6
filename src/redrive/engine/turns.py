"""Turns: how many letters go next, and when, so that a rate is kept."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from datetime import timedelta

from redrive.model.tempo import Tempo
from redrive.ports.inline import pause

_SMOOTH = 10
"""So many calls a second are smooth enough for any target."""
_LONGEST_SECONDS = 0.5


class Turns:
    """Of one run of an operation."""

    def __init__(self, tempo: Tempo) -> None:
        self._tempo = tempo
        self._began = self._next_at = time.monotonic()

    @property
    def size(self) -> int:
        """How many letters go at a time."""
        rate = self._rate()
        return self._tempo.batch if rate is None else max(1, min(self._tempo.batch, round(rate / _SMOOTH)))

    async def wait(self, number: int, look: Callable[[], Awaitable[None]]) -> None:
        """Until so many letters may go, looking now and then whether they still may. Who is late does not hurry afterwards."""
        if (rate := self._rate()) is None:
            return
        at = max(self._next_at, time.monotonic())
        self._next_at = at + number / rate
        while (left := at - time.monotonic()) > 0:
            await pause(min(left, _LONGEST_SECONDS))
            await look()

    def _rate(self) -> float | None:
        return self._tempo.rate_after(timedelta(seconds=time.monotonic() - self._began))
