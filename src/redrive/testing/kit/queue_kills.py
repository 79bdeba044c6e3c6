"""Kill -9 amid the life of items: what was confirmed is there, whole, once, here or in the dead queue."""

from __future__ import annotations

import random
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from redrive.model.item import Again, Fresh, Item
from redrive.testing.kill.children import killed_after, say
from redrive.testing.kit.clerk import Run, needs, running
from redrive.testing.kit.queue_clerk import QueueClerk, QueueKit, QueueOpener
from redrive.testing.kit.queue_crowd import counts_are_right, worked_off
from redrive.testing.kit.queue_dying import moved
from redrive.testing.kit.queue_samples import DEAD, HOUR_US, PAIR, fresh, names
from redrive.testing.kit.samples import START, is_chaos

_ROUNDS = 100 if is_chaos() else 5
_BATCH = 4
_SHARD = replace(PAIR, max_attempts=0, expire_us=0, lease_us=HOUR_US)


class _Said(Struct, frozen=True):
    """What the child is about to do, and what the store confirmed."""

    put: tuple[str, ...] = ()
    leased: tuple[str, ...] = ()
    completing: tuple[str, ...] = ()
    completed: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()


def _named(name: str) -> Fresh:
    """The item of this name: large enough to be torn, and known by heart."""
    return fresh(name, payload=name.encode() * 500, story=f"story of {name}".encode())


def _live(opener: QueueOpener, place: Path, round: int, pipe: Connection) -> None:
    """Put, lease, complete, give up and move for as long as one lives; tell of each step after it was confirmed."""
    store = opener(place)
    with running(store) as run:
        number = 0
        while True:
            batch = tuple(f"{round}/{number}/{item}" for item in range(_BATCH))
            run(store.put(_SHARD, [_named(name) for name in batch], now=START))
            say(pipe, _Said(put=batch))
            leased = run(store.lease(_SHARD, 3, now=START))
            say(pipe, _Said(leased=tuple(names(leased.items))))
            # One is completed, one given up and moved, and the third is still held when the end comes.
            done, dead = leased.items[:1], leased.items[1:2]
            say(pipe, _Said(completing=tuple(names(done))))
            run(store.complete(_SHARD, leased.partition, [item.id for item in done], now=START))
            say(pipe, _Said(completed=tuple(names(done))))
            run(store.retry(_SHARD, leased.partition, [Again(id=item.id, dead=True) for item in dead], now=START))
            dying = run(store.dying(_SHARD))
            run(store.move(_SHARD, [moved(item, partition) for partition, item in dying], DEAD, now=START))
            say(pipe, _Said(moved=tuple(item.reference for _, item in dying)))
            number += 1


class QueueKills(QueueKit):
    """Tier 4: SIGKILL in the middle of everything."""

    def test_a_killed_process_loses_no_item_and_leaves_none_twice(self, opener: QueueOpener, place: Path, run: Run) -> None:
        probe = opener(place)
        needs(probe, "durable")
        run(probe.close())
        dice = random.Random(4)
        heard = [_Said()]
        for round in range(_ROUNDS):
            heard += killed_after(dice.randrange(1, 60), _Said, _live, opener, place, round)
            store = QueueClerk(opener(place), run)
            store.check()
            _law_is_kept(store, heard)
            store.close()
        assert any(said.completed for said in heard)
        assert any(said.moved for said in heard)
        store = QueueClerk(opener(place), run)
        store.wait(hours=1)
        _all_that_is_left_can_be_worked_off(store)
        store.close()


def _law_is_kept(store: QueueClerk, heard: list[_Said]) -> None:
    put = {name for said in heard for name in said.put}
    completing = {name for said in heard for name in said.completing}
    completed = {name for said in heard for name in said.completed}
    here, dead = store.everything(_SHARD), store.everything(DEAD)
    found = Counter(names(here)) + Counter(names(dead))
    assert set(found.values()) <= {1}, "an item is there twice"
    assert not completed & found.keys(), "a completed item has come back"
    # What was about to be completed may have been, and not yet confirmed; nothing else may be missing.
    assert put - found.keys() <= completing, "a confirmed item is gone"
    assert {name for said in heard for name in said.moved} <= set(names(dead)), "a moved item is not in the dead queue"
    for item in (*here, *dead):
        _is_whole(item)
    unconfirmed = Counter(name.rpartition("/")[0] for name in (found.keys() | completing) - put)
    assert set(unconfirmed.values()) <= {_BATCH}, "half a batch was put"
    counts_are_right(store, _SHARD)


def _is_whole(item: Item) -> None:
    expected = _named(item.reference)
    assert item.payload == expected.payload
    assert item.story == (b"died" if item.source_id else expected.story)


def _all_that_is_left_can_be_worked_off(store: QueueClerk) -> None:
    """Leases of the dead have ended, and what was dying is moved on."""
    before = Counter(names(store.everything(_SHARD)))
    done = worked_off(store, _SHARD, DEAD)
    assert store.everything(_SHARD) == []
    assert set(before - done) <= set(names(store.everything(DEAD)))
    assert set(done.values()) <= {1}
