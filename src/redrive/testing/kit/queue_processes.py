"""Several processes on one store: they put, lease and settle in the same instant, and are killed amid it."""

from __future__ import annotations

import asyncio
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from msgspec import Struct
from msgspec.structs import replace

from redrive.model.item import Place
from redrive.model.queue import Shard
from redrive.testing.kill.children import answers_of, begin_together, say
from redrive.testing.kit.clerk import needs
from redrive.testing.kit.queue_clerk import QueueClerk, QueueKit, QueueOpener
from redrive.testing.kit.queue_crowd import Register, made, work
from redrive.testing.kit.queue_samples import LINES, ORDERS, PAIR, fresh, names
from redrive.testing.kit.samples import START

_PROCESSES = 3
_WORKERS = [f"process {number}" for number in range(_PROCESSES)]


class _Answer(Struct, frozen=True):
    has_won: bool
    """The contested item."""
    completed: dict[str, int]
    given_up: dict[str, int]


def _work_alone(opener: QueueOpener, place: Path, shard: Shard, worker: str, pipe: Connection) -> None:
    """What each process does: wait for the sign, work, and tell whether it won the contested item and what it settled."""
    store = opener(place)
    register = Register()

    async def live() -> None:
        begin_together(pipe)
        contested = await store.put(ORDERS, [fresh("contested", source_id="1")], now=START)
        await work(store, shard, worker, register)
        await store.close()
        say(pipe, _Answer(bool(contested[0]), dict(register.completed), dict(register.given_up)))

    asyncio.run(live())


class QueueProcesses(QueueKit):
    """Tier 4: what tasks and threads may do, other processes may too."""

    @pytest.mark.parametrize("shard", [PAIR, LINES], ids=["plain", "ordered"])
    def test_processes_settle_every_item_exactly_once(
        self, store: QueueClerk, opener: QueueOpener, place: Path, shard: Shard
    ) -> None:
        needs(store, "shared")
        shard = replace(shard, max_attempts=0)
        completed: Counter[str] = Counter()
        given_up: Counter[str] = Counter()
        wins = 0
        for answer in _in_processes(opener, place, shard):
            wins += answer.has_won
            completed.update(answer.completed)
            given_up.update(answer.given_up)
        assert wins == 1
        assert names(store.items(ORDERS)) == ["contested"]
        assert completed + given_up == Counter(item.reference for worker in _WORKERS for item in made(worker, shard))
        left = store.everything(shard)
        assert {item.place for item in left} == {Place.DYING}
        assert Counter(names(left)) == given_up

    def test_processes_may_open_a_new_store_at_the_same_instant(self, opener: QueueOpener, tmp_path: Path) -> None:
        new = tmp_path / "fresh"
        new.mkdir()
        needs(opener(new), "shared")
        answers = _in_processes(opener, new, replace(PAIR, max_attempts=0))
        assert sum(answer.has_won for answer in answers) == 1


def _in_processes(opener: QueueOpener, place: Path, shard: Shard) -> list[_Answer]:
    """What each of several processes answers that begin together on the same data."""
    return answers_of(_Answer, _work_alone, [(opener, place, shard, worker) for worker in _WORKERS])
