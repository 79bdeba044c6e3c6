"""A line that is cut in the middle of a request or of an answer: nothing is half done, and the truth is found by the key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from redrive.model.arrival import Held
from redrive.model.lease import Claimed, Lease
from redrive.model.letter import Letter
from redrive.model.query import Field
from redrive.model.settlement import Completed, Released, Settled, Settlement
from redrive.model.status import Status
from redrive.testing.kit.clerk import Clerk
from redrive.testing.kit.instants import CUTS, Cut, measured
from redrive.testing.kit.lines import PATIENCE, Batch, Ended, Lines, ended, within
from redrive.testing.kit.samples import attempt
from redrive.testing.proxy import Proxy

_SIZE = 20


class Cuts(Lines[Clerk]):
    """Connections that are reset at the worst instant."""

    @pytest.mark.parametrize("cut", CUTS)
    def test_a_batch_whose_connection_is_cut_is_found_by_its_key(
        self, cut: Cut, store: Clerk, witness: Clerk, line: Proxy
    ) -> None:
        for warm in range(2):
            size = measured(line, partial(store.put, *Batch(f"cut {warm}").letters))
        batch = Batch("cut 2")
        cut(line, *size)
        put = ended(lambda: store.put(*batch.letters))
        assert not put.is_done, "the cut met nothing"
        line.wait_until_parted()
        _nothing_in_part(batch, witness, put)
        # The same store, the next call: it need not be opened again.
        answers = store.put(*batch.letters)
        assert set(answers) <= {Held.NEW, Held.DUPLICATE}
        assert put.is_unknown or set(answers) == {Held.NEW}
        assert batch.found_by(witness) == _SIZE
        assert witness.count() == 3 * _SIZE
        assert set(store.put(*batch.letters)) == {Held.DUPLICATE}

    @pytest.mark.parametrize("cut", CUTS)
    def test_a_batch_of_more_failures_whose_connection_is_cut_counts_each_once(
        self, cut: Cut, store: Clerk, witness: Clerk, line: Proxy
    ) -> None:
        batch = Batch("known")
        store.put(*batch.letters)
        for failed in range(2):
            size = measured(line, partial(store.put, *_failed_again(batch, f"cut {failed}")))
        again = _failed_again(batch, "cut 2")
        cut(line, *size)
        put = ended(lambda: store.put(*again))
        assert not put.is_done, "the cut met nothing"
        line.wait_until_parted()
        if put.is_undone or witness.capabilities.atomic:
            before = {one.attempts for one in witness.get(*batch.ids) if one}
            assert before == {3} if put.is_undone else len(before) == 1
        assert set(store.put(*again)) <= {Held.ATTEMPT, Held.DUPLICATE}
        assert {one.attempts for one in witness.get(*batch.ids) if one} == {4}

    @pytest.mark.parametrize("cut", CUTS)
    def test_a_claim_whose_connection_is_cut_is_nobodys_until_its_lease_ends(
        self, cut: Cut, store: Clerk, witness: Clerk, line: Proxy
    ) -> None:
        batch = Batch("claimed")
        store.put(*batch.letters)
        for _ in range(2):
            claimed: list[Claimed] = []
            size = measured(line, partial(_claim_into, claimed, store))
            assert len(claimed) == _SIZE
            store.settle(*(Settlement.of(one.lease, Released()) for one in claimed))
        known = {one.letter.id: one.lease.token for one in claimed}
        cut(line, *size)
        lost = ended(store.claim)
        assert not lost.is_done, "the cut met nothing"
        line.wait_until_parted()
        held = [one.status is Status.RETRYING for one in witness.get(*batch.ids) if one]
        assert len(held) == _SIZE
        if lost.is_undone:
            assert not any(held), "it was said that nothing was changed"
        if store.capabilities.atomic:
            assert len(set(held)) == 1, "half a batch was claimed"
        # Nobody is given what is held, by whatever way they ask.
        free = witness.claim(owner="bob")
        assert len(free) == held.count(False)
        assert store.claim(owner="cid", what=tuple(batch.ids)) == []
        store.wait(minutes=5)
        witness.wait(minutes=5)
        later = store.claim(owner="dan")
        assert {one.letter.id for one in later} == set(batch.ids)
        tokens = known | {one.letter.id: one.lease.token for one in free}
        assert all(one.lease.token > tokens[one.letter.id] for one in later)
        assert _ended(witness, [one.lease for one in free]) <= {Settled.LEASE_LOST}
        assert _ended(store, [one.lease for one in later]) == {Settled.DONE}

    @pytest.mark.parametrize("cut", CUTS)
    def test_a_settlement_whose_connection_is_cut_is_made_once_or_not_at_all(
        self, cut: Cut, store: Clerk, witness: Clerk, line: Proxy
    ) -> None:
        for warm in range(2):
            size = measured(line, partial(_ended, store, _held(store, f"cut {warm}")))
        leases = _held(store, "cut 2")
        cut(line, *size)
        _settled_by_the_key(store, witness, leases, line)

    @pytest.mark.parametrize("cut", CUTS)
    def test_a_settlement_of_what_others_claimed_too_is_made_once_or_not_at_all(
        self, cut: Cut, store: Clerk, witness: Clerk, line: Proxy
    ) -> None:
        for warm in range(2):
            size = measured(line, partial(_ended, store, _held(store, f"cut {warm}", with_help_of=witness)))
        leases = _held(store, "cut 2", with_help_of=witness)
        cut(line, *size)
        _settled_by_the_key(store, witness, leases, line)

    @pytest.mark.parametrize("cut", CUTS)
    def test_a_purge_whose_connection_is_cut_removes_all_it_was_asked_to_or_nothing(
        self, cut: Cut, store: Clerk, witness: Clerk, line: Proxy
    ) -> None:
        for warm in range(2):
            store.put(*Batch(f"cut {warm}").letters)
            size = measured(line, store.purge)
        store.put(*Batch("cut 2").letters)
        cut(line, *size)
        purged = ended(store.purge)
        assert not purged.is_done, "the cut met nothing"
        line.wait_until_parted()
        left = witness.count()
        assert left in (0, _SIZE) or not store.capabilities.atomic
        assert purged.is_unknown or left == _SIZE
        assert len(store.purge()) == left
        assert witness.count() == 0

    def test_idle_connections_that_are_cut_are_replaced(self, store: Clerk, witness: Clerk, line: Proxy) -> None:
        for number in range(10):
            batch = Batch(f"after cut {number}")
            line.cut()
            first = ended(partial(store.put, *batch.letters))
            _nothing_in_part(batch, witness, first)
            store.put(*batch.letters)
            assert batch.found_by(witness) == _SIZE

    @pytest.mark.parametrize("towards_server", [False, True], ids=["towards_the_client", "towards_the_server"])
    def test_half_closed_connections_are_replaced(self, towards_server: bool, hasty: Clerk, witness: Clerk, line: Proxy) -> None:
        for number in range(5):
            batch = Batch(f"half closed {number}")
            line.half_close(towards_server=towards_server)
            first = within(PATIENCE, partial(hasty.put, *batch.letters))
            _nothing_in_part(batch, witness, first)
            assert hasty.put(*batch.letters)
            assert batch.found_by(witness) == _SIZE

    def test_while_connections_are_refused_nothing_is_changed_and_then_it_goes_on(
        self, store: Clerk, witness: Clerk, line: Proxy
    ) -> None:
        batch = Batch("refused")
        store.put(*batch.letters)
        leases = [one.lease for one in store.claim()]
        for _ in range(2):
            line.refuse()
            line.cut()
            # The first call may meet the connection that was cut; what follows finds nobody to talk to.
            ended(store.check)
            for verb in _every_verb(store, leases):
                assert within(PATIENCE, verb).is_undone
            assert {one.status for one in witness.get(*batch.ids) if one} == {Status.RETRYING}
            assert witness.count() == _SIZE
            line.accept()
            store.check()
        assert _ended(store, leases) == {Settled.DONE}


def _claim_into(claimed: list[Claimed], store: Clerk) -> None:
    claimed += store.claim()


def _nothing_in_part(batch: Batch, witness: Clerk, put: Ended) -> None:
    """What is there fits what the caller was told."""
    found = batch.found_by(witness)
    if put.is_undone:
        assert found == 0, "it was said that nothing was changed"
    if put.is_done:
        assert found == _SIZE
    if witness.capabilities.atomic:
        assert found in (0, _SIZE), "half a batch was written"


def _failed_again(batch: Batch, name: str) -> list[Letter]:
    return [replace(one, history=(attempt(f"{name}/{one.source_id}"),)) for one in batch.letters]


def _held(store: Clerk, name: str, with_help_of: Clerk | None = None) -> list[Lease]:
    """Leases on a whole new batch; half of them were got by another store object."""
    batch = Batch(name)
    store.put(*batch.letters)
    others = with_help_of.claim(what=tuple(batch.ids[::2])) if with_help_of else []
    return [one.lease for one in [*others, *store.claim(what=tuple(batch.ids))]]


def _ended(store: Clerk, leases: list[Lease]) -> set[Settled]:
    return set(store.settle(*(Settlement.of(lease, Completed()) for lease in leases)))


def _settled_by_the_key(store: Clerk, witness: Clerk, leases: list[Lease], line: Proxy) -> None:
    settled = ended(lambda: _ended(store, leases))
    assert not settled.is_done, "the cut met nothing"
    line.wait_until_parted()
    found = [one for one in witness.get(*(lease.id for lease in leases)) if one]
    assert len(found) == _SIZE
    done = {one.id for one in found if one.status is Status.COMPLETED}
    assert all(one.status is Status.RETRYING for one in found if one.id not in done)
    assert settled.is_unknown or not done, "it was said that nothing was changed"
    assert len(done) in (0, _SIZE) or not store.capabilities.atomic, "half a batch was settled"
    assert _ended(store, [lease for lease in leases if lease.id in done]) <= {Settled.LEASE_LOST}
    assert _ended(store, [lease for lease in leases if lease.id not in done]) <= {Settled.DONE}
    after = [one for one in witness.get(*(lease.id for lease in leases)) if one]
    assert {(one.status, one.redrive.count) for one in after} == {(Status.COMPLETED, 1)}


def _every_verb(store: Clerk, leases: list[Lease]) -> Iterator[Callable[[], Any]]:
    yield lambda: store.put(*Batch("more").letters)
    yield lambda: store.get(leases[0].id)
    yield store.find
    yield store.count
    yield lambda: store.tally(Field.STATUS)
    yield store.claim
    yield lambda: store.extend(*leases, by=PATIENCE)
    yield lambda: _ended(store, leases)
    yield store.purge
    yield store.check
