"""One partition in memory: what becomes of items, verb by verb."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from heapq import heappop, heappush

from redrive.backends.memory.standing import NEVER_US, Standing
from redrive.model.errors import NoSuchItem, NotLeased
from redrive.model.item import SOON_US, Again, Fresh, Item, PartitionStats, Place, Swept, Why
from redrive.model.ksuid import positions
from redrive.model.queue import Shard


class Partition(Standing):
    """Its verbs are called under the store's lock."""

    def put(self, shard: Shard, items: Sequence[Fresh], now_us: int) -> list[str]:
        self._expires = bool(shard.expire_us)
        ids = positions(self._last, len(items), now_us)
        if ids:
            self._last = ids[-1]
        expire_us = now_us + shard.expire_us if shard.expire_us else NEVER_US
        if shard.is_ordered or shard.dedupe_us or expire_us < self._latest_us or any(map(_is_odd, items)):
            self._put_each(shard, items, ids, now_us)
            return ids
        # What most items are, all at once.
        added = [
            Item(
                id, fresh.message_id or id, "", fresh.attempts, now_us, now_us, 0, expire_us,
                fresh.payload, fresh.reference, fresh.encoding, fresh.kind, fresh.key, 0, fresh.story,
            )
            for id, fresh in zip(ids, items, strict=True)
        ]  # fmt: skip
        if not shard.expire_us:
            for item in added:
                item.expire_us = 0
        self._latest_us = expire_us
        self.ready += len(added)
        self._created_us += now_us * len(added)
        self.items.update(zip(ids, added, strict=True))
        self._lanes[-1].extend(added)
        return ids

    def _put_each(self, shard: Shard, items: Sequence[Fresh], ids: list[str], now_us: int) -> None:
        """One by one; the ids of those that are there already are emptied."""
        for number, fresh in enumerate(items):
            if (fresh.source_id or shard.dedupe_us) and self._is_known(shard, fresh, now_us):
                ids[number] = ""
                continue
            id = ids[number]
            at_us = fresh.enqueue_us if fresh.enqueue_us >= now_us + SOON_US else 0
            expire_us = fresh.expire_us or ((at_us or now_us) + shard.expire_us if shard.expire_us else 0)
            # By position: see `Item`.
            item = Item(
                id, fresh.message_id or id, fresh.source_id, fresh.attempts, fresh.created_us or now_us, now_us, at_us, expire_us,
                fresh.payload, fresh.reference, fresh.encoding, fresh.kind, fresh.key, fresh.priority, fresh.story,
            )  # fmt: skip
            self.items[id] = item
            if shard.is_ordered and fresh.key and not self._is_first(item):
                continue
            if at_us:
                self._set_aside(item)
            else:
                self._created_us += item.created_us
                self._line_up(item)

    def _is_known(self, shard: Shard, fresh: Fresh, now_us: int) -> bool:
        is_deduped = bool(shard.dedupe_us and fresh.reference)
        if fresh.source_id in self._sources or (is_deduped and self._seen.get(fresh.reference, 0) > now_us):
            return True
        if fresh.source_id:
            self._sources.add(fresh.source_id)
        if is_deduped:
            self._seen[fresh.reference] = now_us + shard.dedupe_us
        return False

    def lease(self, shard: Shard, limit: int, now_us: int, until_us: int) -> tuple[list[Item], int]:
        given: list[Item] = []
        dying = 0
        if until_us >= self._leased_until_us:
            self._leased_until_us, leased = until_us, self._leased
        else:
            leased = self._leased_short
        expired_us, ready, is_leased = now_us if shard.expire_us else 0, Place.READY, Place.LEASED
        for lane in self._lanes:
            left = limit - len(given)
            while lane and left > 0:
                item = lane.popleft()
                if item.place is not ready:
                    continue
                if 0 < item.expire_us <= expired_us:
                    self.ready -= 1
                    self._give_up(item, Why.EXPIRED, now_us)
                    dying += 1
                    continue
                left -= 1
                item.place = is_leased
                item.attempts += 1
                item.updated_us = now_us
                item.lease_us = until_us
                leased[item.id] = item
                given.append(item)
        self.ready -= len(given)
        self._leased_us += now_us * len(given)
        return given, dying

    def _held(self, ids: Iterable[str], now_us: int) -> list[Item]:
        """The items, all of them under a live lease."""
        held = []
        leased = self._leased
        for id in ids:
            item = leased.get(id) or self._leased_short.get(id)
            if item is None:
                raise NotLeased(id) if id in self.items else NoSuchItem(id)
            if item.lease_us <= now_us:
                raise NotLeased(id)
            held.append(item)
        return held

    def extend(self, ids: Sequence[str], now_us: int, until_us: int) -> None:
        for item in self._held(dict.fromkeys(ids), now_us):
            if self._leased.pop(item.id, None) is None:
                del self._leased_short[item.id]
            item = copy(item)
            self.items[item.id] = item
            item.lease_us = until_us
            is_last = until_us >= self._leased_until_us
            (self._leased if is_last else self._leased_short)[item.id] = item
            self._leased_until_us = max(self._leased_until_us, until_us)

    def complete(self, ids: Sequence[str], now_us: int) -> None:
        held = self._held(dict.fromkeys(ids), now_us)
        if self._keys or self._sources or self._leased_short:
            for item in held:
                self._let_go(item)
                self._forget(item, now_us)
            return
        # What most items are: nobody waits behind them, and nobody asks for them by another name.
        items, leased, created_us, leased_us = self.items, self._leased, 0, 0
        for item in held:
            id = item.id
            del leased[id], items[id]
            created_us += item.created_us
            leased_us += item.updated_us
        self._created_us -= created_us
        self._leased_us -= leased_us
        self._relax()

    def retry(self, shard: Shard, again: Sequence[Again], now_us: int) -> Swept:
        told = {one.id: one for one in again}
        ready = dying = 0
        for item in self._held(told, now_us):
            one = told[item.id]
            self._let_go(item)
            item = copy(item)
            self.items[item.id] = item
            item.failure = one.failure or item.failure
            if one.dead or _is_spent(shard, item):
                self._give_up(item, Why.TOLD if one.dead else Why.ATTEMPTS, now_us)
                dying += 1
            elif one.at_us >= now_us + SOON_US:
                renewed = self._renewed(item, now_us)
                renewed.enqueue_us = one.at_us
                self._created_us -= renewed.created_us
                self._set_aside(renewed)
            else:
                self._line_up(self._renewed(item, now_us))
                ready += 1
        return Swept(ready=ready, dying=dying)

    def sweep(self, shard: Shard, now_us: int, limit: int) -> Swept:
        self._expires = bool(shard.expire_us)
        ready = dying = 0
        left = limit
        for item in self._over(now_us, limit):
            left -= 1
            self._let_go(item)
            item = copy(item)
            self.items[item.id] = item
            if _is_spent(shard, item) or _is_expired(shard, item, now_us):
                self._give_up(item, Why.ATTEMPTS if _is_spent(shard, item) else Why.EXPIRED, now_us)
                dying += 1
            else:
                self._line_up(self._renewed(item, now_us))
                ready += 1
        while left > 0 and (due := self._next_scheduled()) and due[0] <= now_us:
            left -= 1
            heappop(self._schedule)
            item = self._scheduled.pop(due[1])
            self._created_us += item.created_us
            if _is_expired(shard, item, now_us):
                self._give_up(item, Why.EXPIRED, now_us)
                dying += 1
            elif item.enqueue_us > now_us:
                # Its time to expire has passed, but nothing expires here.
                self._created_us -= item.created_us
                self._scheduled[item.id] = item
                heappush(self._schedule, (item.enqueue_us, item.id))
            else:
                self._line_up(self._renewed(item, now_us))
                ready += 1
        if shard.expire_us:
            # Who stood behind an expired one may have expired meanwhile, too.
            while left > 0 and (expired := self._expired(now_us, left)):
                for item in expired:
                    self.ready -= 1
                    self._give_up(item, Why.EXPIRED, now_us)
                left -= len(expired)
                dying += len(expired)
        for reference in [reference for reference, until_us in self._seen.items() if until_us <= now_us]:
            del self._seen[reference]
        return Swept(ready=ready, dying=dying, is_done=left > 0)

    def listed(self, places: frozenset[Place], pivot: str, limit: int) -> list[Item]:
        found: list[Item] = []
        for id, item in self.items.items():
            if len(found) >= limit:
                break
            if id >= pivot and item.place in places:
                found.append(copy(item))
        return found

    def stats(self, now_us: int) -> PartitionStats:
        total, leased = len(self.items) - len(self._scheduled), len(self._leased) + len(self._leased_short)
        return PartitionStats(
            partition=self.number,
            total=total,
            leased=leased,
            ready=self.ready,
            scheduled=len(self._scheduled),
            behind=self._behind,
            dying=len(self.dying),
            average_age_us=max(now_us - self._created_us // total, 0) if total else 0,
            average_leased_age_us=max(now_us - self._leased_us // leased, 0) if leased else 0,
        )

    def clear(self, places: frozenset[Place], now_us: int) -> int:
        cleared = [item for item in self.items.values() if item.place in places]
        self._remove(cleared, now_us)
        return len(cleared)

    def delete(self, ids: Sequence[str], now_us: int) -> None:
        for id in ids:
            if id not in self.items:
                raise NoSuchItem(id)
        self._remove([self.items[id] for id in dict.fromkeys(ids)], now_us)

    def _remove(self, items: Sequence[Item], now_us: int) -> None:
        """Those that others stand behind go last, so that nobody moves up only to be deleted as well."""
        for item in sorted(items, key=lambda item: item.place is not Place.BEHIND):
            match item.place:
                case Place.READY:
                    self.ready -= 1
                case Place.LEASED:
                    self._let_go(item)
                case Place.SCHEDULED:
                    del self._scheduled[item.id]
                    self._created_us += item.created_us
                case Place.BEHIND:
                    self._keys[item.key].remove(item)
                    self._behind -= 1
                case Place.DYING:
                    del self.dying[item.id]
            was_behind, was_ready = item.place is Place.BEHIND, item.place is Place.READY
            if was_ready or was_behind:
                # Met as no longer ready where it stands; and nobody stood behind what stood behind.
                item.place = Place.DYING
            self._forget(item, now_us)
            if was_ready:
                self._release(item, now_us)


def _is_odd(fresh: Fresh) -> bool:
    """Is more said of it than of most?"""
    return bool(fresh.source_id or fresh.enqueue_us or fresh.expire_us or fresh.priority or fresh.created_us)


def _is_spent(shard: Shard, item: Item) -> bool:
    return 0 < shard.max_attempts < item.attempts


def _is_expired(shard: Shard, item: Item, now_us: int) -> bool:
    return bool(shard.expire_us) and 0 < item.expire_us <= now_us
