"""Where the items of a partition in memory stand, and who is due next.

What is due is found without an index over all items. Ready items of a priority stand in the order of their positions, and
whoever came later expires later, so the first tells when the next expires; the few for whom that is not so (they were retried,
or imported) are kept in a heap beside. With leases it is the same: who leased later holds longer.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush

from msgspec.structs import replace

from redrive.model.item import OVERDUE_US, PRIORITIES, SOON_US, Item, Place, Why
from redrive.model.ksuid import positions

NEVER_US = 1 << 62


class Standing:
    """Items by where they stand."""

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

    def _let_go(self, item: Item) -> None:
        """It is leased no more."""
        if self._leased.pop(item.id, None) is None:
            del self._leased_short[item.id]
        self._leased_us -= item.updated_us

    def _forget(self, item: Item, now_us: int) -> None:
        """It is nowhere any more."""
        del self.items[item.id]
        self._created_us -= item.created_us
        if item.source_id:
            self._sources.discard(item.source_id)
        if self._keys and item.place is not Place.DYING:
            self._release(item, now_us)
        self._relax()

    def _relax(self) -> None:
        """Where nothing is left, nothing is late."""
        if not self.items:
            self._latest_us = 0
            self._early.clear()

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

    def _give_up(self, item: Item, why: Why, now_us: int) -> None:
        item.place, item.why, item.lease_us, item.updated_us = Place.DYING, why, 0, now_us
        self.dying[item.id] = item
        if self._keys:
            self._release(item, now_us)

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


def _first(lane: deque[Item]) -> Item | None:
    while lane:
        if lane[0].place is Place.READY:
            return lane[0]
        lane.popleft()
    return None
