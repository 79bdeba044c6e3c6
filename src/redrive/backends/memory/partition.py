"""One partition in memory.

What is due is found without an index over all items. Ready items of a priority stand in the order of their positions, and
whoever came later expires later, so the first tells when the next expires; the few for whom that is not so (they were retried,
or imported) are kept in a heap beside. With leases it is the same: who leased later holds longer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from copy import copy
from heapq import heappop, heappush

from msgspec.structs import replace

from redrive.model.errors import NoSuchItem, NotLeased
from redrive.model.item import OVERDUE_US, PRIORITIES, SOON_US, Again, Fresh, Item, PartitionStats, Place, Swept, Why
from redrive.model.ksuid import positions
from redrive.model.queue import Shard

NEVER_US = 1 << 62


class Partition:
    """Its verbs are called under the store's lock."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.items: dict[str, Item] = {}
        """All, in the order of their ids: a new id is always the highest."""
        self.ready = 0
        self.dying: dict[str, Item] = {}
        self._last = ""
        self._lanes: list[deque[Item]] = [deque() for _ in range(PRIORITIES)]
        """Ready items, highest priority first. What was deleted there is met as no longer ready."""
        self._latest_us = 0
        self._expires = False
        """Do items expire here? As who put or swept last said."""
        self._early: list[tuple[int, str]] = []
        """Ready items that expire before one that stands ahead of them."""
        self._scheduled: dict[str, Item] = {}
        self._schedule: list[tuple[int, str]] = []
        self._leased: dict[str, Item] = {}
        """In the order in which their leases end."""
        self._leased_until_us = 0
        self._leased_short: dict[str, Item] = {}
        """Those whose leases end before one that was given earlier."""
        self._sources: set[str] = set()
        self._keys: dict[str, deque[Item]] = {}
        """Keys of an ordered queue that have an item here, with those that wait behind it."""
        self._behind = 0
        self._seen: dict[str, int] = {}
        """References, and until when they are remembered."""
        self._created_us = 0
        """Summed over all but the scheduled."""
        self._leased_us = 0
        """Summed over the leased: when they were leased."""

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

    def _is_first(self, item: Item) -> bool:
        """Is it the only one of its key? Else it stands behind from now on."""
        behind = self._keys.get(item.key)
        if behind is None:
            self._keys[item.key] = deque()
            return True
        item.place = Place.BEHIND
        self._created_us += item.created_us
        self._behind += 1
        behind.append(item)
        return False

    def _line_up(self, item: Item) -> None:
        item.place = Place.READY
        self.ready += 1
        self._lanes[PRIORITIES - 1 - item.priority].append(item)
        expire_us = item.expire_us or NEVER_US
        if expire_us >= self._latest_us:
            self._latest_us = expire_us
        else:
            heappush(self._early, (expire_us, item.id))

    def _set_aside(self, item: Item) -> None:
        item.place = Place.SCHEDULED
        self._scheduled[item.id] = item
        heappush(self._schedule, (min(item.enqueue_us, item.expire_us or NEVER_US), item.id))

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

    def _let_go(self, item: Item) -> None:
        """It is leased no more."""
        if self._leased.pop(item.id, None) is None:
            del self._leased_short[item.id]
        self._leased_us -= item.updated_us

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

    def _relax(self) -> None:
        """Where nothing is left, nothing is late."""
        if not self.items:
            self._latest_us = 0
            self._early.clear()

    def _forget(self, item: Item, now_us: int) -> None:
        """It is nowhere any more."""
        del self.items[item.id]
        self._created_us -= item.created_us
        if item.source_id:
            self._sources.discard(item.source_id)
        if self._keys and item.place is not Place.DYING:
            self._release(item, now_us)
        self._relax()

    def _release(self, item: Item, now_us: int) -> None:
        """The next of its key may go."""
        behind = self._keys.get(item.key)
        if behind is None:
            return
        if not behind:
            del self._keys[item.key]
            return
        following = behind.popleft()
        self._behind -= 1
        if following.enqueue_us >= now_us + SOON_US:
            self._created_us -= following.created_us
            self._set_aside(self._renewed(following, now_us))
        else:
            self._line_up(self._renewed(following, now_us))

    def _renewed(self, item: Item, now_us: int) -> Item:
        """The item at the tail, under a new id. What was given out stays as it was given."""
        (id,) = positions(self._last, 1, now_us)
        self._last = id
        del self.items[item.id]
        renewed = replace(item, id=id, updated_us=now_us, lease_us=0)
        self.items[id] = renewed
        return renewed

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

    def _give_up(self, item: Item, why: Why, now_us: int) -> None:
        item.place, item.why, item.lease_us, item.updated_us = Place.DYING, why, 0, now_us
        self.dying[item.id] = item
        if self._keys:
            self._release(item, now_us)

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

    def _over(self, now_us: int, limit: int) -> list[Item]:
        """Items whose leases have ended, the first first; of those that ended together, the lower position."""
        over: list[Item] = []
        if limit <= 0:
            return over
        for item in self._leased.values():
            if item.lease_us > now_us or (len(over) >= limit and item.lease_us > over[-1].lease_us):
                break
            over.append(item)
        over += [item for item in self._leased_short.values() if item.lease_us <= now_us]
        return sorted(over, key=lambda item: (item.lease_us, item.id))[:limit]

    def _expired(self, now_us: int, limit: int) -> list[Item]:
        """Ready items past their time."""
        expired: list[Item] = []
        while len(expired) < limit and (early := self._next_early()) and early[0] <= now_us:
            expired.append(self.items[heappop(self._early)[1]])
            expired[-1].place = Place.DYING
        for lane in self._lanes:
            while len(expired) < limit and (item := _first(lane)) and 0 < item.expire_us <= now_us:
                expired.append(lane.popleft())
        return expired

    def _next_scheduled(self) -> tuple[int, str] | None:
        while self._schedule and self._schedule[0][1] not in self._scheduled:
            heappop(self._schedule)
        return self._schedule[0] if self._schedule else None

    def _next_early(self) -> tuple[int, str] | None:
        while self._early:
            item = self.items.get(self._early[0][1])
            if item is not None and item.place is Place.READY:
                return self._early[0]
            heappop(self._early)
        return None

    def next_due_us(self) -> int:
        """When something here is due next; 0: never."""
        if self.dying:
            return OVERDUE_US
        due: list[int] = []
        if self._expires:
            due += [item.expire_us for lane in self._lanes if (item := _first(lane)) and item.expire_us]
            if early := self._next_early():
                due.append(early[0])
        if scheduled := self._next_scheduled():
            due.append(scheduled[0])
        due += [next(iter(self._leased.values())).lease_us] if self._leased else []
        due += [item.lease_us for item in self._leased_short.values()]
        return min(due, default=0)

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


def _first(lane: deque[Item]) -> Item | None:
    while lane:
        if lane[0].place is Place.READY:
            return lane[0]
        lane.popleft()
    return None


def _is_spent(shard: Shard, item: Item) -> bool:
    return 0 < shard.max_attempts < item.attempts


def _is_expired(shard: Shard, item: Item, now_us: int) -> bool:
    return bool(shard.expire_us) and 0 < item.expire_us <= now_us
