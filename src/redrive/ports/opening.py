"""What a backend gives when its URL is opened."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from uuid import UUID

from msgspec import Struct

from redrive.model.finding import Finding
from redrive.ports.desk import Desk
from redrive.ports.letters import LetterStore
from redrive.ports.queues import QueueStore


class Opened(Struct, frozen=True, kw_only=True):
    """A store and its desk."""

    letters: LetterStore
    desk: Desk
    examine: Callable[[], Awaitable[list[Finding]]]
    """Look the store over for `redrive doctor`. Changes nothing, makes nothing, and may take its time."""
    bodies_folder: Path | None = None
    """Where an embedded store's large bodies may lie, beside it."""
    queues: QueueStore | None = None
    """Queues in the same place; None: this technology keeps none."""


class Deskless(Struct, frozen=True, kw_only=True):
    """A store of a technology that has no desk: one is opened elsewhere, and the store remembers which."""

    letters: LetterStore
    examine: Callable[[], Awaitable[list[Finding]]]
    bind: Callable[[UUID], Awaitable[UUID]]
    """Record the id of the desk, once and durably; answers with the one that is recorded."""
    queues: QueueStore | None = None
