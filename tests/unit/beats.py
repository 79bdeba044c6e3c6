"""Time that passes with heartbeats alone: however slow the machine is, a lease ends when it is not extended, and only then."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from redrive.model.lease import Claim, Claimed
from redrive.model.letter import Letter
from redrive.model.settlement import Settled, Settlement
from redrive.ports import LetterStore
from redrive.testing import Faulty


class Beats:
    """A clock that goes on by a third of a lease with every beat: with the fourth the first lease would be over."""

    def __init__(self, lease: timedelta) -> None:
        self.count = 0
        self._step = lease / 3
        self._start = datetime.now(UTC)

    def now(self) -> datetime:
        return self._start + self.count * self._step


class OnBeats(Faulty):
    """A store by such a clock, which others may go by too."""

    def __init__(self, store: LetterStore, beats: Beats) -> None:
        super().__init__(store)
        self.beats = beats

    async def claim(self, claim: Claim, *, now: datetime | None = None) -> list[Claimed]:
        return await super().claim(claim, now=self.beats.now())

    async def extend(self, leases: Any, by: timedelta, *, now: datetime | None = None) -> Any:
        self.beats.count += 1
        return await super().extend(leases, by, now=self.beats.now())

    async def settle(self, settlements: Sequence[Settlement], *, now: datetime | None = None) -> list[Settled]:
        return await super().settle(settlements, now=self.beats.now())

    async def get(self, ids: Any, *, now: datetime | None = None) -> list[Letter | None]:
        return await super().get(ids, now=self.beats.now())

    async def wait(self, lanes: Any, patience: timedelta) -> None:
        """Nobody knows when the next beat is."""
        self.calls.append("wait")
        await asyncio.sleep(min(0.01, patience.total_seconds()))
