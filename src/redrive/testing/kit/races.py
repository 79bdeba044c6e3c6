"""Many callers in the same instant: one wins, each sees the other, and nobody pays for another's mistake."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID

import pytest

from redrive.model.amendment import Amended, Amendment
from redrive.model.arrival import Held
from redrive.model.lease import Claim, Claimed, Due
from redrive.model.query import EVERYTHING, Field, Is
from redrive.model.settlement import Completed, Settled
from redrive.model.status import Status
from redrive.testing.kit.clerk import Clerk, Kit, Run, needs
from redrive.testing.kit.crowd import HOUR, LETTERS, PATIENCE_SECONDS, THREADS, in_threads
from redrive.testing.kit.samples import LANE, START, letter, nested


class Races(Kit):
    """Tier 3: verbs that meet each other."""

    def test_of_many_puts_of_the_same_message_exactly_one_is_new(self, store: Clerk, run: Run) -> None:
        async def crowd() -> list[Held]:
            puts = [store.store.put([letter(failed=number % 20)], now=START) for number in range(40)]
            return [held for answer in await asyncio.gather(*puts) for held in answer]

        assert Counter(run(crowd())) == {Held.NEW: 1, Held.ATTEMPT: 19, Held.DUPLICATE: 20}
        assert store.one(letter().id).attempts == 20

    def test_of_many_puts_from_threads_exactly_one_is_new(self, store: Clerk) -> None:
        held: list[Held] = []

        def put(number: int, run: Run) -> None:
            for message in range(20):
                held.extend(run(store.store.put([letter(str(message), failed=number)], now=START)))

        in_threads(store.store, THREADS, put)
        assert Counter(held) == {Held.NEW: 20, Held.ATTEMPT: 20 * (THREADS - 1)}
        assert all(one.attempts == THREADS for one in store.all())

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
            ways = [Claim(owner=f"{number}", lease=HOUR, what=Due(LANE)) for number in range(5)]
            ways += [Claim(owner=f"{number}", lease=HOUR, what=(letter().id,)) for number in range(5, 10)]
            ways += [Claim(owner=f"{number}", lease=HOUR, what=EVERYTHING) for number in range(10, 15)]
            answers = await asyncio.gather(*(store.store.claim(claim, now=START) for claim in ways))
            return [one for answer in answers for one in answer]

        (claimed,) = run(crowd())
        assert store.end(claimed.lease, Completed()) is Settled.DONE

    def test_a_purge_never_takes_a_letter_that_somebody_holds(self, store: Clerk) -> None:
        store.put(*(letter(str(number), due=START) for number in range(LETTERS)))
        purged: list[UUID] = []
        claimed_ids: list[UUID] = []

        def work(number: int, run: Run) -> None:
            if number % 2:
                while removed := run(store.store.purge(EVERYTHING, limit=3, now=START)):
                    purged.extend(one.id for one in removed)
                return
            while claimed := run(store.store.claim(Claim(owner=f"{number}", lease=HOUR, limit=3, what=Due(LANE)), now=START)):
                claimed_ids.extend(one.letter.id for one in claimed)
                seen = run(store.store.get([one.letter.id for one in claimed], now=START))
                assert None not in seen, "a letter was purged while somebody held it"

        in_threads(store.store, THREADS, work)
        assert not set(purged) & set(claimed_ids)
        assert max(Counter(purged).values(), default=1) == 1, "a letter was purged twice"
        assert store.count() == len(claimed_ids) == LETTERS - len(purged)

    def test_of_an_amendment_and_a_claim_each_sees_the_other(self, store: Clerk) -> None:
        for round in range(40):
            store.put(letter(str(round)))
            id = letter(str(round)).id
            answers: dict[int, list[Claimed] | list[Amended]] = {}

            def work(number: int, run: Run, id: UUID = id, answers: dict[int, list[Claimed] | list[Amended]] = answers) -> None:
                if number:
                    answers[1] = run(store.store.claim(Claim(owner="ann", lease=HOUR, what=(id,)), now=START))
                else:
                    answers[0] = run(store.store.amend([Amendment(id=id, priority=5)], now=START))

            in_threads(store.store, 2, work)
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
            "claim": lambda: store.store.claim(Claim(owner="ann", lease=HOUR, what=too_deep), now=START),
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
            async with asyncio.timeout(PATIENCE_SECONDS):
                answers = await asyncio.gather(*tasks, return_exceptions=True)
            for number, answer in enumerate(answers):
                assert answer == [Held.NEW] or (number % 3 == 0 and isinstance(answer, asyncio.CancelledError))

        run(crowd())
        held = {one.source_id for one in store.all()}
        assert held >= {str(number) for number in range(30) if number % 3}
        assert store.put(letter("0")) in ([Held.NEW], [Held.DUPLICATE])

    def test_readers_see_whole_batches(self, store: Clerk) -> None:
        needs(store, "atomic")
        batch = 20

        def work(number: int, run: Run) -> None:
            if number == 0:
                for round in range(20):
                    run(store.store.put([letter(f"{round}/{item}") for item in range(batch)], now=START))
                return
            seen = 0
            while seen < 20 * batch:
                counted = run(store.store.count(now=START))
                assert counted % batch == 0, "a reader saw half of a batch"
                assert counted >= seen
                seen = counted

        in_threads(store.store, 3, work)
