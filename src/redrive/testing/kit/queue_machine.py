"""Generated command sequences on queues: whatever is done to a store, it answers as the oracle does."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from itertools import count
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from msgspec.structs import replace

from redrive.backends.memory.queues import MemoryQueues
from redrive.model.errors import NoSuchItem, NotLeased, QueueGone
from redrive.model.item import Again, Fresh, Item, Move, Place
from redrive.model.queue import Shard
from redrive.ports.inline import drive
from redrive.ports.queues import QueueStore
from redrive.testing.kit.clerk import Run, running
from redrive.testing.kit.queue_clerk import QueueClerk, QueueKit, QueueOpener
from redrive.testing.kit.queue_draws import (
    DELAYS_US,
    HOWS,
    PICKS,
    PLACES,
    SHARDS,
    SPECS,
    WAITS,
    WHICH,
    Held,
    How,
    Spec,
    answer,
    bare,
    by_payload,
    counts,
    dues,
)
from redrive.testing.kit.queue_samples import SECOND_US
from redrive.testing.kit.strategies import effort


class QueueMachine(RuleBasedStateMachine):
    """Does the same to a store and to the oracle, and compares every answer. Items are known by their payloads.

    In the ordered queue all that is ready is leased together: how the next of several keys stand to each other when they are
    released by one call is the store's own affair.
    """

    def __init__(self, store: QueueStore, run: Run) -> None:
        super().__init__()
        self.ours = QueueClerk(store, run)
        self.theirs = QueueClerk(MemoryQueues(), drive)
        self.shards = list(SHARDS)
        self.numbers = count()
        self.held: list[Held] = []
        self.moves: list[tuple[Shard, Move, Move]] = []
        self.firsts: dict[str, str] = {}
        """The first position of a message here, and what it was there: its own id, if it was given none."""
        self.known: dict[tuple[str, int], set[str]] = {}
        """All ids that were ever seen in a partition."""

    def teardown(self) -> None:
        """Let all come that is to come, and take all there is: what a sequence left behind shows there."""
        try:
            self.wait(timedelta(days=1))
            for which in range(len(self.shards)):
                self.sweep(which, 1000)
                self.move(min(which, 1), list(range(50)), is_there=False)
                for _ in range(3):
                    self.lease(which, 1000, 0)
            self.both_hold_the_same()
        finally:
            self.ours.close()

    @initialize(plain=st.lists(SPECS, min_size=4, max_size=8), ordered=st.lists(SPECS, min_size=4, max_size=8))
    def begin(self, plain: list[Spec], ordered: list[Spec]) -> None:
        self.put(0, plain)
        self.put(1, ordered)
        self.lease(0, 2, 0)
        self.lease(1, 2, 0)

    @rule(which=WHICH, specs=st.lists(SPECS, min_size=1, max_size=5))
    def put(self, which: int, specs: list[Spec]) -> None:
        shard = self.shards[which]
        items = [spec.named(next(self.numbers), shard, self.ours.now_us) for spec in specs]
        ours, theirs = self.ours.put(shard, *items), self.theirs.put(shard, *items)
        assert [bool(id) for id in ours] == [bool(id) for id in theirs]
        self.firsts.update(zip(filter(None, ours), filter(None, theirs), strict=True))

    @rule(by=WAITS)
    def wait(self, by: timedelta) -> None:
        self.ours.now += by
        self.theirs.now += by

    @rule(which=WHICH, limit=st.integers(1, 4), seconds=st.sampled_from([0, 0, 0, 10, 7200]))
    def lease(self, which: int, limit: int, seconds: int) -> None:
        shard = self.shards[which]
        if shard.is_ordered:
            self.sweep(which, 1000)
            limit = 1000
        ours, theirs = (one.lease(shard, limit, lease_us=seconds * SECOND_US) for one in (self.ours, self.theirs))
        assert ours.dying == theirs.dying
        mine, other = ours.items, theirs.items
        if shard.is_ordered:
            mine, other = by_payload(mine), by_payload(other)
        assert self._seen(mine) == bare(other)
        if not other:
            return
        assert (ours.partition, ours.until_us) == (theirs.partition, theirs.until_us)
        self.held += [Held(shard, ours.partition, one.id, two.id) for one, two in zip(mine, other, strict=True)]

    @rule(which=WHICH, by=WAITS, how=HOWS, picks=PICKS, delay_us=DELAYS_US, more=st.integers(0, 5))
    def settle(self, which: int, by: timedelta, how: How, picks: list[int], delay_us: int, more: int) -> None:
        """Extend, complete, give back or give up some that were leased once; often just now."""
        if more:
            self.lease(which, more, 0)
        if more == 1:
            self.wait(by)
        if not (held := self._picked(picks)):
            return
        shard, partition = held[0].shard, held[0].partition

        def act(clerk: QueueClerk, ids: list[str]) -> object:
            match how:
                case "extend":
                    return clerk.extend(shard, *ids, lease_us=more * 20 * SECOND_US + 1, partition=partition)
                case "complete":
                    clerk.complete(shard, *ids, partition=partition)
                    return None
                case "retry" | "give up":
                    at_us = clerk.now_us + delay_us if delay_us else 0
                    # Of several that are given up, the last is only given back.
                    is_dead = [how == "give up" and (number == 0 or number < len(ids) - 1) for number in range(len(ids))]
                    failure = b"told" if more % 2 else b""
                    told = [Again(id=id, at_us=at_us, dead=dead, failure=failure) for id, dead in zip(ids, is_dead, strict=True)]
                    return clerk.retry(shard, *told, partition=partition)

        self._act(held, act)

    @rule(which=WHICH, limit=st.sampled_from([1, 2, 1000]), by=WAITS | st.just(timedelta()))
    def sweep(self, which: int, limit: int, by: timedelta = timedelta()) -> None:
        self.wait(by)
        shard = self.shards[which]
        assert self._swept(self.ours, shard, limit) == self._swept(self.theirs, shard, limit)
        assert not any(due_us <= self.ours.now_us for due_us in dues(shard, self.ours))

    @rule(which=st.sampled_from([0, 1]), picks=PICKS, is_there=st.sampled_from([False, False, True]))
    def move(self, which: int, picks: list[int], is_there: bool) -> None:
        shard, dead = self.shards[which], self.shards[2]
        mine, other = (sorted(one.dying(shard), key=lambda pair: (pair[0], pair[1].payload)) for one in (self.ours, self.theirs))
        assert [partition for partition, _ in mine] == [partition for partition, _ in other]
        assert self._seen(item for _, item in mine) == bare(item for _, item in other)
        for pick in picks:
            if other:
                partition, item = other[pick % len(other)]
                fresh = Fresh(payload=item.payload + b"!", message_id="moved", source_id=f"died {item.payload!r}")
                own = mine[pick % len(mine)][1].id
                self.moves.append(
                    (shard, Move(partition=partition, id=own, fresh=fresh), Move(partition=partition, id=item.id, fresh=fresh))
                )
        # The latest are most often still to be moved, earlier ones were; and some are there already.
        chosen = [(one, two) for moved, one, two in self.moves[-len(picks) - 2 :] if moved == shard]
        if is_there and chosen:
            put = chosen[0][0].fresh
            ours, theirs = (one.put(dead, put) for one in (self.ours, self.theirs))
            assert bool(ours[0]) == bool(theirs[0])
        ours_moved = self.ours.move(shard, [one for one, _ in chosen], dead)
        assert ours_moved == self.theirs.move(shard, [two for _, two in chosen], dead)

    @rule(partition=st.integers(0, 1), places=PLACES, pick=st.integers(0, 20), limit=st.integers(1, 3))
    def page(self, partition: int, places: frozenset[Place], pick: int, limit: int) -> None:
        shard = self.shards[0]
        pages = []
        for clerk in (self.ours, self.theirs):
            known = clerk.items(shard, partition=partition)
            pivot = known[pick % len(known)].id if known and pick else ""
            pages.append(clerk.items(shard, partition=partition, places=places, pivot=pivot, limit=limit))
        assert self._seen(pages[0]) == bare(pages[1])

    @rule(
        which=WHICH, places=PLACES, partition=st.integers(0, 1), picks=PICKS, how=st.sampled_from(["delete", "clear", "remove"])
    )
    def discard(self, which: int, places: frozenset[Place], partition: int, picks: list[int], how: str) -> None:
        """Delete some items, or all in some places, or the queue itself: then another takes its name."""
        shard = self.shards[which]
        if how == "clear":
            assert self.ours.clear(shard, *places) == self.theirs.clear(shard, *places)
        elif how == "delete":
            self._delete(shard, min(partition, shard.partitions[-1]), picks)
        elif Place.DYING in places:
            self.ours.remove(shard)
            self.theirs.remove(shard)
            assert answer(lambda: self.ours.stats(shard)) == answer(lambda: self.theirs.stats(shard)) == QueueGone
            self.shards[which] = replace(shard, queue=f"{shard.queue}, again")

    @invariant()
    def both_hold_the_same(self) -> None:
        for shard in self.shards:
            for partition in shard.partitions:
                ours, theirs = (one.items(shard, partition=partition) for one in (self.ours, self.theirs))
                self._ids_have_increased(shard, partition, [item.id for item in ours])
                if shard.is_ordered:
                    ours, theirs = by_payload(ours), by_payload(theirs)
                assert self._seen(ours) == bare(theirs)

    @invariant()
    def both_count_the_same(self) -> None:
        for shard in self.shards:
            ours, theirs = self.ours.stats(shard), self.theirs.stats(shard)
            assert [counts(one) for one in ours] == [counts(one) for one in theirs]
            for one, other in zip(ours, theirs, strict=True):
                assert abs(one.average_age_us - other.average_age_us) <= 1
                assert abs(one.average_leased_age_us - other.average_leased_age_us) <= 1

    @invariant()
    def nothing_is_due_before_it_is_named(self) -> None:
        named = {due.queue: due.at_us for due in self.ours.next_due()}
        for shard in self.shards:
            for due_us in dues(shard, self.ours):
                assert named.get(shard.queue, due_us + 1) <= due_us

    def _picked(self, picks: list[int]) -> list[Held]:
        """Some leases of one partition: the latest are most often live, older ones are stale on purpose."""
        found = [self.held[-1 - pick % len(self.held)] for pick in picks if self.held]
        ours = {one.ours: one for one in found if (one.shard, one.partition) == (found[0].shard, found[0].partition)}
        return list(ours.values())

    def _delete(self, shard: Shard, partition: int, picks: list[int]) -> None:
        chosen = []
        for clerk in (self.ours, self.theirs):
            known = by_payload(clerk.items(shard, partition=partition))
            chosen.append([known[pick % len(known)].id for pick in picks if known])
        pairs = [Held(shard, partition, ours, theirs) for ours, theirs in zip(*chosen, strict=True)]
        self._act(pairs, lambda clerk, ids: clerk.delete(shard, *ids, partition=partition))

    def _act(self, held: list[Held], act: Callable[[QueueClerk, list[str]], object]) -> None:
        ours = answer(lambda: act(self.ours, [one.ours for one in held]))
        theirs = answer(lambda: act(self.theirs, [one.theirs for one in held]))
        refusals = (NoSuchItem, NotLeased)
        if len(held) > 1 and ours in refusals:
            # Of several that are refused, any may be named.
            assert theirs in refusals
        else:
            assert ours == theirs

    def _swept(self, clerk: QueueClerk, shard: Shard, limit: int) -> tuple[int, int]:
        """All that is due, in as many sweeps as it takes."""
        ready = dying = 0
        for _ in range(10_000):
            swept = clerk.sweep(shard, limit=limit)
            assert swept.ready + swept.dying <= limit
            if swept.is_done and not swept.ready + swept.dying:
                return ready, dying
            ready, dying = ready + swept.ready, dying + swept.dying
        raise AssertionError("a sweep never comes to its end")

    def _ids_have_increased(self, shard: Shard, partition: int, ids: list[str]) -> None:
        """What is new is behind all that ever was."""
        known = self.known.setdefault((shard.queue, partition), set())
        new = [id for id in ids if id not in known]
        assert ids == sorted(set(ids))
        assert not known or not new or new[0] > max(known)
        known.update(new)

    def _seen(self, items: Iterable[Item]) -> list[Item]:
        """Our items as the oracle would have them."""
        return [replace(item, id="", message_id=self.firsts.get(item.message_id, item.message_id)) for item in items]


class QueueSequences(QueueKit):
    """Tier 2: generated command sequences against the oracle."""

    def test_any_sequence_of_commands_is_answered_as_the_oracle_does(
        self, opener: QueueOpener, place: Path, share: float
    ) -> None:
        trials = effort(max(1, round(30 * share)), chaos=2000, steps=40)
        numbers = count()

        def machine() -> QueueMachine:
            own = place / str(next(numbers))
            own.mkdir()
            return QueueMachine(opener(own), run)

        own = place / "probe"
        own.mkdir()
        probe = opener(own)
        with running(probe) as run:
            run(probe.close())
            run_state_machine_as_test(machine, settings=trials)  # type: ignore[arg-type]  # any maker will do
        assert next(numbers) >= trials.max_examples
