"""Keeping leases alive while their letters are worked on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from datetime import timedelta
from types import TracebackType
from typing import Self

from redrive.model.errors import StoreError
from redrive.model.lease import Lease
from redrive.ports.letters import LetterStore


class Heartbeat:
    """Extends leases every third of their length, those that another worker took over excepted."""

    def __init__(self, store: LetterStore, leases: Sequence[Lease], length: timedelta) -> None:
        self._store = store
        self._leases = list(leases)
        self._length = length
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._beat())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait([self._task])

    async def beat(self) -> None:
        """Extend what is still held."""
        answers = await self._store.extend(self._leases, self._length)
        self._leases = [answer for answer in answers if answer is not None]

    async def _beat(self) -> None:
        while self._leases:
            await asyncio.sleep(self._length.total_seconds() / 3)
            # A store that does not answer now may at the next beat; the lease itself says when it is too late.
            with contextlib.suppress(StoreError):
                await self.beat()
