"""What the kit for networks stands on: an engine that may be killed, a line to it that may be cut, and a witness past the line."""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Generic, Protocol, TypeVar
from uuid import uuid4

import pytest
from msgspec import Struct
from msgspec.structs import replace

from redrive.model.errors import AnswerLost, StoreUnavailable
from redrive.model.letter import Letter
from redrive.ports.letters import LetterStore
from redrive.testing.kit.clerk import Clerk, Looped, Run
from redrive.testing.kit.samples import START, letter
from redrive.testing.proxy import Proxy

PATIENCE = timedelta(seconds=30)
BLINK_SECONDS = 0.005
SHORT = timedelta(seconds=1)
"""How long a store waits for an answer where a test lets it wait in vain."""
SOON = 4 * SHORT + SHORT
"""Waiting for the answer, letting go of the connection, and some time to spare on a busy machine."""
_TIMEOUT = timedelta(seconds=5)


class Engine(Protocol):
    """A server that a test may end and begin again, on the same data and at the same port."""

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...

    def kill(self) -> None:
        """kill -9; nothing is flushed."""
        ...

    def start(self) -> None:
        """Return when it is ready again."""
        ...

    def pause(self) -> None:
        """Freeze it: connections stay open and nothing answers."""
        ...

    def resume(self) -> None: ...


class At(Struct, frozen=True, kw_only=True):
    """Where a store is to be opened, and how."""

    host: str
    port: int
    name: str
    """Keeps this store apart from all others on the same engine: a prefix, or the name of a schema."""
    timeout: timedelta
    """How long an answer may take."""


class Used(Protocol):
    """A clerk, whatever the store."""

    def check(self) -> None: ...

    def close(self) -> None: ...


C = TypeVar("C", bound=Used)


class Host(Struct, Generic[C], frozen=True, kw_only=True):
    """An engine with a store on it."""

    engine: Engine
    victim: Engine | None = None
    """What is killed and frozen, when that is one part of several; else the engine. Started again is always the engine."""

    @property
    def mortal(self) -> Engine:
        """What is killed and frozen."""
        return self.victim or self.engine

    @abstractmethod
    def clerk(self, at: At, run: Run) -> C:
        """One who uses the store that is opened there."""

    def near(self, name: str, timeout: timedelta) -> At:
        """The engine itself, without a line that could be cut."""
        return At(host=self.engine.host, port=self.engine.port, name=name, timeout=timeout)


class Remote(Host[Clerk], frozen=True, kw_only=True):
    """An engine with letters on it."""

    open: Callable[[At], LetterStore]

    def clerk(self, at: At, run: Run) -> Clerk:
        return Clerk(self.open(at), run)


class Lines(Looped, Generic[C]):
    """Fixtures of the kits for networks. A subclass overrides `remote`."""

    @pytest.fixture
    def remote(self) -> Host[C]:
        """Give the engine, and how the store on it is opened."""
        pytest.fail(
            "override the fixture `remote` with one that gives an engine and how your store on it is opened", pytrace=False
        )

    @pytest.fixture
    def name(self) -> str:
        return f"t{uuid4().hex[:12]}"

    @pytest.fixture
    def line(self, remote: Host[C]) -> Iterator[Proxy]:
        """What stands between the store under test and its engine."""
        with Proxy(remote.engine.host, remote.engine.port) as proxy:
            yield proxy

    @pytest.fixture
    def store(self, remote: Host[C], line: Proxy, name: str, run: Run) -> Iterator[C]:
        """An empty store at the far end of the line, ready for use."""
        with ready(remote, At(host=line.host, port=line.port, name=name, timeout=PATIENCE), run) as clerk:
            yield clerk

    @pytest.fixture
    def hasty(self, remote: Host[C], line: Proxy, name: str, run: Run) -> Iterator[C]:
        """The same, with little patience for answers."""
        with ready(remote, At(host=line.host, port=line.port, name=name, timeout=SHORT), run) as clerk:
            yield clerk

    @pytest.fixture
    def witness(self, remote: Host[C], name: str, run: Run) -> Iterator[C]:
        """The same store past the line: sees what is really there."""
        with ready(remote, remote.near(name, PATIENCE), run) as clerk:
            yield clerk

    @pytest.fixture
    def near(self, remote: Host[C], name: str, run: Run) -> Iterator[C]:
        """An empty store on the engine itself, with some patience for answers."""
        with ready(remote, remote.near(name, _TIMEOUT), run) as clerk:
            yield clerk


@contextmanager
def ready(remote: Host[C], at: At, run: Run) -> Iterator[C]:
    """One who uses the store that is opened there, which is ready for use."""
    clerk = remote.clerk(at, run)
    clerk.check()
    yield clerk
    clerk.close()


class Batch:
    """Letters that are known by heart, so that a torn one is seen; all of them are due."""

    def __init__(self, name: str, size: int = 20) -> None:
        self.letters = [
            letter(f"{name}/{number}", due=START, body=f"{name}/{number} ".encode() * 300, metadata={"list": list(range(20))})
            for number in range(size)
        ]
        self.ids = [one.id for one in self.letters]

    def found_by(self, clerk: Clerk) -> int:
        """How many of them are there; each that is, is whole."""
        return _whole(self.letters, clerk.get(*self.ids))


def _whole(letters: Sequence[Letter], found: Sequence[Letter | None]) -> int:
    for sent, one in zip(letters, found, strict=True):
        if one is not None:
            assert replace(one, status=sent.status, updated_at=START, retry=sent.retry, redrive=sent.redrive) == sent
    return sum(one is not None for one in found)


class Ended(Struct, frozen=True):
    """How a call ended: with an answer, unknown, or without having changed anything."""

    answer: Any = None
    error: StoreUnavailable | None = None

    @property
    def is_done(self) -> bool:
        return self.error is None

    @property
    def is_unknown(self) -> bool:
        return isinstance(self.error, AnswerLost)

    @property
    def is_undone(self) -> bool:
        return self.error is not None and not self.is_unknown


def ended(verb: Callable[[], Any]) -> Ended:
    """How this call ends, which is with an answer or with one clear sentence that says to try again."""
    try:
        return Ended(verb())
    except StoreUnavailable as error:
        one_sentence(error)
        return Ended(error=error)


def one_sentence(error: Exception) -> None:
    said = str(error)
    assert said
    assert "\n" not in said
    assert "Traceback" not in said
    assert "object at 0x" not in said


def within(bound: timedelta, verb: Callable[[], Any]) -> Ended:
    """How this call ends, which it must in so much time."""
    began = time.monotonic()
    answer = ended(verb)
    assert time.monotonic() - began < bound.total_seconds(), "the call hung"
    return answer


def recovered(clerk: Used) -> None:
    """Wait until the engine serves again; one of several parts takes its time to be known to the others."""
    deadline = time.monotonic() + PATIENCE.total_seconds()
    while not (told := ended(clerk.check)).is_done:
        assert time.monotonic() < deadline, told.error
        time.sleep(BLINK_SECONDS)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition; the caller sets the bound."""
    while not condition():  # noqa: ASYNC110 - what is waited for happens in other threads and processes
        await asyncio.sleep(BLINK_SECONDS)
