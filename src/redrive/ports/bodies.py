"""`Bodies`: where bodies lie that are too large for the store."""

from __future__ import annotations

from typing import Protocol

from redrive.model.letter import BodyRef


class Bodies(Protocol):
    async def keep(self, name: str, body: bytes) -> BodyRef:
        """Write a body durably and say where it is. The same name and body again change nothing."""
        ...

    async def load(self, ref: BodyRef) -> bytes:
        """The body, checked against its digest; `StoreCorrupt` when it is missing or differs."""
        ...

    async def drop(self, refs: list[BodyRef]) -> None:
        """Remove bodies whose letters are gone; those that are not there are passed over."""
        ...
