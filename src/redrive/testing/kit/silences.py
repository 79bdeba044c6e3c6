"""A line that is slow or silent: calls end in time, callers may give up, and no connection is lost on the way."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from redrive.model.amendment import Amendment
from redrive.model.arrival import Held
from redrive.model.errors import AnswerLost
from redrive.model.lease import Claim, Due
from redrive.model.query import Field
from redrive.model.settlement import Completed, Settled, Settlement
from redrive.model.status import Status
from redrive.ports.letters import LetterStore
from redrive.testing.kit.callers import BOUND_SECONDS, TwoLoops, all_give_up, one_gives_up_again_and_again
from redrive.testing.kit.clerk import Clerk, Run
from redrive.testing.kit.crowd import Register, in_threads, settle_all
from redrive.testing.kit.lines import SOON, Batch, Lines, ended, within
from redrive.testing.kit.samples import LANE, START, letter
from redrive.testing.proxy import Proxy

_SIZE = 20


class Silences(Lines[Clerk]):
    """Connections that are open and say nothing."""

    def test_a_put_whose_answer_is_swallowed_is_unknown_in_time_and_found_by_its_key(
        self, hasty: Clerk, witness: Clerk, line: Proxy
    ) -> None:
        _warm(hasty)
        batch = Batch("swallowed")
        line.swallow_answers()
        assert within(SOON, lambda: hasty.put(*batch.letters)).is_unknown
        assert not within(SOON, lambda: hasty.put(*Batch("none").letters)).is_done
        line.pass_answers()
        assert batch.found_by(witness) == _SIZE
        assert set(hasty.put(*batch.letters)) == {Held.DUPLICATE}

    def test_a_claim_whose_answer_is_swallowed_is_unknown_in_time_and_nobodys(
        self, hasty: Clerk, witness: Clerk, line: Proxy
    ) -> None:
        _warm(hasty)
        batch = Batch("swallowed")
        hasty.put(*batch.letters)
        line.swallow_answers()
        lost = within(SOON, hasty.claim)
        assert not lost.is_done
        line.pass_answers()
        # A store that looks before it claims has claimed nothing yet, and says so.
        claimed = {Status.RETRYING} if lost.is_unknown else {Status.PENDING}
        assert {one.status for one in witness.get(*batch.ids) if one} == claimed
        if lost.is_unknown:
            assert hasty.claim(what=tuple(batch.ids)) == witness.claim() == []
            hasty.wait(minutes=5)
        assert len(hasty.claim()) == _SIZE

    def test_a_settlement_whose_answer_is_swallowed_is_unknown_in_time_and_made_once(
        self, hasty: Clerk, witness: Clerk, line: Proxy
    ) -> None:
        _warm(hasty)
        batch = Batch("swallowed")
        hasty.put(*batch.letters)
        ends = [Settlement.of(one.lease, Completed()) for one in hasty.claim()]
        line.swallow_answers()
        assert within(SOON, lambda: hasty.settle(*ends)).is_unknown
        line.pass_answers()
        assert {one.status for one in witness.get(*batch.ids) if one} == {Status.COMPLETED}
        assert set(hasty.settle(*ends)) == {Settled.LEASE_LOST}
        assert {one.redrive.count for one in witness.get(*batch.ids) if one} == {1}

    def test_what_is_only_read_is_never_unknown(self, hasty: Clerk, line: Proxy) -> None:
        hasty.put(letter())
        for verb in (lambda: hasty.get(letter().id), hasty.find, hasty.check):
            verb()
            line.swallow_answers()
            assert within(SOON, verb).is_undone
            line.pass_answers()
            assert ended(verb).is_done

    def test_on_a_slow_line_everything_is_right_and_nothing_is_held_by_two(
        self, store: Clerk, witness: Clerk, line: Proxy, run: Run
    ) -> None:
        letters = [letter(str(number), due=START, priority=number % 3) for number in range(100)]
        store.put(*letters)
        register = Register()
        line.delay(0.005)

        async def crowd() -> None:
            async with asyncio.timeout(BOUND_SECONDS), asyncio.TaskGroup() as group:
                for number in range(4):
                    group.create_task(settle_all(store.store, f"far {number}", register))
                    group.create_task(settle_all(witness.store, f"near {number}", register))

        run(crowd())
        assert register.completed == Counter(one.id for one in letters)
        assert witness.tally(Field.STATUS) == {"completed": 100}

    @pytest.mark.parametrize("verb", ["put", "find", "claim", "amend"])
    def test_callers_that_give_up_on_a_silent_line_take_no_connection_with_them(
        self, verb: str, store: Clerk, witness: Clerk, line: Proxy, run: Run
    ) -> None:
        store.put(letter(due=START))
        call = _calls(store.store)[verb]
        run(all_give_up(line, call, lambda: store.store.count(now=START)))
        assert witness.count() in (1, 2)

    def test_a_caller_that_gives_up_again_and_again_leaves_no_connection_behind(
        self, store: Clerk, witness: Clerk, line: Proxy, run: Run
    ) -> None:
        run(
            one_gives_up_again_and_again(
                line,
                lambda number: store.store.put([letter(str(number))], now=START),
                lambda: store.store.put([letter("same")], now=START),
            )
        )
        assert witness.one(letter("same").id).attempts == 1

    def test_two_loops_on_one_store_go_on_while_connections_are_cut(self, store: Clerk, witness: Clerk, line: Proxy) -> None:
        def put(run: Run, name: str) -> None:
            assert set(run(store.store.put(Batch(name).letters, now=START))) == {Held.NEW}

        loops = TwoLoops(line, put)
        in_threads(store.store, loops.THREADS, loops.work)
        assert loops.unknown, "the cuts met nothing"
        assert all(Batch(name).found_by(witness) == _SIZE for name in loops.confirmed)
        for name, error in loops.unknown.items():
            held = set(store.put(*Batch(name).letters))
            assert held <= ({Held.NEW, Held.DUPLICATE} if isinstance(error, AnswerLost) else {Held.NEW})
            assert Batch(name).found_by(witness) == _SIZE
        assert witness.count() == _SIZE * (len(loops.confirmed) + len(loops.unknown))


def _warm(store: Clerk) -> None:
    """Put, claim and settle a letter, so that the next calls are one message each and need nothing prepared."""
    store.put(letter("warm", due=START))
    (claimed,) = store.claim()
    store.end(claimed.lease, Completed())


def _calls(store: LetterStore) -> dict[str, Callable[[], Awaitable[Any]]]:
    return {
        "put": lambda: store.put([letter("more")], now=START),
        "find": lambda: store.find(now=START),
        "claim": lambda: store.claim(Claim(owner="ann", lease=timedelta(minutes=1), what=Due(LANE)), now=START),
        "amend": lambda: store.amend([Amendment(id=letter().id, tags=("seen",))], now=START),
    }
