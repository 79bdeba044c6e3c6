"""Claiming: the exclusive right to settle letters until a deadline."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from msgspec import Struct

from redrive.model.letter import Letter
from redrive.model.query import Query


class Lease(Struct, frozen=True, kw_only=True, gc=False):
    """The right to settle one letter. The token rises with every claim, so that a stale owner is told apart."""

    id: UUID
    token: int
    generation: int
    owner: str
    until: datetime


class Claimed(Struct, frozen=True, kw_only=True, gc=False):
    """A letter and the lease on it."""

    letter: Letter
    lease: Lease


class Claim(Struct, frozen=True, kw_only=True):
    """What to claim: without `ids` or `query`, the letters whose next retry is due, highest priority first."""

    owner: str
    lease: timedelta
    limit: int = 100
    ids: tuple[UUID, ...] | None = None
    """Just these, when they are open and nobody holds them."""
    query: Query | None = None
    """Open letters that match and nobody holds, oldest first."""
