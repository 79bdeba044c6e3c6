"""Letters that this process has claimed, so that settling them need not read them again."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import Generic, TypeVar
from uuid import UUID

from msgspec import Struct

from redrive.model.letter import Letter

Version = TypeVar("Version")

_MOST_BYTES = 64 * 1024 * 1024
_OVERHEAD = 4096
"""What a letter without a body may take, generously."""


class Copy(Struct, Generic[Version], frozen=True, gc=False):
    """A letter as it was stored when it was claimed. Whoever writes what follows from it names the version."""

    letter: Letter
    version: Version
    token: int


class Copies(Generic[Version]):
    """The latest claims. A letter that is not here, or was changed since, is read from the store instead."""

    def __init__(self) -> None:
        self._by_id: OrderedDict[UUID, Copy[Version]] = OrderedDict()
        self._bytes = 0
        self._pid = os.getpid()
        self._lock = threading.Lock()

    def remember(self, copies: Iterable[Copy[Version]]) -> None:
        with self._own_lock():
            for copy in copies:
                self._forget(copy.letter.id)
                self._by_id[copy.letter.id] = copy
                self._bytes += _size(copy.letter)
            while self._bytes > _MOST_BYTES:
                self._forget(next(iter(self._by_id)))

    def take(self, id: UUID, token: int) -> Copy[Version] | None:
        """The letter that was claimed under this token; it is forgotten, for it is about to change."""
        with self._own_lock():
            copy = self._by_id.get(id)
            if copy is None or copy.token != token:
                return None
            self._forget(id)
            return copy

    def _own_lock(self) -> threading.Lock:
        if self._pid != os.getpid():
            # A thread of the parent may have held it when this process was forked.
            self._pid, self._lock = os.getpid(), threading.Lock()
        return self._lock

    def _forget(self, id: UUID) -> None:
        if (copy := self._by_id.pop(id, None)) is not None:
            self._bytes -= _size(copy.letter)


def _size(letter: Letter) -> int:
    return _OVERHEAD + len(letter.body)
