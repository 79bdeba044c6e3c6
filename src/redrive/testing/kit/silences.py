"""A line that is slow or silent: calls end in time, callers may give up, and no connection is lost on the way."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from redrive.model.amendment import Amendment
from redrive.model.arrival import Held
from redrive.model.errors import AnswerLost, StoreUnavailable
from redrive.model.lease import Claim, Due
from redrive.model.query import Field
from redrive.model.settlement import Completed, Settled, Settlement
from redrive.model.status import Status
from redrive.ports.letters import LetterStore
from redrive.testing.kit.clerk import Clerk, Run
from redrive.testing.kit.crowd import Register, in_threads, settle_all
from redrive.testing.kit.lines import BLINK_SECONDS, PATIENCE, SHORT, Batch, Lines, ended, until, within
from redrive.testing.kit.samples import LANE, START, is_chaos, letter
from redrive.testing.proxy import Proxy

_SIZE = 20
_CUTS = 100 if is_chaos() else 6
_GIVEN_UP = 500 if is_chaos() else 50
_BOUND_SECONDS = 300.0 if is_chaos() else PATIENCE.total_seconds()
_SOON = 4 * SHORT + SHORT
"""Waiting for the answer, letting go of the connection, and some time to spare on a busy machine."""


class Silences(Lines):
    """Connections that are open and say nothing."""

    def test_a_put_whose_answer_is_swallowed_is_unknown_in_time_and_found_by_its_key(
        self, hasty: Clerk, witness: Clerk, line: Proxy
    ) -> None:
        _warm(hasty)
        batch = Batch("swallowed")
        line.swallow_answers()
        assert within(_SOON, lambda: hasty.put(*batch.letters)).is_unknown
        assert not within(_SOON, lambda: hasty.put(*Batch("none").letters)).is_done
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
        lost = within(_SOON, hasty.claim)
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
        assert within(_SOON, lambda: hasty.settle(*ends)).is_unknown
        line.pass_answers()
        assert {one.status for one in witness.get(*batch.ids) if one} == {Status.COMPLETED}
        assert set(hasty.settle(*ends)) == {Settled.LEASE_LOST}
        assert {one.redrive.count for one in witness.get(*batch.ids) if one} == {1}

    def test_what_is_only_read_is_never_unknown(self, hasty: Clerk, line: Proxy) -> None:
        hasty.put(letter())
        for verb in (lambda: hasty.get(letter().id), hasty.find, hasty.check):
            verb()
            line.swallow_answers()
            assert within(_SOON, verb).is_undone
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
            async with asyncio.timeout(_BOUND_SECONDS), asyncio.TaskGroup() as group:
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

        async def crowd() -> None:
            async with asyncio.timeout(_BOUND_SECONDS):
                line.stall()
                callers = [asyncio.ensure_future(call()) for _ in range(_GIVEN_UP)]
                await until(lambda: line.counts.waiting_bytes > 0)
                for caller in callers:
                    caller.cancel()
                answers = await asyncio.gather(*callers, return_exceptions=True)
                assert {type(answer) for answer in answers} == {asyncio.CancelledError}
                line.flow()
                # As many as before find a connection, and all of them at once.
                await asyncio.gather(*(store.store.count(now=START) for _ in range(_GIVEN_UP)))

        run(crowd())
        assert witness.count() in (1, 2)

    def test_a_caller_that_gives_up_again_and_again_leaves_no_connection_behind(
        self, store: Clerk, witness: Clerk, line: Proxy, run: Run
    ) -> None:
        async def give_up(number: int) -> None:
            line.stall()
            caller = asyncio.ensure_future(store.store.put([letter(str(number))], now=START))
            await until(lambda: line.counts.waiting_bytes > 0)
            caller.cancel()
            line.flow()
            with pytest.raises(asyncio.CancelledError):
                await caller

        async def crowd() -> None:
            async with asyncio.timeout(_BOUND_SECONDS):
                for number in range(_GIVEN_UP):
                    await give_up(number)
                    await store.store.put([letter("same")], now=START)
                await until(lambda: line.counts.open < 10)

        run(crowd())
        assert witness.one(letter("same").id).attempts == 1

    def test_two_loops_on_one_store_go_on_while_connections_are_cut(self, store: Clerk, witness: Clerk, line: Proxy) -> None:
        confirmed: list[str] = []
        unknown: dict[str, StoreUnavailable] = {}
        is_over = threading.Event()

        def work(number: int, run: Run) -> None:
            if number == 2:
                try:
                    _cut_as_they_go(line, confirmed)
                finally:
                    is_over.set()
                return
            item = 0
            while not is_over.is_set():
                item += 1
                name = f"{number}/{item}"
                try:
                    held = run(store.store.put(Batch(name).letters, now=START))
                except StoreUnavailable as error:
                    unknown[name] = error
                else:
                    assert set(held) == {Held.NEW}
                    confirmed.append(name)

        in_threads(store.store, 3, work)
        assert unknown, "the cuts met nothing"
        assert all(Batch(name).found_by(witness) == _SIZE for name in confirmed)
        for name, error in unknown.items():
            held = set(store.put(*Batch(name).letters))
            assert held <= ({Held.NEW, Held.DUPLICATE} if isinstance(error, AnswerLost) else {Held.NEW})
            assert Batch(name).found_by(witness) == _SIZE
        assert witness.count() == _SIZE * (len(confirmed) + len(unknown))


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


def _cut_as_they_go(line: Proxy, confirmed: list[str]) -> None:
    """Cut so many times, each when both loops have come some way since."""
    deadline = time.monotonic() + _BOUND_SECONDS
    for number in range(_CUTS):
        before = Counter(name.partition("/")[0] for name in confirmed)
        while any(Counter(name.partition("/")[0] for name in confirmed)[loop] < before[loop] + 3 for loop in "01"):
            assert time.monotonic() < deadline, "the store did not recover"
            time.sleep(BLINK_SECONDS)
        if number % 2:
            line.cut()
        else:
            line.cut_after(request_bytes=100_000, answer_bytes=200)
