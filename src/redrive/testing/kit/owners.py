"""Many owners of the same letters: tasks and threads that claim and settle until nothing is left."""

from __future__ import annotations

import asyncio
from collections import Counter

from redrive.model.query import Field
from redrive.testing.kit.clerk import Clerk, Kit, Run, running
from redrive.testing.kit.crowd import LETTERS, PATIENCE_SECONDS, THREADS, Register, in_threads, letter_ids, settle_all
from redrive.testing.kit.samples import START, letter

_TASKS = 8


class Owners(Kit):
    """Tier 3: whoever claims, each letter is held by one at a time and settled once."""

    def test_tasks_settle_every_letter_exactly_once(self, store: Clerk, run: Run) -> None:
        store.put(*(letter(str(number), due=START, priority=number % 3) for number in range(LETTERS)))
        register = Register()

        async def crowd() -> None:
            async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as group:
                for number in range(_TASKS):
                    group.create_task(settle_all(store.store, f"task {number}", register))

        run(crowd())
        assert register.completed == Counter(letter_ids())
        assert store.tally(Field.STATUS) == {"completed": LETTERS}

    def test_threads_settle_every_letter_exactly_once(self, store: Clerk) -> None:
        store.put(*(letter(str(number), due=START, priority=number % 3) for number in range(LETTERS)))
        register = Register()
        in_threads(store.store, THREADS, lambda number, run: run(settle_all(store.store, f"thread {number}", register)))
        assert register.completed == Counter(letter_ids())
        assert store.tally(Field.STATUS) == {"completed": LETTERS}

    def test_threads_and_tasks_share_a_store(self, store: Clerk, run: Run) -> None:
        store.put(*(letter(str(number), due=START) for number in range(LETTERS)))
        register = Register()

        def blocking(owner: str) -> None:
            with running(store.store) as run:
                run(settle_all(store.store, owner, register))

        async def crowd() -> None:
            async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as group:
                for number in range(3):
                    group.create_task(settle_all(store.store, f"task {number}", register))
                    group.create_task(asyncio.to_thread(blocking, f"thread {number}"))

        run(crowd())
        assert register.completed == Counter(letter_ids())
        assert store.tally(Field.STATUS) == {"completed": LETTERS}
