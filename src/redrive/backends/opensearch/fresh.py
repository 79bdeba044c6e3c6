"""Searches lag behind writes: an index is refreshed before a search when this process has written since.

What other processes write is seen within the index's own refresh interval, a second unless it was set otherwise.
"""

from __future__ import annotations

import itertools
import threading
import time
from weakref import WeakValueDictionary

_UNSURE_SECONDS = 10.0
"""A write whose answer was lost may still be on its way; so long, every search refreshes."""
_MOST_UNSEEN = 100


class Freshness:
    """What this process has written to one index that searches may not see yet. Safe from threads, without a lock that a fork
    could leave shut: each step is one operation on a set."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._unseen: set[int] = set()
        self._unsure_until = 0.0

    def wrote(self, *, surely: bool = True) -> None:
        """Something was written, or may have been."""
        self._unseen.add(next(self._numbers))
        if not surely:
            self._unsure_until = time.monotonic() + _UNSURE_SECONDS
        if len(self._unseen) > _MOST_UNSEEN:
            # The latest is enough to know that there is something.
            self._unseen.difference_update(sorted(self._unseen.copy())[:-1])

    @property
    def is_fresh(self) -> bool:
        return not self._unseen and time.monotonic() >= self._unsure_until

    @property
    def unseen(self) -> frozenset[int]:
        """Which writes; to be read before a refresh begins."""
        return frozenset(self._unseen.copy())

    def refreshed(self, seen: frozenset[int]) -> None:
        """A refresh that began behind these writes has ended."""
        self._unseen.difference_update(seen)


_lock = threading.Lock()
_by_index: WeakValueDictionary[str, Freshness] = WeakValueDictionary()


def freshness(uuid: str) -> Freshness:
    """Of the index with this UUID: the same for all stores of this process that are on it."""
    with _lock:
        found = _by_index.get(uuid)
        if found is None:
            found = _by_index[uuid] = Freshness()
        return found
