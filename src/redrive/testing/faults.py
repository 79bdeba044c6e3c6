"""Faults at named points: wrappers around a store that fail, wait, cut an answer or end the process."""

from __future__ import annotations

import os
import signal
import threading
from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol, TypeVar
from uuid import UUID

from msgspec.structs import replace

from redrive.model.amendment import Amended, Amendment
from redrive.model.arrival import Held
from redrive.model.census import Backlog, Miscount
from redrive.model.errors import BadSettings, StoreUnavailable
from redrive.model.lane import Lane
from redrive.model.lease import Claim, Claimed, Lease
from redrive.model.letter import Letter
from redrive.model.query import EVERYTHING, Field, GroupOrder, GroupPage, Order, Page, Query
from redrive.model.settlement import Settled, Settlement
from redrive.ports.capabilities import Capabilities
from redrive.ports.letters import LetterStore

T = TypeVar("T")

VERBS = frozenset(
    {
        "put",
        "get",
        "find",
        "count",
        "tally",
        "hourly",
        "groups",
        "claim",
        "wait",
        "extend",
        "settle",
        "amend",
        "purge",
        "tidy",
        "recount",
        "check",
        "close",
    }
)


class Moment(StrEnum):
    """When a fault strikes."""

    BEFORE = "before"
    """Nothing was done."""
    AFTER = "after"
    """It was done, and its answer is lost."""


Fault = Callable[[], Awaitable[None]]
"""What happens at a point: it may raise, wait, or never come back."""


class Gate(Protocol):
    """What a verb can wait at, such as an `asyncio.Event`."""

    async def wait(self) -> object: ...


def raising(error: BaseException) -> Fault:
    """Raise this."""

    async def fault() -> None:
        raise error

    return fault


def waiting(gate: Gate) -> Fault:
    """Wait until the gate opens: a delay whose length the test decides."""

    async def fault() -> None:
        await gate.wait()

    return fault


def killing() -> Fault:
    """End this process at once, as `kill -9` does."""

    async def fault() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    return fault


class _Wrapped(ABC):
    """Passes every verb on to a store, through `_around`."""

    def __init__(self, store: LetterStore) -> None:
        self._store = store

    @property
    def capabilities(self) -> Capabilities:
        return self._store.capabilities

    @abstractmethod
    async def _around(self, verb: str, call: Callable[[], Awaitable[T]]) -> T:
        """Make the call, or let something else happen; the answer is the verb's."""

    async def put(self, letters: Sequence[Letter], *, now: datetime | None = None) -> list[Held]:
        return await self._around("put", lambda: self._store.put(letters, now=now))

    async def get(self, ids: Sequence[UUID], *, now: datetime | None = None) -> list[Letter | None]:
        return await self._around("get", lambda: self._store.get(ids, now=now))

    async def find(
        self,
        query: Query = EVERYTHING,
        *,
        order: Order = Order.NEWEST,
        limit: int = 100,
        after: str | None = None,
        now: datetime | None = None,
    ) -> Page:
        return await self._around("find", lambda: self._store.find(query, order=order, limit=limit, after=after, now=now))

    async def count(self, query: Query = EVERYTHING, *, now: datetime | None = None) -> int:
        return await self._around("count", lambda: self._store.count(query, now=now))

    async def tally(self, by: Field, query: Query = EVERYTHING, *, now: datetime | None = None) -> dict[str, int]:
        return await self._around("tally", lambda: self._store.tally(by, query, now=now))

    async def hourly(
        self, since: datetime, until: datetime, query: Query = EVERYTHING, *, now: datetime | None = None
    ) -> dict[datetime, int]:
        return await self._around("hourly", lambda: self._store.hourly(since, until, query, now=now))

    async def groups(
        self,
        query: Query = EVERYTHING,
        *,
        order: GroupOrder = GroupOrder.LAST_SEEN,
        limit: int = 100,
        after: str | None = None,
        now: datetime | None = None,
    ) -> GroupPage:
        return await self._around("groups", lambda: self._store.groups(query, order=order, limit=limit, after=after, now=now))

    async def claim(self, claim: Claim, *, now: datetime | None = None) -> list[Claimed]:
        return await self._around("claim", lambda: self._store.claim(claim, now=now))

    async def wait(self, lanes: Sequence[Lane], patience: timedelta) -> None:
        return await self._around("wait", lambda: self._store.wait(lanes, patience))

    async def extend(self, leases: Sequence[Lease], by: timedelta, *, now: datetime | None = None) -> list[Lease | None]:
        return await self._around("extend", lambda: self._store.extend(leases, by, now=now))

    async def settle(self, settlements: Sequence[Settlement], *, now: datetime | None = None) -> list[Settled]:
        return await self._around("settle", lambda: self._store.settle(settlements, now=now))

    async def amend(self, amendments: Sequence[Amendment], *, now: datetime | None = None) -> list[Amended]:
        return await self._around("amend", lambda: self._store.amend(amendments, now=now))

    async def purge(
        self, query: Query, *, limit: int = 1000, among: Sequence[UUID] | None = None, now: datetime | None = None
    ) -> list[Letter]:
        return await self._around("purge", lambda: self._store.purge(query, limit=limit, among=among, now=now))

    async def tidy(self, most: int = 200) -> Backlog:
        return await self._around("tidy", lambda: self._store.tidy(most))

    async def recount(self, *, repair: bool = False) -> list[Miscount]:
        return await self._around("recount", lambda: self._store.recount(repair=repair))

    async def check(self) -> None:
        return await self._around("check", self._store.check)

    async def close(self) -> None:
        return await self._around("close", self._store.close)


class Faulty(_Wrapped):
    """A store whose next calls meet the faults that were laid for them, each once and in the order they were laid.

    ```python
    store = Faulty(letters, fail_next={"put": StoreUnavailable("gone for lunch")})
    store.lay("settle", Moment.AFTER, raising(StoreUnavailable("the answer was lost")))
    store.lay("claim", Moment.BEFORE, killing())
    ```
    """

    def __init__(self, store: LetterStore, *, fail_next: Mapping[str, BaseException] | None = None) -> None:
        super().__init__(store)
        self.calls: list[str] = []
        """The verbs that were called, in order."""
        self._faults: defaultdict[tuple[str, Moment], deque[Fault]] = defaultdict(deque)
        for verb, error in (fail_next or {}).items():
            self.lay(verb, Moment.BEFORE, raising(error))

    def lay(self, verb: str, moment: Moment, fault: Fault, *, times: int = 1) -> None:
        """Let this happen the next time that the verb is called, or the next `times` times."""
        if verb not in VERBS:
            raise BadSettings(f"a store has no verb '{verb}'; choose one of {', '.join(sorted(VERBS))}")
        self._faults[verb, moment].extend([fault] * times)

    @property
    def waiting_faults(self) -> int:
        """How many faults were laid and have not struck."""
        return sum(map(len, self._faults.values()))

    async def _around(self, verb: str, call: Callable[[], Awaitable[T]]) -> T:
        self.calls.append(verb)
        await self._strike(verb, Moment.BEFORE)
        answer = await call()
        await self._strike(verb, Moment.AFTER)
        return answer

    async def _strike(self, verb: str, moment: Moment) -> None:
        if faults := self._faults[verb, moment]:
            await faults.popleft()()


class Outage(_Wrapped):
    """A store that can be taken down and brought up again; while it is down, every verb but `close` raises.

    It claims not to be embedded, as a store across a network would, so that a journal is used while it is down.
    """

    def __init__(self, store: LetterStore) -> None:
        super().__init__(store)
        self._is_up = threading.Event()
        self._is_up.set()

    @property
    def capabilities(self) -> Capabilities:
        return replace(self._store.capabilities, embedded=False)

    def down(self) -> None:
        """From now on nothing is answered."""
        self._is_up.clear()

    def up(self) -> None:
        """From now on everything is answered again."""
        self._is_up.set()

    async def _around(self, verb: str, call: Callable[[], Awaitable[T]]) -> T:
        if not self._is_up.is_set() and verb != "close":
            raise StoreUnavailable("the store is down; try again later")
        return await call()
