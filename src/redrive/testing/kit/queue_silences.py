"""A line to queues that is slow or silent: calls end in time, callers may give up, and no connection is lost on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from redrive.model.errors import AnswerLost, StoreUnavailable
from redrive.model.item import Fresh, Place
from redrive.model.queue import Shard
from redrive.ports.queues import QueueStore
from redrive.testing.kit.callers import BOUND_SECONDS, TwoLoops, all_give_up, one_gives_up_again_and_again
from redrive.testing.kit.clerk import Run
from redrive.testing.kit.crowd import in_threads
from redrive.testing.kit.lines import SOON, ended, one_sentence, within
from redrive.testing.kit.queue_clerk import QueueClerk
from redrive.testing.kit.queue_crowd import Register, everybody_is_done, work
from redrive.testing.kit.queue_lines import QueueLines, own
from redrive.testing.kit.queue_samples import DEAD, ORDERS, PAIR, fresh, names
from redrive.testing.kit.queue_steps import Completing, Leasing, Moving, Putting, Step, looks
from redrive.testing.kit.samples import START
from redrive.testing.proxy import Proxy

_BATCH = 5


class QueueSilences(QueueLines):
    """Connections that are open and say nothing."""

    @pytest.mark.parametrize("kind", [Putting, Leasing, Completing, Moving])
    def test_a_step_whose_answer_is_swallowed_ends_in_time_and_is_made_once(
        self, kind: type[Step], hasty: QueueClerk, witness: QueueClerk, line: Proxy
    ) -> None:
        warm, step = kind(), kind()
        warm.prepare(witness)
        warm.call(hasty)
        step.prepare(witness)
        line.swallow_answers()
        told = within(SOON, lambda: step.call(hasty))
        assert not told.is_done
        line.pass_answers()
        step.prove(hasty, witness, told)

    def test_while_a_line_is_silent_all_calls_end_in_time_and_then_it_goes_on(
        self, hasty: QueueClerk, witness: QueueClerk, line: Proxy, run: Run
    ) -> None:
        steps = [Putting() for _ in range(4)]

        async def all_at_once() -> list[object]:
            async with asyncio.timeout(SOON.total_seconds()):
                calls = [step.ask(hasty.store) for step in steps]
                return list(await asyncio.gather(*calls, hasty.store.dying(ORDERS), return_exceptions=True))

        for step in steps:
            step.call(hasty)
            witness.clear(step.shard, Place.READY)
        line.stall()
        *put, looked = run(all_at_once())
        line.flow()
        for error in (*put, looked):
            assert isinstance(error, StoreUnavailable)
            one_sentence(error)
        assert not isinstance(looked, AnswerLost)
        for step in steps:
            # What was on its way may come there now, before this or after: by its source it is there once.
            hasty.put(step.shard, *step.batch)
            assert names(witness.items(step.shard)) == [one.reference for one in step.batch]

    def test_what_only_looks_is_never_unknown(self, hasty: QueueClerk, line: Proxy, run: Run) -> None:
        async def errors() -> set[type[BaseException] | None]:
            async with asyncio.timeout(SOON.total_seconds()):
                told = await asyncio.gather(*looks(hasty.store), return_exceptions=True)
            return {type(one) if isinstance(one, BaseException) else None for one in told}

        assert run(errors()) == {None}
        line.swallow_answers()
        assert run(errors()) == {StoreUnavailable}
        line.pass_answers()
        assert run(errors()) == {None}

    def test_on_a_slow_line_everything_is_right_and_nothing_is_held_by_two(
        self, store: QueueClerk, witness: QueueClerk, line: Proxy, run: Run
    ) -> None:
        shard = replace(own(PAIR), max_attempts=0)
        register = Register()
        line.delay(0.002)
        far, near = ["far 0", "far 1"], ["near 0", "near 1"]

        async def crowd() -> None:
            async with asyncio.timeout(BOUND_SECONDS), asyncio.TaskGroup() as group:
                for worker in far:
                    group.create_task(work(store.store, shard, worker, register))
                for worker in near:
                    group.create_task(work(witness.store, shard, worker, register))

        run(crowd())
        everybody_is_done(register, shard, [*far, *near])
        left = witness.everything(shard)
        assert {one.place for one in left} == {Place.DYING}
        assert sorted(names(left)) == sorted(register.given_up)

    @pytest.mark.parametrize("verb", ["put", "lease"])
    def test_callers_that_give_up_on_a_silent_line_take_no_connection_with_them(
        self, verb: str, store: QueueClerk, witness: QueueClerk, line: Proxy, run: Run
    ) -> None:
        shard = own(ORDERS)
        store.put(shard, fresh("before"))
        run(all_give_up(line, _calls(store.store, shard)[verb], lambda: store.store.stats(shard, now=START)))
        # Whoever gave up may have put or leased; nothing is lost, and nothing is there twice.
        assert sorted(names(witness.items(shard))) in (["before"], ["before", "more"])

    def test_a_caller_that_gives_up_again_and_again_leaves_no_connection_behind(
        self, store: QueueClerk, witness: QueueClerk, line: Proxy, run: Run
    ) -> None:
        shard, same = own(ORDERS), own(DEAD)
        run(
            one_gives_up_again_and_again(
                line,
                lambda number: store.store.put(shard, [fresh(str(number))], now=START),
                lambda: store.store.put(same, [fresh("same", source_id="same")], now=START),
            )
        )
        assert names(witness.items(same)) == ["same"]
        assert len(set(names(witness.items(shard)))) == witness.stats(shard)[0].ready

    def test_two_loops_on_one_store_go_on_while_connections_are_cut(
        self, store: QueueClerk, witness: QueueClerk, line: Proxy
    ) -> None:
        shard = own(ORDERS)

        def batch(name: str) -> list[Fresh]:
            each = [f"{name}/{number}" for number in range(_BATCH)]
            return [fresh(one, payload=one.encode() * 500, source_id=one) for one in each]

        def put(run: Run, name: str) -> None:
            assert all(run(store.store.put(shard, batch(name), now=START)))

        loops = TwoLoops(line, put)
        in_threads(store.store, loops.THREADS, loops.work)
        assert loops.unknown, "the cuts met nothing"
        # Here, too, the first call may meet a connection that was cut.
        ended(store.check)
        for name in loops.confirmed:
            assert set(store.put(shard, *batch(name))) == {""}, "a confirmed item is gone"
        for name, error in loops.unknown.items():
            are_new = {bool(id) for id in store.put(shard, *batch(name))}
            assert are_new == {True} or (isinstance(error, AnswerLost) and are_new == {False})
        every = [one.reference for name in (*loops.confirmed, *loops.unknown) for one in batch(name)]
        assert sorted(names(witness.items(shard, limit=1_000_000))) == sorted(every)


def _calls(store: QueueStore, shard: Shard) -> dict[str, Callable[[], Awaitable[Any]]]:
    return {
        "put": lambda: store.put(shard, [fresh("more", source_id="more")], now=START),
        "lease": lambda: store.lease(shard, 1, now=START),
    }
