"""What every kit for letters stands on: an opener to override, and a clerk who uses the store on the test's own time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn, Protocol, TypeVar
from uuid import UUID

import pytest

from redrive.model.amendment import Amended, Amendment
from redrive.model.arrival import Held
from redrive.model.census import Backlog, Miscount
from redrive.model.lease import Claim, Claimed, Due, Lease
from redrive.model.letter import Letter
from redrive.model.query import EVERYTHING, Field, Group, GroupOrder, GroupPage, Order, Page, Query
from redrive.model.settlement import Outcome, Settled, Settlement
from redrive.ports.capabilities import Capabilities
from redrive.ports.inline import drive
from redrive.ports.letters import LetterStore
from redrive.testing.kit.samples import LANE, START

T = TypeVar("T")

Opener = Callable[[Path], LetterStore]
"""Opens the store that lives in this folder: a new folder gives an empty store, a known one what a durable store kept.

To be tested with several processes it must be a function that other processes can import.
"""


class Run(Protocol):
    """Runs a verb to its end: on an event loop, or inline."""

    def __call__(self, verb: Coroutine[Any, Any, T], /) -> T: ...


class Clerk:
    """Uses a store as a blocking caller would. `now` is the instant of every call, and moves only by `wait`."""

    def __init__(self, store: LetterStore, run: Run, now: datetime = START) -> None:
        self.store = store
        self.now = now
        self._run = run

    @property
    def capabilities(self) -> Capabilities:
        return self.store.capabilities

    def wait(self, **duration: float) -> None:
        """Let time pass: `wait(minutes=5)`."""
        self.now += timedelta(**duration)

    def put(self, *letters: Letter) -> list[Held]:
        return self._run(self.store.put(letters, now=self.now))

    def get(self, *ids: UUID) -> list[Letter | None]:
        return self._run(self.store.get(ids, now=self.now))

    def one(self, id: UUID) -> Letter:
        """The letter, which must be there."""
        (found,) = self.get(id)
        assert found is not None, f"letter {id} is gone"
        return found

    def find(self, query: Query = EVERYTHING, *, order: Order = Order.NEWEST, limit: int = 100, after: str | None = None) -> Page:
        return self._run(self.store.find(query, order=order, limit=limit, after=after, now=self.now))

    def all(self, query: Query = EVERYTHING, *, order: Order = Order.NEWEST, limit: int = 100) -> list[Letter]:
        """Every letter that matches, page by page."""
        page = self.find(query, order=order, limit=limit)
        letters = list(page.letters)
        while page.next is not None:
            page = self.find(query, order=order, limit=limit, after=page.next)
            assert page.letters, "a cursor led to an empty page"
            letters += page.letters
        return letters

    def ids(self, query: Query = EVERYTHING, *, order: Order = Order.NEWEST) -> list[UUID]:
        return [letter.id for letter in self.all(query, order=order)]

    def count(self, query: Query = EVERYTHING) -> int:
        return self._run(self.store.count(query, now=self.now))

    def tally(self, by: Field, query: Query = EVERYTHING) -> dict[str, int]:
        return self._run(self.store.tally(by, query, now=self.now))

    def hourly(self, since: datetime, until: datetime, query: Query = EVERYTHING) -> dict[datetime, int]:
        return self._run(self.store.hourly(since, until, query, now=self.now))

    def groups(
        self,
        query: Query = EVERYTHING,
        *,
        order: GroupOrder = GroupOrder.LAST_SEEN,
        limit: int = 100,
        after: str | None = None,
    ) -> GroupPage:
        return self._run(self.store.groups(query, order=order, limit=limit, after=after, now=self.now))

    def all_groups(self, query: Query = EVERYTHING, *, order: GroupOrder = GroupOrder.LAST_SEEN, limit: int = 100) -> list[Group]:
        """Every group, page by page."""
        page = self.groups(query, order=order, limit=limit)
        groups = list(page.groups)
        while page.next is not None:
            page = self.groups(query, order=order, limit=limit, after=page.next)
            groups += page.groups
        return groups

    def claim(
        self,
        *,
        owner: str = "ann",
        lease: timedelta = timedelta(minutes=5),
        limit: int = 100,
        what: Due | Query | tuple[UUID, ...] = Due(LANE),
    ) -> list[Claimed]:
        claim = Claim(owner=owner, lease=lease, limit=limit, what=what)
        return self._run(self.store.claim(claim, now=self.now))

    def take(self, id: UUID, *, owner: str = "ann", lease: timedelta = timedelta(minutes=5)) -> Lease:
        """The lease on this letter, which must be free."""
        (claimed,) = self.claim(owner=owner, lease=lease, what=(id,))
        return claimed.lease

    def extend(self, *leases: Lease, by: timedelta) -> list[Lease | None]:
        return self._run(self.store.extend(leases, by, now=self.now))

    def settle(self, *settlements: Settlement) -> list[Settled]:
        return self._run(self.store.settle(settlements, now=self.now))

    def end(self, lease: Lease, outcome: Outcome) -> Settled:
        """Settle one lease."""
        (answer,) = self.settle(Settlement.of(lease, outcome))
        return answer

    def amend(self, *amendments: Amendment) -> list[Amended]:
        return self._run(self.store.amend(amendments, now=self.now))

    def purge(self, query: Query = EVERYTHING, *, limit: int = 1000, among: Sequence[UUID] | None = None) -> list[Letter]:
        return self._run(self.store.purge(query, limit=limit, among=among, now=self.now))

    def tidy(self, most: int = 200) -> Backlog:
        return self._run(self.store.tidy(most))

    def tidy_all(self) -> None:
        """Do all that the store has put off."""
        while self.tidy():
            pass

    def recount(self, *, repair: bool = False) -> list[Miscount]:
        return self._run(self.store.recount(repair=repair))

    def check(self) -> None:
        self._run(self.store.check())

    def close(self) -> None:
        self._run(self.store.close())


class Capable(Protocol):
    """A store, whatever it keeps, or who uses it."""

    @property
    def capabilities(self) -> Capabilities: ...


@contextmanager
def running(store: Capable) -> Iterator[Run]:
    """How to run this store's verbs: inline when it can, which is faster, else on an event loop."""
    if store.capabilities.inline:
        yield drive
        return
    with asyncio.Runner() as runner:
        yield runner.run


class Looped:
    """What every kit needs."""

    @pytest.fixture
    def run(self) -> Iterator[Run]:
        """How verbs are run: on an event loop of the test's own."""
        with asyncio.Runner() as runner:
            yield runner.run


class Placed(Looped):
    """Fixtures of all kits for stores that are opened in a folder."""

    @pytest.fixture
    def share(self) -> float:
        """What part of the generated sequences is tried in an ordinary run: less than 1 for an engine that takes its time."""
        return 1.0

    @pytest.fixture
    def place(self, tmp_path: Path) -> Path:
        """A folder that belongs to one store."""
        place = tmp_path / "store"
        place.mkdir()
        return place


class Kit(Placed):
    """Fixtures of all kits for letters. A subclass overrides `opener`."""

    @pytest.fixture
    def opener(self) -> Opener:
        """Give the function that opens the store under test."""
        no_opener()

    @pytest.fixture
    def store(self, opener: Opener, place: Path, run: Run) -> Iterator[Clerk]:
        """An empty store."""
        clerk = Clerk(opener(place), run)
        yield clerk
        clerk.close()


def no_opener() -> NoReturn:
    pytest.fail("override the fixture `opener` with one that gives the function to open your store", pytrace=False)


def offers(store: Capable, order: Order) -> None:
    """Skip the test when the store does not list letters in this order."""
    if order is Order.NEAREST:
        needs(store, "nearest")


def needs(store: Capable, capability: str) -> None:
    """Skip the test when the store does not claim this."""
    if not getattr(store.capabilities, capability):
        pytest.skip(f"this store does not claim to be {capability}")
