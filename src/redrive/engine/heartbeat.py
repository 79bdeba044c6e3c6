"""Keeping leases alive while their letters are worked on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Self
from uuid import UUID

from redrive.model.errors import StoreError
from redrive.model.lease import Lease
from redrive.ports.letters import LetterStore


class Heartbeat:
    """Extends leases every third of their length, those that another worker took over excepted."""

    def __init__(self, store: LetterStore, leases: Sequence[Lease], length: timedelta) -> None:
        self._store = store
        self._leases = {lease.id: lease for lease in leases}
        self._length = length
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._beat())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait([self._task])

    def __contains__(self, id: UUID) -> bool:
        """Is the letter still ours, as far as is known?"""
        return id in self._leases

    def hold(self, leases: Iterable[Lease]) -> None:
        """Keep these alive too."""
        self._leases.update((lease.id, lease) for lease in leases)

    def let_go(self, ids: Iterable[UUID]) -> None:
        for id in ids:
            self._leases.pop(id, None)

    async def beat(self) -> None:
        """Extend what is still held."""
        held = list(self._leases.values())
        for lease, longer in zip(held, await self._store.extend(held, self._length), strict=True):
            # Unless it was let go of, or taken anew, while the store was asked.
            if self._leases.get(lease.id) is lease:
                if longer is None:
                    del self._leases[lease.id]
                else:
                    self._leases[lease.id] = longer

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._length.total_seconds() / 3)
            # A store that does not answer now may at the next beat; the lease itself says when it is too late.
            with contextlib.suppress(StoreError):
                if self._leases:
                    await self.beat()
