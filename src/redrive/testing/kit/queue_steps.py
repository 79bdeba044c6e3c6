"""The steps of an item's life, each on a queue of its own: what it needs, the call, and how it is found out what became of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

from redrive.model.errors import NoSuchItem, NotLeased
from redrive.model.item import Again, Fresh, Item, Move, Place, Swept
from redrive.model.queue import Shard
from redrive.ports.queues import QueueStore
from redrive.testing.kit.lines import Ended
from redrive.testing.kit.queue_catalogue import queue
from redrive.testing.kit.queue_clerk import QueueClerk
from redrive.testing.kit.queue_dying import moved
from redrive.testing.kit.queue_lines import own
from redrive.testing.kit.queue_samples import DEAD, EVERYWHERE, HOUR_US, MINUTE_US, ORDERS, START_US, fresh, names
from redrive.testing.kit.samples import START

SIZE = 20
_NAMES = [str(number) for number in range(SIZE)]
_MINUTE = timedelta(minutes=1)


def _item(name: str) -> Fresh:
    """The item of this name: large enough to be torn, known by heart, and put but once."""
    return fresh(name, payload=f"{name} ".encode() * 300, source_id=f"source of {name}", partition=0)


class Step(ABC):
    """One call for a whole batch, and the law for it: it is made once or not at all, and nobody is told that it was not if it was."""

    def __init__(self) -> None:
        self.shard = own(ORDERS)
        self.batch = [_item(name) for name in _NAMES]
        self.held: list[Item] = []

    def prepare(self, store: QueueClerk) -> None:
        """Bring about what the call needs: here, a batch that is leased for a minute."""
        assert all(store.put(self.shard, *self.batch))
        self.held = store.lease(self.shard).items
        assert names(self.held) == _NAMES

    @abstractmethod
    def ask(self, store: QueueStore) -> Coroutine[Any, Any, Any]:
        """The call."""

    @abstractmethod
    def prove(self, store: QueueClerk, witness: QueueClerk, told: Ended) -> None:
        """The call ended so. Make it again, through the same store: all is as if it had been made once."""

    def call(self, store: QueueClerk) -> None:
        store.run(self.ask(store.store))

    @property
    def ids(self) -> list[str]:
        return [one.id for one in self.held]

    def _is_whole(self, witness: QueueClerk, shard: Shard, place: Place, attempts: int) -> list[Item]:
        """The batch, which is there once, in order, untorn, in this place."""
        found = witness.items(shard)
        assert names(found) == _NAMES
        assert [one.payload for one in found] == [one.payload for one in self.batch]
        assert {(one.place, one.attempts) for one in found} == {(place, attempts)}
        return found


class Putting(Step):
    def prepare(self, store: QueueClerk) -> None:
        pass

    def ask(self, store: QueueStore) -> Coroutine[Any, Any, Any]:
        return store.put(self.shard, self.batch, now=START)

    def prove(self, store: QueueClerk, witness: QueueClerk, told: Ended) -> None:
        _once(told, len([id for id in store.put(self.shard, *self.batch) if id]))
        self._is_whole(witness, self.shard, Place.READY, 0)
        assert set(store.put(self.shard, *self.batch)) == {""}
        assert witness.stats(self.shard)[0].ready == SIZE


class Leasing(Step):
    def prepare(self, store: QueueClerk) -> None:
        assert all(store.put(self.shard, *self.batch))

    def ask(self, store: QueueStore) -> Coroutine[Any, Any, Any]:
        return store.lease(self.shard, SIZE, now=START)

    def prove(self, store: QueueClerk, witness: QueueClerk, told: Ended) -> None:
        others = witness.lease(self.shard).items
        _once(told, len(others))
        # What one holds whose answer was lost is nobody's, whoever asks.
        assert store.lease(self.shard).items == witness.lease(self.shard).items == []
        self._is_whole(witness, self.shard, Place.LEASED, 1)
        store.wait(minutes=1)
        assert store.sweep(self.shard) == Swept(ready=SIZE)
        later = store.lease(self.shard).items
        assert (names(later), {one.attempts for one in later}) == (_NAMES, {2})
        if others:
            assert _is_refused(NoSuchItem, lambda: witness.complete(self.shard, *(one.id for one in others)))
        store.complete(self.shard, *(one.id for one in later))
        assert witness.items(self.shard) == []


class Extending(Step):
    def ask(self, store: QueueStore) -> Coroutine[Any, Any, Any]:
        return store.extend(self.shard, 0, self.ids, HOUR_US, now=START)

    def prove(self, store: QueueClerk, witness: QueueClerk, told: Ended) -> None:
        (until_us,) = {one.lease_us for one in self._is_whole(witness, self.shard, Place.LEASED, 1)}
        assert until_us in (START_US + MINUTE_US, START_US + HOUR_US)
        _fits(told, until_us == START_US + HOUR_US)
        assert store.extend(self.shard, *self.ids, lease_us=HOUR_US) == START_US + HOUR_US
        store.wait(minutes=1)
        assert store.sweep(self.shard) == Swept()
        assert store.lease(self.shard).items == []
        store.complete(self.shard, *self.ids)


class Completing(Step):
    def ask(self, store: QueueStore) -> Coroutine[Any, Any, Any]:
        return store.complete(self.shard, 0, self.ids, now=START)

    def prove(self, store: QueueClerk, witness: QueueClerk, told: Ended) -> None:
        was_done = _is_refused(NoSuchItem, lambda: store.complete(self.shard, *self.ids))
        _fits(told, was_done)
        assert witness.items(self.shard) == []
        assert witness.stats(self.shard)[0].total == 0


class GivingBack(Step):
    def ask(self, store: QueueStore) -> Coroutine[Any, Any, Any]:
        return store.retry(self.shard, 0, self._again(), now=START)

    def prove(self, store: QueueClerk, witness: QueueClerk, told: Ended) -> None:
        was_done = _is_refused(NoSuchItem, lambda: store.retry(self.shard, *self._again()))
        _fits(told, was_done)
        ready = self._is_whole(witness, self.shard, Place.READY, 1)
        assert min(one.id for one in ready) > max(self.ids)
        assert [one.failure for one in store.lease(self.shard).items] == [b"failed"] * SIZE
        assert witness.lease(self.shard).items == []

    def _again(self) -> list[Again]:
        return [Again(id=id, failure=b"failed") for id in self.ids]


class GivingUp(Step):
    def ask(self, store: QueueStore) -> Coroutine[Any, Any, Any]:
        return store.retry(self.shard, 0, self._again(), now=START)

    def prove(self, store: QueueClerk, witness: QueueClerk, told: Ended) -> None:
        was_done = _is_refused(NotLeased, lambda: store.retry(self.shard, *self._again()))
        _fits(told, was_done)
        dying = self._is_whole(witness, self.shard, Place.DYING, 1)
        assert witness.dying(self.shard) == [(0, one) for one in dying]
        assert [one.id for one in dying] == self.ids

    def _again(self) -> list[Again]:
        return [Again(id=id, dead=True) for id in self.ids]


class Moving(Step):
    def __init__(self) -> None:
        super().__init__()
        self.dead = own(DEAD)

    def prepare(self, store: QueueClerk) -> None:
        super().prepare(store)
        store.retry(self.shard, *(Again(id=id, dead=True) for id in self.ids))

    def ask(self, store: QueueStore) -> Coroutine[Any, Any, Any]:
        return store.move(self.shard, self._moves(), self.dead, now=START)

    def prove(self, store: QueueClerk, witness: QueueClerk, told: Ended) -> None:
        _once(told, store.move(self.shard, self._moves(), self.dead))
        assert witness.items(self.shard) == []
        dead = self._is_whole(witness, self.dead, Place.READY, 0)
        assert [one.source_id for one in dead] == self.ids
        # Who has worked it off in the dead queue does not find it there once more.
        store.clear(self.dead, Place.READY)
        assert store.move(self.shard, self._moves(), self.dead) == 0
        assert witness.items(self.dead) == []

    def _moves(self) -> list[Move]:
        return [moved(one) for one in self.held]


class Sweeping(Step):
    """The leases of half of the batch have ended, and the other half's time has come."""

    def prepare(self, store: QueueClerk) -> None:
        super().prepare(store)
        last = [Again(id=id, at_us=START_US + MINUTE_US) for id in self.ids[SIZE // 2 :]]
        assert store.retry(self.shard, *last) == Swept()

    def ask(self, store: QueueStore) -> Coroutine[Any, Any, Any]:
        return store.sweep(self.shard, now=START + _MINUTE)

    def prove(self, store: QueueClerk, witness: QueueClerk, told: Ended) -> None:
        store.wait(minutes=1)
        _once(told, store.sweep(self.shard).ready)
        ready = self._is_whole(witness, self.shard, Place.READY, 1)
        assert min(one.id for one in ready) > max(self.ids)
        assert store.sweep(self.shard) == Swept()


class Deleting(Step):
    def ask(self, store: QueueStore) -> Coroutine[Any, Any, Any]:
        return store.delete(self.shard, 0, self.ids, now=START)

    def prove(self, store: QueueClerk, witness: QueueClerk, told: Ended) -> None:
        was_done = _is_refused(NoSuchItem, lambda: store.delete(self.shard, *self.ids))
        _fits(told, was_done)
        assert witness.items(self.shard) == []


class Defining(Step):
    def prepare(self, store: QueueClerk) -> None:
        self._version = store.catalogue().version

    def ask(self, store: QueueStore) -> Coroutine[Any, Any, Any]:
        return store.define(self._version, [queue(self.shard.queue)])

    def prove(self, store: QueueClerk, witness: QueueClerk, told: Ended) -> None:
        _fits(told, not store.define(self._version, queue(self.shard.queue)))
        for clerk in (store, witness):
            found = clerk.catalogue()
            assert found.version == self._version + 1
            assert [one for one in found.queues if one.name == self.shard.queue] == [queue(self.shard.queue)]


STEPS: list[type[Step]] = [
    Putting,
    Leasing,
    Extending,
    Completing,
    GivingBack,
    GivingUp,
    Moving,
    Sweeping,
    Deleting,
    Defining,
]


def looks(store: QueueStore) -> list[Coroutine[Any, Any, Any]]:
    """A call of every verb that only looks."""
    return [
        store.check(),
        store.catalogue(),
        store.next_due(),
        store.dying(ORDERS),
        store.stats(ORDERS, now=START),
        store.items(ORDERS, 0, EVERYWHERE),
    ]


def _once(told: Ended, now: int) -> None:
    """So many are done now, when it is asked for again: all or none, and none if all were done before."""
    assert now in (0, SIZE), "half a batch was done"
    _fits(told, now == 0)


def _fits(told: Ended, was_done: bool) -> None:
    """What became of a call fits what its caller was told."""
    assert was_done or not told.is_done, "it was said that it was done"
    assert not (was_done and told.is_undone), "it was said that nothing was changed"


def _is_refused(refusal: type[Exception], verb: Callable[[], Any]) -> bool:
    """Is this refused, since it was done before?"""
    try:
        verb()
    except refusal:
        return True
    return False
