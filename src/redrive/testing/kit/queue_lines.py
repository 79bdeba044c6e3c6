"""What the kit for queues across a network stands on: an engine that may be killed, and a line to it that may be cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest
from msgspec.structs import replace

from redrive.model.queue import Shard
from redrive.ports.queues import QueueStore
from redrive.testing.kit.clerk import Run
from redrive.testing.kit.lines import PATIENCE, At, Host, Lines
from redrive.testing.kit.queue_clerk import QueueClerk


class QueueRemote(Host[QueueClerk], frozen=True, kw_only=True):
    """An engine with queues on it."""

    open: Callable[[At], QueueStore]
    attentive: Callable[[At], QueueStore] | None = None
    """Opens one that is told when others make something ready, where a store must be asked to be so; else `open` does."""

    def clerk(self, at: At, run: Run) -> QueueClerk:
        return QueueClerk(self.open(at), run)

    def listener(self, at: At) -> QueueStore:
        """Who waits for changes there."""
        return (self.attentive or self.open)(at)


class QueueLines(Lines[QueueClerk]):
    """Fixtures of the kit for queues across a network. A subclass overrides `remote`."""

    @pytest.fixture(scope="class")
    @classmethod
    def name(cls) -> str:
        """All tests share a store, in which each has queues of its own: to make a store takes longer than most of them."""
        return f"t{uuid4().hex[:12]}"

    @pytest.fixture
    def other(self, remote: QueueRemote, name: str, run: Run) -> Iterator[QueueStore]:
        """The same store past the line, as another process has it that tells those who wait."""
        store = remote.listener(remote.near(name, PATIENCE))
        yield store
        run(store.close())


def own(shard: Shard) -> Shard:
    """A queue like this one that nobody else has."""
    return replace(shard, queue=f"{shard.queue}-{uuid4().hex}")
