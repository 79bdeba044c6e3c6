"""Many owners at once: tasks, threads and processes that want the same letters."""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import sys
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from redrive.model.amendment import Amended, Amendment
from redrive.model.arrival import Held
from redrive.model.errors import RedriveError
from redrive.model.lease import Claim, Claimed
from redrive.model.query import EVERYTHING, Field, Is
from redrive.model.settlement import Completed, Failed, Outcome, Released, Settled, Settlement
from redrive.model.status import Status
from redrive.ports.inline import drive
from redrive.ports.letters import LetterStore
from redrive.testing.kit import Clerk, Kit, Opener, Run, needs
from redrive.testing.samples import START, attempt, is_chaos, letter, nested

_LETTERS = 5000 if is_chaos() else 500
_TASKS = 8
_THREADS = 4
_PROCESSES = 3
_HOUR = timedelta(hours=1)
_PATIENCE_SECONDS = 300.0 if is_chaos() else 20.0


class _Register:
    """Who holds what, as the owners themselves know it. A letter that is handed to two at once is a defect."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: set[UUID] = set()
        self.completed: Counter[UUID] = Counter()

    def take(self, ids: list[UUID]) -> None:
        with self._lock:
            twice = self._held.intersection(ids)
            assert not twice, f"held by two at the same time: {twice}"
            assert not self.completed.keys() & set(ids), "claimed after it was completed"
            self._held.update(ids)

    def give_back(self, ids: list[UUID]) -> None:
        """Call before settling: from then on another may hold it."""
        with self._lock:
            self._held.difference_update(ids)

    def complete(self, ids: list[UUID]) -> None:
        with self._lock:
            self.completed.update(ids)


async def _work(store: LetterStore, owner: str, register: _Register) -> None:
    """Claim and settle until nothing is left: some are given back, some fail and are due again, the rest completes."""
    dice = random.Random(owner)
    claims = [
        Claim(owner=owner, lease=_HOUR, limit=7),
        Claim(owner=owner, lease=_HOUR, limit=5, query=Is(Field.STATUS, "pending")),
        Claim(owner=owner, lease=_HOUR, limit=9, ids=tuple(dice.sample(_ids(), 40))),
    ]
    empty = 0
    while empty < len(claims):
        claimed = await store.claim(claims[dice.randrange(len(claims))] if not empty else claims[empty - 1], now=START)
        if not claimed:
            empty += 1
            continue
        empty = 0
        register.take([one.letter.id for one in claimed])
        outcomes = [_outcome(dice, one) for one in claimed]
        register.give_back([one.letter.id for one in claimed])
        done = [one.letter.id for one, outcome in zip(claimed, outcomes, strict=True) if isinstance(outcome, Completed)]
        ends = [Settlement.of(one.lease, outcome) for one, outcome in zip(claimed, outcomes, strict=True)]
        answers = await store.settle(ends, now=START)
        assert answers == [Settled.DONE] * len(ends)
        register.complete(done)


def _outcome(dice: random.Random, claimed: Claimed) -> Outcome:
    roll = dice.random()
    if roll < 0.1:
        return Released()
    if roll < 0.2:
        return Failed(attempt=attempt(f"{claimed.lease.token}/{claimed.letter.id}"), next_retry_at=START)
    return Completed()


def _ids() -> list[UUID]:
    return [letter(str(number)).id for number in range(_LETTERS)]


@contextmanager
def _hasty_threads() -> Iterator[None]:
    """Threads that are switched as often as the interpreter can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _in_threads(count: int, work: Callable[[int], None]) -> None:
    """Run `work` in so many threads, which begin together; raise what any of them raised."""
    together = threading.Barrier(count)
    errors: list[BaseException] = []

    def begin(number: int) -> None:
        try:
            together.wait(_PATIENCE_SECONDS)
            work(number)
        except BaseException as error:
            errors.append(error)

    # Daemons, so that a store that hangs fails one test and not the whole run.
    threads = [threading.Thread(target=begin, args=(number,), daemon=True) for number in range(count)]
    with _hasty_threads():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(_PATIENCE_SECONDS)
    if errors:
        raise errors[0]
    assert not any(thread.is_alive() for thread in threads), "a verb did not come to its end"


def _close_amid_writes(opener: Opener, place: Path, rounds: int, pipe: Connection) -> None:
    """Write from several threads while another closes the store; tell what was confirmed, and what else went wrong."""
    confirmed: list[bytes] = []
    for round in range(rounds):
        store = opener(place)
        drive(store.check())
        try:
            _in_threads(_THREADS, partial(_write_or_close, store, round, confirmed))
        except BaseException as error:
            pipe.send((f"{type(error).__name__}: {error}", confirmed))
            raise
    pipe.send(("", confirmed))


def _write_or_close(store: LetterStore, round: int, confirmed: list[bytes], number: int) -> None:
    if number == 0:
        drive(store.close())
        return
    for item in range(1000):
        one = letter(f"{round}/{number}/{item}")
        try:
            drive(store.put([one], now=START))
        except RedriveError:
            return
        confirmed.append(one.id.bytes)


def _settle_alone(opener: Opener, place: Path, owner: str, pipe: Connection) -> None:
    """What each process does: wait for the sign, settle what it gets, and tell what it completed.

    The letter that all of them put is quarantined, so that none of them claims it.
    """
    store = opener(place)
    register = _Register()

    async def work() -> None:
        pipe.send("ready")
        pipe.recv()
        held = await store.put([letter("contested", failed=owner, status=Status.QUARANTINED)], now=START)
        await _work(store, owner, register)
        await store.close()
        pipe.send((held[0].value, [id.bytes for id in register.completed.elements()]))

    asyncio.run(work())


class Crowds(Kit):
    """Tier 3: many concurrent owners."""

    def test_tasks_settle_every_letter_exactly_once(self, store: Clerk, run: Run) -> None:
        store.put(*(letter(str(number), due=START, priority=number % 3) for number in range(_LETTERS)))
        register = _Register()

        async def crowd() -> None:
            async with asyncio.timeout(_PATIENCE_SECONDS), asyncio.TaskGroup() as group:
                for number in range(_TASKS):
                    group.create_task(_work(store.store, f"task {number}", register))

        run(crowd())
        _all_completed_once(store, register)

    def test_threads_settle_every_letter_exactly_once(self, store: Clerk) -> None:
        needs(store, "inline")
        store.put(*(letter(str(number), due=START, priority=number % 3) for number in range(_LETTERS)))
        register = _Register()
        _in_threads(_THREADS, lambda number: drive(_work(store.store, f"thread {number}", register)))
        _all_completed_once(store, register)

    def test_threads_and_tasks_share_a_store(self, store: Clerk, run: Run) -> None:
        needs(store, "inline")
        store.put(*(letter(str(number), due=START) for number in range(_LETTERS)))
        register = _Register()

        def blocking(owner: str) -> None:
            drive(_work(store.store, owner, register))

        async def crowd() -> None:
            async with asyncio.timeout(_PATIENCE_SECONDS), asyncio.TaskGroup() as group:
                for number in range(3):
                    group.create_task(_work(store.store, f"task {number}", register))
                    group.create_task(asyncio.to_thread(blocking, f"thread {number}"))

        run(crowd())
        _all_completed_once(store, register)

    def test_of_many_puts_of_the_same_message_exactly_one_is_new(self, store: Clerk, run: Run) -> None:
        async def crowd() -> list[Held]:
            puts = [store.store.put([letter(failed=number % 20)], now=START) for number in range(40)]
            return [held for answer in await asyncio.gather(*puts) for held in answer]

        assert Counter(run(crowd())) == {Held.NEW: 1, Held.ATTEMPT: 19, Held.DUPLICATE: 20}
        assert store.one(letter().id).attempts == 20

    def test_of_many_puts_from_threads_exactly_one_is_new(self, store: Clerk) -> None:
        needs(store, "inline")
        held: list[Held] = []

        def put(number: int) -> None:
            for message in range(20):
                held.extend(drive(store.store.put([letter(str(message), failed=number)], now=START)))

        _in_threads(_THREADS, put)
        assert Counter(held) == {Held.NEW: 20, Held.ATTEMPT: 20 * (_THREADS - 1)}
        assert all(one.attempts == _THREADS for one in store.all())

    def test_of_many_reopenings_of_one_letter_exactly_one_reopens(self, store: Clerk, run: Run) -> None:
        store.put(letter(status=Status.REDRIVEN))

        async def crowd() -> list[Held]:
            puts = [store.store.put([letter(failed=f"back {number}", generation=2)], now=START) for number in range(12)]
            return [held for answer in await asyncio.gather(*puts) for held in answer]

        assert Counter(run(crowd())) == {Held.REOPENED: 1, Held.ATTEMPT: 11}
        assert store.one(letter().id).generation == 2

    def test_one_of_many_claims_of_the_same_letter_gets_it(self, store: Clerk, run: Run) -> None:
        store.put(letter(due=START))

        async def crowd() -> list[Claimed]:
            ways = [Claim(owner=f"{number}", lease=_HOUR) for number in range(5)]
            ways += [Claim(owner=f"{number}", lease=_HOUR, ids=(letter().id,)) for number in range(5, 10)]
            ways += [Claim(owner=f"{number}", lease=_HOUR, query=EVERYTHING) for number in range(10, 15)]
            answers = await asyncio.gather(*(store.store.claim(claim, now=START) for claim in ways))
            return [one for answer in answers for one in answer]

        (claimed,) = run(crowd())
        assert store.end(claimed.lease, Completed()) is Settled.DONE

    def test_a_purge_never_takes_a_letter_that_somebody_holds(self, store: Clerk) -> None:
        needs(store, "inline")
        store.put(*(letter(str(number), due=START) for number in range(_LETTERS)))
        purged: list[UUID] = []
        claimed_ids: list[UUID] = []

        def work(number: int) -> None:
            if number % 2:
                while removed := drive(store.store.purge(EVERYTHING, limit=3, now=START)):
                    purged.extend(one.id for one in removed)
                return
            while claimed := drive(store.store.claim(Claim(owner=f"{number}", lease=_HOUR, limit=3), now=START)):
                claimed_ids.extend(one.letter.id for one in claimed)
                seen = drive(store.store.get([one.letter.id for one in claimed], now=START))
                assert None not in seen, "a letter was purged while somebody held it"

        _in_threads(_THREADS, work)
        assert not set(purged) & set(claimed_ids)
        assert max(Counter(purged).values(), default=1) == 1, "a letter was purged twice"
        assert store.count() == len(claimed_ids) == _LETTERS - len(purged)

    def test_of_an_amendment_and_a_claim_each_sees_the_other(self, store: Clerk) -> None:
        needs(store, "inline")
        for round in range(40):
            store.put(letter(str(round)))
            id = letter(str(round)).id
            answers: dict[int, list[Claimed] | list[Amended]] = {}

            def work(number: int, id: UUID = id, answers: dict[int, list[Claimed] | list[Amended]] = answers) -> None:
                if number:
                    answers[1] = drive(store.store.claim(Claim(owner="ann", lease=_HOUR, ids=(id,)), now=START))
                else:
                    answers[0] = drive(store.store.amend([Amendment(id=id, priority=5)], now=START))

            _in_threads(2, work)
            (claimed,) = answers[1]
            assert isinstance(claimed, Claimed)
            assert (answers[0] == [Amended.DONE]) == (claimed.letter.priority == 5)

    @pytest.mark.parametrize("mistake", ["put", "amend", "claim", "purge"])
    def test_one_callers_mistake_fails_nobody_else(self, store: Clerk, run: Run, mistake: str) -> None:
        store.put(letter("known"))
        hopeless = {"what": object()}
        too_deep = nested(200, Is(Field.SOURCE, "nowhere"))
        mistakes: dict[str, Callable[[], Coroutine[Any, Any, object]]] = {
            "put": lambda: store.store.put([letter("bad", metadata=hopeless)], now=START),
            "amend": lambda: store.store.amend([Amendment(id=letter("known").id, metadata=hopeless)], now=START),
            "claim": lambda: store.store.claim(Claim(owner="ann", lease=_HOUR, query=too_deep), now=START),
            "purge": lambda: store.store.purge(too_deep, now=START),
        }

        async def crowd() -> list[object]:
            verbs: list[Coroutine[Any, Any, object]] = []
            for number in range(5):
                verbs += [store.store.put([letter(str(number))], now=START), mistakes[mistake]()]
            return await asyncio.gather(*verbs, return_exceptions=True)

        answers = run(crowd())
        assert answers[::2] == [[Held.NEW]] * 5
        assert None not in store.get(*(letter(str(number)).id for number in range(5)))

    def test_a_cancelled_caller_disturbs_nobody_else(self, store: Clerk, run: Run) -> None:
        async def crowd() -> None:
            tasks = [asyncio.ensure_future(store.store.put([letter(str(number))], now=START)) for number in range(30)]
            await asyncio.sleep(0)
            for task in tasks[::3]:
                task.cancel()
            async with asyncio.timeout(_PATIENCE_SECONDS):
                answers = await asyncio.gather(*tasks, return_exceptions=True)
            for number, answer in enumerate(answers):
                assert answer == [Held.NEW] or (number % 3 == 0 and isinstance(answer, asyncio.CancelledError))

        run(crowd())
        held = {one.source_id for one in store.all()}
        assert held >= {str(number) for number in range(30) if number % 3}
        assert store.put(letter("0")) in ([Held.NEW], [Held.DUPLICATE])

    def test_readers_see_whole_batches(self, store: Clerk) -> None:
        needs(store, "inline")
        batch = 20

        def work(number: int) -> None:
            if number == 0:
                for round in range(20):
                    drive(store.store.put([letter(f"{round}/{item}") for item in range(batch)], now=START))
                return
            seen = 0
            while seen < 20 * batch:
                counted = drive(store.store.count(now=START))
                assert counted % batch == 0, "a reader saw half of a batch"
                assert counted >= seen
                seen = counted

        _in_threads(3, work)

    def test_closing_amid_writes_loses_nothing_that_was_confirmed(self, store: Clerk, opener: Opener, place: Path) -> None:
        needs(store, "inline")
        needs(store, "shared")
        # In a process of its own: a caller that is left waiting for ever can be ended there.
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe(duplex=False)
        rounds = 200 if is_chaos() else 15
        child = context.Process(target=_close_amid_writes, args=(opener, place, rounds, theirs), daemon=True)
        child.start()
        theirs.close()
        try:
            error, confirmed = _heard(ours)
        except EOFError:
            child.join(_PATIENCE_SECONDS)
            pytest.fail(f"the process died (exit code {child.exitcode})")
        finally:
            child.kill()
            child.join(_PATIENCE_SECONDS)
            child.close()
            ours.close()
        assert not error
        assert None not in store.get(*(UUID(bytes=raw) for raw in confirmed))

    def test_processes_settle_every_letter_exactly_once(self, store: Clerk, opener: Opener, place: Path) -> None:
        needs(store, "shared")
        store.put(*(letter(str(number), due=START, priority=number % 3) for number in range(_LETTERS)))
        completed: Counter[UUID] = Counter()
        held: Counter[str] = Counter()
        for how, ids in _in_processes(opener, place):
            held[how] += 1
            completed.update(ids)
        assert held == {"new": 1, "attempt": _PROCESSES - 1}
        assert set(completed) == set(_ids())
        assert set(completed.values()) == {1}
        assert store.one(letter("contested").id).attempts == _PROCESSES

    def test_processes_may_open_a_new_store_at_the_same_instant(self, opener: Opener, tmp_path: Path) -> None:
        fresh = tmp_path / "fresh"
        fresh.mkdir()
        probe = opener(fresh)
        needs(probe, "shared")
        answers = _in_processes(opener, fresh)
        assert Counter(how for how, _ in answers) == {"new": 1, "attempt": _PROCESSES - 1}


def _in_processes(opener: Opener, place: Path) -> list[tuple[str, list[UUID]]]:
    """What each of several processes answers that begin together on the same data."""
    context = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for number in range(_PROCESSES):
        ours, theirs = context.Pipe()
        process = context.Process(target=_settle_alone, args=(opener, place, f"process {number}", theirs), daemon=True)
        process.start()
        theirs.close()
        pipes.append(ours)
        processes.append(process)
    try:
        for pipe in pipes:
            assert _heard(pipe) == "ready"
        for pipe in pipes:
            pipe.send("go")
        answers = [_heard(pipe) for pipe in pipes]
    finally:
        for process, pipe in zip(processes, pipes, strict=True):
            pipe.close()
            process.join(_PATIENCE_SECONDS)
            process.close()
    return [(how, [UUID(bytes=raw) for raw in ids]) for how, ids in answers]


def _heard(pipe: Connection) -> Any:
    if not pipe.poll(_PATIENCE_SECONDS):
        pytest.fail("a process did not answer")
    return pipe.recv()


def _all_completed_once(store: Clerk, register: _Register) -> None:
    assert set(register.completed) == set(_ids())
    assert set(register.completed.values()) == {1}
    assert store.tally(Field.STATUS) == {"completed": _LETTERS}
