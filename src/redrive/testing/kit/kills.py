"""Kill -9 at any instant: what was confirmed is there, whole, and what was leased is free again in time."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from redrive.model.lease import Claim, Due, Lease
from redrive.model.letter import Letter
from redrive.model.query import Field, Is
from redrive.model.settlement import Completed, Settled, Settlement
from redrive.model.status import Status
from redrive.testing.kill.children import killed_after, say
from redrive.testing.kit.clerk import Clerk, Kit, Opener, Run, needs, running
from redrive.testing.kit.samples import LANE, START, is_chaos, letter

_ROUNDS = 100 if is_chaos() else 5
_LEASE = timedelta(hours=1)
_BATCH = 3


class _Confirmed(Struct, frozen=True):
    """What the child was told by the store, and tells on."""

    held: tuple[str, ...] = ()
    claimed: tuple[Lease, ...] = ()
    settled: tuple[Lease, ...] = ()


def _named(name: str) -> Letter:
    """The letter of this name: large enough to be torn, and known by heart."""
    return letter(name, due=START, body=name.encode() * 500, metadata={"name": name, "list": list(range(20))})


def _live(opener: Opener, place: Path, round: int, pipe: Connection) -> None:
    """Put, claim and settle for as long as one lives; tell of each step after it was confirmed."""
    store = opener(place)
    with running(store) as run:
        number = 0
        while True:
            names = tuple(f"{round}/{number}/{item}" for item in range(_BATCH))
            run(store.put([_named(name) for name in names], now=START))
            say(pipe, _Confirmed(held=names))
            claimed = run(store.claim(Claim(owner=f"round {round}", lease=_LEASE, limit=2, what=Due(LANE)), now=START))
            leases = tuple(one.lease for one in claimed)
            say(pipe, _Confirmed(claimed=leases))
            # One of the two is settled, the other is still held when the end comes.
            run(store.settle([Settlement.of(lease, Completed()) for lease in leases[:1]], now=START))
            say(pipe, _Confirmed(settled=leases[:1]))
            number += 1


class Kills(Kit):
    """Tier 4: SIGKILL in the middle of everything."""

    def test_a_killed_process_loses_nothing_that_was_confirmed(self, opener: Opener, place: Path, run: Run) -> None:
        probe = opener(place)
        needs(probe, "durable")
        run(probe.close())
        dice = random.Random(4)
        held: set[str] = set()
        leases: dict[bytes, Lease] = {}
        done: set[bytes] = set()
        for round in range(_ROUNDS):
            for confirmed in killed_after(dice.randrange(1, 60), _Confirmed, _live, opener, place, round):
                held.update(confirmed.held)
                leases |= {lease.id.bytes: lease for lease in confirmed.claimed}
                done.update(lease.id.bytes for lease in confirmed.settled)
            store = Clerk(opener(place), run)
            store.check()
            _nothing_is_lost_or_torn(store, held)
            _leases_are_as_confirmed(store, leases, done)
            store.close()
        assert held
        assert done
        store = Clerk(opener(place), run, START + _LEASE)
        _expired_leases_can_be_taken_over(store, leases, done)
        store.close()


def _nothing_is_lost_or_torn(store: Clerk, held: set[str]) -> None:
    found = {one.source_id: one for one in store.all(limit=500)}
    assert held <= found.keys(), "a confirmed letter is gone"
    for name, one in found.items():
        whole = _named(name)
        assert replace(one, status=whole.status, updated_at=START, retry=whole.retry, redrive=whole.redrive) == whole
    if store.capabilities.atomic:
        batches = Counter(name.rpartition("/")[0] for name in found)
        assert set(batches.values()) == {_BATCH}, "half a batch was written"
    assert store.count() == len(found) == sum(store.tally(Field.STATUS).values())


def _leases_are_as_confirmed(store: Clerk, leases: dict[bytes, Lease], done: set[bytes]) -> None:
    for raw, lease in leases.items():
        status = store.one(lease.id).status
        if raw in done:
            assert status is Status.COMPLETED
        else:
            # A settlement may have been made whose confirmation was never heard.
            assert status in (Status.RETRYING, Status.COMPLETED)
            assert store.claim(what=(lease.id,)) == []
            assert store.extend(lease, by=timedelta(minutes=1)) == [lease if status is Status.RETRYING else None]


def _expired_leases_can_be_taken_over(store: Clerk, leases: dict[bytes, Lease], done: set[bytes]) -> None:
    assert store.count(Is(Field.STATUS, "retrying")) == 0
    for raw, lease in leases.items():
        assert store.end(lease, Completed()) is Settled.LEASE_LOST
        taken = store.claim(what=(lease.id,))
        assert all(one.lease.token > lease.token for one in taken)
        assert bool(taken) == (store.one(lease.id).status is Status.RETRYING)
        assert raw not in done or not taken
