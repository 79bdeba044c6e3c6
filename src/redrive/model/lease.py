"""Claiming: the exclusive right to settle letters until a deadline."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from msgspec import Struct

from redrive.model.lane import Lane
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
    known: tuple[int, Letter] | None = None
    """The letter as it is when nobody holds it, with its store's number for it, where the store has these at hand: who ends the claim
    with them spares the store a second look."""


class Due(Struct, frozen=True, gc=False):
    """Letters of one lane whose next retry is due."""

    lane: Lane
    longest: bool = False
    """Those that could have been claimed the longest, whatever their priority: so that none waits for ever."""


class Claim(Struct, frozen=True, kw_only=True):
    """What to claim, how much of it, and for how long."""

    owner: str
    lease: timedelta
    what: Due | Query | tuple[UUID, ...]
    """What is due; open letters that match a query, oldest first; or just those with these ids."""
    limit: int = 100
