"""Small histories of callers that overlap: is there an order, one verb after another, that explains all answers?"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from msgspec import Struct
from msgspec.structs import replace

from redrive.model.item import Again, Item
from redrive.ports.queues import QueueStore
from redrive.testing.kit.clerk import Run, running
from redrive.testing.kit.crowd import in_threads
from redrive.testing.kit.queue_clerk import QueueKit, QueueOpener
from redrive.testing.kit.queue_samples import HOUR_US, ORDERS, fresh
from redrive.testing.kit.samples import START, is_chaos

_CLIENTS = 3
_VERBS = 6
_SEEDS = 200 if is_chaos() else 12
_SHARD = replace(ORDERS, max_attempts=0)


class Call(Struct, frozen=True):
    """A verb on one item, when it began and ended, and what it answered."""

    client: int
    verb: str
    began: int
    ended: int
    item: str = ""
    """The item that was put, given or settled; none: a lease that found nothing."""
    id: str = ""
    """The id that a put answered with."""


class State(Struct, frozen=True):
    """A queue as simple as can be: who waits, in order, and who is leased."""

    waiting: tuple[str, ...] = ()
    leased: frozenset[str] = frozenset()
    last: str = ""
    """The id that a put gave last."""

    def after(self, call: Call) -> State | None:
        """The queue after this call; None: it would not have answered so."""
        match call.verb:
            case "put":
                return State((*self.waiting, call.item), self.leased, call.id) if call.id > self.last else None
            case "lease" if not call.item:
                return None if self.waiting else self
            case "lease":
                if self.waiting[:1] != (call.item,):
                    return None
                return State(self.waiting[1:], self.leased | {call.item}, self.last)
            case "complete" if call.item in self.leased:
                return State(self.waiting, self.leased - {call.item}, self.last)
            case "retry" if call.item in self.leased:
                return State((*self.waiting, call.item), self.leased - {call.item}, self.last)
            case _:
                return None


def is_explained(calls: list[Call], end: list[str]) -> bool:
    """Is there an order that keeps who ended before another began, in which each is answered so and these are left waiting?"""
    seen: set[tuple[frozenset[int], State]] = set()
    stack: list[tuple[frozenset[int], State]] = [(frozenset(range(len(calls))), State())]
    while stack:
        left, state = stack.pop()
        if not left:
            if list(state.waiting) == end:
                return True
            continue
        if (left, state) in seen:
            continue
        seen.add((left, state))
        first_end = min(calls[number].ended for number in left)
        for number in left:
            if calls[number].began <= first_end and (following := state.after(calls[number])) is not None:
                stack.append((left - {number}, following))
    return False


def _lived(store: QueueStore, seed: int, client: int, clock: Iterator[int], run: Run) -> list[Call]:
    """What one client does, and is answered."""
    dice = random.Random(f"{seed}/{client}")
    held: list[Item] = []
    calls: list[Call] = []
    for number in range(_VERBS):
        verb = dice.choice(["put", "put", "lease", "lease", "complete", "retry"] if held else ["put", "lease"])
        name = id = ""
        began = next(clock)
        match verb:
            case "put":
                name = f"{client}/{number}"
                (id,) = run(store.put(_SHARD, [fresh(name)], now=START))
            case "lease":
                leased = run(store.lease(_SHARD, 1, lease_us=HOUR_US, now=START)).items
                held += leased
                name = leased[0].reference if leased else ""
            case "complete":
                item = held.pop(0)
                run(store.complete(_SHARD, 0, [item.id], now=START))
                name = item.reference
            case _:
                item = held.pop(0)
                run(store.retry(_SHARD, 0, [Again(id=item.id)], now=START))
                name = item.reference
        calls.append(Call(client=client, verb=verb, began=began, ended=next(clock), item=name, id=id))
    return calls


class Histories(QueueKit):
    """Tier 3: verbs of several callers have the same effect as one after another."""

    def test_what_overlapping_callers_are_answered_could_have_come_one_after_another(
        self, opener: QueueOpener, place: Path, share: float
    ) -> None:
        for seed in range(max(3, round(_SEEDS * share))):
            own = place / str(seed)
            own.mkdir()
            store = opener(own)
            clock, calls = count(), list[Call]()
            in_threads(
                store,
                _CLIENTS,
                lambda client, run, store=store, seed=seed, clock=clock, calls=calls: calls.extend(  # type: ignore[misc]  # bound now
                    _lived(store, seed, client, clock, run)
                ),
            )
            with running(store) as run:
                left = run(store.lease(_SHARD, 1000, now=START)).items
                run(store.close())
            assert len(calls) == _CLIENTS * _VERBS
            assert is_explained(calls, [item.reference for item in left]), calls

    def test_a_history_that_no_order_explains_is_known(self) -> None:
        put_a = Call(client=0, verb="put", began=0, ended=1, item="a", id="1")
        put_b = Call(client=0, verb="put", began=2, ended=3, item="b", id="2")
        lease_b = Call(client=1, verb="lease", began=4, ended=5, item="b")
        lease_a = Call(client=2, verb="lease", began=4, ended=6, item="a")
        assert is_explained([put_a, put_b, lease_b, lease_a], [])
        assert not is_explained([put_a, put_b, lease_b], ["a"])
        assert not is_explained([put_a, put_b, lease_b, replace(lease_a, began=6, ended=7)], [])
        assert not is_explained([put_a, lease_a, replace(lease_a, client=1)], [])
        assert not is_explained([put_a, put_b], ["b"])
        assert not is_explained([put_a, replace(put_b, id="0")], ["a", "b"])

    @pytest.mark.parametrize("when", ["before", "amid"])
    def test_a_lease_that_finds_nothing_is_explained_only_by_an_empty_queue(self, when: str) -> None:
        put = Call(client=0, verb="put", began=0, ended=2, item="a", id="1")
        empty = Call(client=1, verb="lease", began=1 if when == "amid" else 3, ended=4)
        assert is_explained([put, empty], ["a"]) == (when == "amid")
