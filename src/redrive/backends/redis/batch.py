"""What is to be written to one shard in one call: letters, and every sorted set and count that changes with them."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from itertools import chain
from typing import Any
from uuid import UUID

from redrive.backends.redis.cards import card
from redrive.backends.redis.holdings import Kept, given, kept
from redrive.backends.redis.keys import (
    ABSENT,
    AGE,
    UPDATED,
    Shard,
    bytes_of,
    counted,
    counted_in_group,
    indexes,
    instant_of,
    status_index,
)
from redrive.backends.redis.scripts import script
from redrive.backends.redis.server import Server
from redrive.model.letter import Letter
from redrive.model.stored import restored, stored

FREE = b"\xff" * 8
"""A guard: nobody may hold the letter."""
ANY = ABSENT
"""A guard: it does not matter who holds the letter."""


class Batch:
    """Collects changes to letters of one shard. They are written if each letter is still what the change was made from."""

    def __init__(self, shard: Shard) -> None:
        self.shard = shard
        # New with every batch, so that a letter that was removed and came again is never taken for the one before.
        self._version = os.urandom(8)
        self.ids: list[bytes] = []
        self.versions: list[bytes] = []
        self.guards: list[bytes] = []
        self.voids: list[bytes] = []
        self.letters: list[bytes] = []
        self.cards: list[bytes] = []
        self.come: defaultdict[bytes, list[bytes]] = defaultdict(list)
        self.gone: defaultdict[bytes, list[bytes]] = defaultdict(list)
        self.counts: defaultdict[tuple[bytes, bytes], int] = defaultdict(int)

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def joined(cls, batches: Sequence[Batch]) -> Batch:
        """Batches of different letters of the same shard as one."""
        whole = cls(batches[0].shard)
        for batch in batches:
            whole.ids += batch.ids
            whole.versions += batch.versions
            whole.guards += batch.guards
            whole.voids += batch.voids
            whole.letters += batch.letters
            whole.cards += batch.cards
            for members, some in ((whole.come, batch.come), (whole.gone, batch.gone)):
                for suffix, those in some.items():
                    members[suffix] += those
            for where, difference in batch.counts.items():
                whole.counts[where] += difference
        return whole

    @property
    def size(self) -> int:
        """Its letters in bytes."""
        return sum(map(len, self.letters))

    def write(self, before: Kept | None, after: Letter, *, guard: bytes = ANY, void: bool = False) -> None:
        """Write a letter; `void`: no lease on it holds any more."""
        id = after.id.bytes
        self._check(id, before, guard, void)
        self.letters += (id, stored(after))
        self.cards += (id, card(after, self._version))
        if before is None:
            self._enter(id, after)
        else:
            self._move(id, before.letter, after)

    def remove(self, before: Kept) -> None:
        """Remove a letter that nobody holds. A batch removes or writes, never both."""
        id = before.letter.id.bytes
        self._check(id, before, FREE, True)
        self._leave(id, before.letter)

    async def send(self, server: Server, now: datetime | None) -> tuple[dict[UUID, Kept | None], datetime]:
        """Write it all, or nothing: then answer with what stands in the way, as it is now (None: it is not there)."""
        keys = self.shard.writing
        changes: list[Any] = []
        for verb, members in (("ZREM", self.gone), ("ZADD", self.come)):
            for suffix, some in members.items():
                keys.append(self.shard.key(suffix))
                changes += (verb, len(keys), b"".join(some))
        sets, numbers = len(changes) // 3, dict[bytes, int]()
        for (suffix, value), difference in self.counts.items():
            if difference:
                if suffix not in numbers:
                    keys.append(self.shard.key(suffix))
                    numbers[suffix] = len(keys)
                changes += (numbers[suffix], value, difference)
        answer = await server.run(
            script("write"),
            keys,
            given(now),
            b"".join(self.ids),
            b"".join(self.versions),
            b"".join(self.guards),
            b"".join(self.voids),
            len(self.letters) // 2,
            *chain(self.letters, self.cards),
            sets,
            *changes,
        )
        if now is None:
            server.heard(answer[0])
        obstacles: dict[UUID, Kept | None] = {}
        for start in range(1, len(answer), 4):
            number, version, lease, data = answer[start : start + 4]
            id = UUID(bytes=self.ids[number - 1])
            obstacles[id] = None if version is None else kept(restored(data), version, lease)
        return obstacles, instant_of(answer[0])

    def _check(self, id: bytes, before: Kept | None, guard: bytes, void: bool) -> None:
        self.ids.append(id)
        self.versions.append(before.version if before else ABSENT)
        self.guards.append(guard)
        self.voids.append(b"1" if void else b"0")

    def _enter(self, id: bytes, letter: Letter) -> None:
        member = bytes_of(letter.dead_lettered_at) + id
        self.come[UPDATED].append(bytes_of(letter.updated_at) + id)
        self.come[AGE].append(member)
        for suffix in indexes(letter):
            self.come[suffix].append(member)
        for where in counted(letter):
            self.counts[where] += 1

    def _leave(self, id: bytes, letter: Letter) -> None:
        member = bytes_of(letter.dead_lettered_at) + id
        self.gone[UPDATED].append(bytes_of(letter.updated_at) + id)
        self.gone[AGE].append(member)
        for suffix in indexes(letter):
            self.gone[suffix].append(member)
        for where in counted(letter):
            self.counts[where] -= 1

    def _move(self, id: bytes, before: Letter, after: Letter) -> None:
        if before.updated_at != after.updated_at:
            self.gone[UPDATED].append(bytes_of(before.updated_at) + id)
            self.come[UPDATED].append(bytes_of(after.updated_at) + id)
        if _is_only_status(before, after):
            if before.status is not after.status:
                member = bytes_of(after.dead_lettered_at) + id
                self.gone[status_index(before.status)].append(member)
                self.come[status_index(after.status)].append(member)
                self.counts[counted_in_group(before)] -= 1
                self.counts[counted_in_group(after)] += 1
            return
        old, new = bytes_of(before.dead_lettered_at) + id, bytes_of(after.dead_lettered_at) + id
        if old != new:
            self.gone[AGE].append(old)
            self.come[AGE].append(new)
        where_old, where_new = indexes(before), indexes(after)
        for suffix in where_old:
            if old != new or suffix not in where_new:
                self.gone[suffix].append(old)
        for suffix in where_new:
            if old != new or suffix not in where_old:
                self.come[suffix].append(new)
        if before.failure is not after.failure or before.status is not after.status:
            for where in counted(before):
                self.counts[where] -= 1
            for where in counted(after):
                self.counts[where] += 1


def _is_only_status(before: Letter, after: Letter) -> bool:
    """Is it in the same indexes but for its status? The usual end of a claim, and cheap to see: copies share their fields."""
    return (
        before.failure is after.failure
        and before.tags is after.tags
        and before.dead_lettered_at is after.dead_lettered_at
        and before.source is after.source
        and before.namespace is after.namespace
        and before.kind is after.kind
        and before.key is after.key
    )
