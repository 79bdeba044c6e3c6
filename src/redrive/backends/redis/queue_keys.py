"""The names of the keys that queues have. They share one hash tag, so that a script may touch all partitions of all queues.

On a cluster they lie on one node, for a dead item moves from one queue to another in one step: several stores spread a queue.
"""

from __future__ import annotations

from collections.abc import Iterable

from redrive.backends.redis.keys import text_bytes
from redrive.model.queue import Shard

_NAMES = (
    b"state",
    b"items",
    b"ready",
    b"leased",
    b"ends",
    b"schedule",
    b"scheduled",
    b"early",
    b"dying",
    b"sources",
    b"keys",
    b"lines",
    b"behind",
    b"seen",
)
"""Of a partition; see `lua/queue_shared.lua`."""


class QueueKeys:
    """Of one store."""

    def __init__(self, prefix: str, *, is_cluster: bool) -> None:
        self.tag = f"{{{prefix}:queues}}".encode()
        self.catalogue = self.tag + b"catalogue"
        """Hash: version → its number; queue:id → its definition."""
        self.due = self.tag + b"due"
        """Sorted: when something is due, partition."""
        self.changes = self.tag + b"changes"
        """How often something became ready."""
        self._is_cluster = is_cluster
        self._roots = self.tag + b"q:"

    def root(self, queue: str) -> bytes:
        """How all keys of this queue begin."""
        return self._roots + text_bytes(queue) + b":"

    def queue(self, root: bytes) -> str:
        """Whose keys begin so."""
        return root[len(self._roots) : -1].decode("utf-8", "surrogatepass")

    def of(self, shard: Shard, *more: tuple[Shard, Iterable[int]]) -> list[bytes]:
        """What a script may touch. A cluster must be told, so that it refuses beforehand while it moves these keys about."""
        keys = [self.due, self.changes, self.root(shard.queue) + b"bucket"]
        if self._is_cluster:
            for other, numbers in ((shard, shard.partitions), *more):
                root = self.root(other.queue)
                keys += [b"%b%d:%b" % (root, number, name) for number in dict.fromkeys(numbers) for name in _NAMES]
        return keys
