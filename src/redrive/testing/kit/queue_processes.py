"""Several processes on one store: they put, lease and settle in the same instant, and are killed amid it."""

from __future__ import annotations

import asyncio
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from redrive.model.item import Place
from redrive.model.queue import Shard
from redrive.testing.kill.children import children
from redrive.testing.kit.crowd import PATIENCE_SECONDS
from redrive.testing.kit.queue_clerk import QueueClerk, QueueKit, QueueOpener, needs
from redrive.testing.kit.queue_crowd import Register, made, work
from redrive.testing.kit.queue_samples import LINES, ORDERS, PAIR, fresh, names
from redrive.testing.kit.samples import START

_PROCESSES = 3
_WORKERS = [f"process {number}" for number in range(_PROCESSES)]


def _work_alone(opener: QueueOpener, place: Path, shard: Shard, worker: str, pipe: Connection) -> None:
    """What each process does: wait for the sign, work, and tell whether it won the contested item and what it settled."""
    store = opener(place)
    register = Register()

    async def live() -> None:
        pipe.send("ready")
        pipe.recv()
        contested = await store.put(ORDERS, [fresh("contested", source_id="1")], now=START)
        await work(store, shard, worker, register)
        await store.close()
        pipe.send((bool(contested[0]), dict(register.completed), dict(register.given_up)))

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
        for won, done, dead in _in_processes(opener, place, shard):
            wins += won
            completed.update(done)
            given_up.update(dead)
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
        assert sum(won for won, _, _ in answers) == 1


def _in_processes(opener: QueueOpener, place: Path, shard: Shard) -> list[tuple[bool, dict[str, int], dict[str, int]]]:
    """What each of several processes answers that begin together on the same data."""
    context = children()
    pipes, processes = [], []
    for worker in _WORKERS:
        ours, theirs = context.Pipe()
        process = context.Process(target=_work_alone, args=(opener, place, shard, worker, theirs), daemon=True)
        process.start()
        theirs.close()
        pipes.append(ours)
        processes.append(process)
    try:
        for pipe in pipes:
            assert _heard(pipe) == "ready"
        for pipe in pipes:
            pipe.send("go")
        return [_heard(pipe) for pipe in pipes]
    finally:
        for process, pipe in zip(processes, pipes, strict=True):
            pipe.close()
            process.join(PATIENCE_SECONDS)
            process.close()


def _heard(pipe: Connection) -> Any:
    if not pipe.poll(PATIENCE_SECONDS):
        pytest.fail("a process did not answer")
    return pipe.recv()
