"""`LetterStore`: where letters live, searchable."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

from redrive.model.amendment import Amended, Amendment
from redrive.model.arrival import Held
from redrive.model.census import Backlog, Miscount
from redrive.model.lane import Lane
from redrive.model.lease import Claim, Claimed, Lease
from redrive.model.letter import Letter
from redrive.model.query import EVERYTHING, Field, GroupOrder, GroupPage, Order, Page, Query
from redrive.model.settlement import Settled, Settlement
from redrive.ports.capabilities import Capabilities


class LetterStore(Protocol):
    """Holds letters and hands them out, one owner at a time.

    Every verb takes a batch and answers for each item, in the order given. A verb that raises has changed nothing,
    except for `AnswerLost`: then it may have been done, or part of it where the store is not `atomic`.
    `now` is for tests; without it the store's own clock decides, never the caller's.
    """

    @property
    def capabilities(self) -> Capabilities: ...

    async def put(self, letters: Sequence[Letter], *, now: datetime | None = None) -> list[Held]:
        """Hold letters; say for each: new, attempt, reopened or duplicate. Repeating a call changes nothing.

        When it returns, the letters are as durable as the store claims to be. The rules are those of
        `redrive.model.arrival.arrive`, applied one after another, also within one batch. Reopening voids every lease.
        """
        ...

    async def get(self, ids: Sequence[UUID], *, now: datetime | None = None) -> list[Letter | None]:
        """The letters with these ids, None for each that is not there. A letter under a live lease is `retrying`."""
        ...

    async def find(
        self,
        query: Query = EVERYTHING,
        *,
        order: Order = Order.NEWEST,
        limit: int = 100,
        after: str | None = None,
        now: datetime | None = None,
    ) -> Page:
        """A page of the letters that match, and the cursor to go on from.

        Paging is by key: a letter that stays as it is, is seen exactly once, whatever arrives or leaves meanwhile. Words in
        bodies and tracebacks may be found a little later than the letter itself; `Page.unsearched` says how many are missing.
        """
        ...

    async def count(self, query: Query = EVERYTHING, *, now: datetime | None = None) -> int:
        """How many letters match."""
        ...

    async def tally(self, by: Field, query: Query = EVERYTHING, *, now: datetime | None = None) -> dict[str, int]:
        """How many letters match for each value of a field: status, source, category, error, group or namespace."""
        ...

    async def hourly(
        self, since: datetime, until: datetime, query: Query = EVERYTHING, *, now: datetime | None = None
    ) -> dict[datetime, int]:
        """How many of the letters that match were dead-lettered in each clock hour, by its beginning; hours without are left out.

        From the hour that `since` lies in, to the hour that `until` lies in.
        """
        ...

    async def groups(
        self,
        query: Query = EVERYTHING,
        *,
        order: GroupOrder = GroupOrder.LAST_SEEN,
        limit: int = 100,
        after: str | None = None,
        now: datetime | None = None,
    ) -> GroupPage:
        """The failures among the letters that match, highest first in the order that is asked for.

        Paging is by key: a group that stays as it is, is seen exactly once.
        """
        ...

    async def claim(self, claim: Claim, *, now: datetime | None = None) -> list[Claimed]:
        """Lease open letters that nobody holds, so that no two owners ever hold the same one at the same instant.

        Due letters of a lane come highest priority first, then those that could have been claimed the longest: since
        their retry was due, or since the lease that somebody let run out had ended; with `Due.longest`, priorities do not
        count. Those of a query come oldest first, those of ids in the order given; what cannot be claimed is left out.
        An expired lease may be taken over; its owner can do nothing with it any more. Tokens rise with every claim of the
        same letter.
        """
        ...

    async def wait(self, lanes: Sequence[Lane], patience: timedelta) -> None:
        """Return when a letter of one of these lanes may be claimed as due, at the latest after `patience`.

        Changes nothing; may return early.
        """
        ...

    async def extend(self, leases: Sequence[Lease], by: timedelta, *, now: datetime | None = None) -> list[Lease | None]:
        """Move live leases' deadlines to `by` from now; None for each that is lost. Never shortens another's."""
        ...

    async def settle(self, settlements: Sequence[Settlement], *, now: datetime | None = None) -> list[Settled]:
        """End claims. Id, token and generation must hold and the lease be live, else nothing is changed for that item."""
        ...

    async def amend(self, amendments: Sequence[Amendment], *, now: datetime | None = None) -> list[Amended]:
        """Change letters that nobody holds. The content as it first came is kept as `original`."""
        ...

    async def purge(
        self, query: Query, *, limit: int = 1000, among: Sequence[UUID] | None = None, now: datetime | None = None
    ) -> list[Letter]:
        """Remove up to `limit` letters that match and that nobody holds, oldest first; answer with what was removed.

        With `among`, only letters with these ids, which still must match: so that whoever has looked through a million
        letters need not look again for those to remove.
        """
        ...

    async def tidy(self, most: int = 200) -> Backlog:
        """Do some of what the store puts off, about `most` letters of it, in a short transaction; answer with what is left.

        Index texts, sum up counts, give back space. With 0 it only looks. Nothing that is confirmed waits for it.
        """
        ...

    async def recount(self, *, repair: bool = False) -> list[Miscount]:
        """Compare the counts that the store keeps with the letters themselves, without holding anybody up; answer with what
        differs, and with `repair` put it right.
        """
        ...

    async def check(self) -> None:
        """Return when the store can answer and write; raise what is wrong otherwise. Changes nothing."""
        ...

    async def close(self) -> None:
        """Let go of everything. What was confirmed stays; calling it twice is fine."""
        ...
