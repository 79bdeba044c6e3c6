"""Points before and after the verbs of a store of queues."""

from __future__ import annotations

from typing import Any, cast

from redrive.ports.queues import QueueStore
from redrive.testing.kill.points import Visit, watched

QUEUE_VERBS = ("put", "lease", "complete", "retry", "sweep", "dying", "move", "delete")
"""The steps of an item's life, to its end or into a dead queue. What only looks has no points."""


def watched_queues(store: QueueStore, visit: Visit, **called: str) -> QueueStore:
    """The store, with a point before and after each step of an item's life. `called` renames verbs: `put="bury"`."""
    return cast("QueueStore", _WatchedQueues(store, watched(store, visit, **called)))


class _WatchedQueues:
    def __init__(self, store: QueueStore, watched: QueueStore) -> None:
        self._store = store
        self._watched = watched

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._watched if verb in QUEUE_VERBS else self._store, verb)
