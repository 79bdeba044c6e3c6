"""Keeping leases alive while their letters are worked on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from datetime import timedelta
from time import monotonic
from types import TracebackType
from typing import Self
from uuid import UUID

from redrive.model.errors import StoreError
from redrive.model.lease import Lease
from redrive.ports.letters import LetterStore

log = logging.getLogger("redrive.heartbeat")


class Heartbeat:
    """Extends leases every third of their length, those that another worker took over excepted."""

    def __init__(self, store: LetterStore, leases: Sequence[Lease], length: timedelta) -> None:
        self._store = store
        self._length = length
        self._held: dict[UUID, tuple[Lease, float]] = {}
        """Each with when it ends, by a clock of this process: the host's may be off, and a store may be out of reach."""
        self._task: asyncio.Task[None] | None = None
        self.hold(leases, monotonic())

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._beat())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait([self._task])

    def __contains__(self, id: UUID) -> bool:
        """Is the letter still ours, as far as is known?"""
        return id in self._held and self._held[id][1] > monotonic()

    def holds(self, lease: Lease) -> bool:
        """Is it this very lease that makes the letter ours?"""
        return lease.id in self and self._knows(lease)

    def hold(self, leases: Iterable[Lease], since: float) -> None:
        """Keep these alive too, which were asked for at this instant of `time.monotonic`."""
        end = since + self._length.total_seconds()
        self._held.update((lease.id, (lease, end)) for lease in leases)

    def let_go(self, leases: Iterable[Lease]) -> None:
        """These are over. A newer lease on the same letter is not."""
        for lease in leases:
            if self._knows(lease):
                del self._held[lease.id]

    async def beat(self) -> None:
        """Extend what is still held."""
        held, since = [lease for lease, _ in self._held.values()], monotonic()
        answers = await self._store.extend(held, self._length)
        lost = [lease for lease, longer in zip(held, answers, strict=True) if longer is None]
        # Unless it was let go of, or taken anew, while the store was asked.
        kept = [longer for longer in answers if longer is not None and self._knows(longer)]
        self.let_go(lost)
        self.hold(kept, since)

    def _knows(self, lease: Lease) -> bool:
        return lease.id in self._held and self._held[lease.id][0].token == lease.token

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._length.total_seconds() / 3)
            try:
                if self._held:
                    await self.beat()
            except StoreError as error:
                # It may answer at the next beat; the lease itself says when it is too late.
                log.warning("%d leases not extended: %s", len(self._held), error)
            except Exception:
                log.exception("%d leases not extended", len(self._held))
