"""Queues in process, over HTTP and for blocking code: the same verbs with the same signatures."""

from __future__ import annotations

import asyncio
import inspect
import threading
from datetime import timedelta
from pathlib import Path

import pytest

from redrive.model.errors import NotLeased, QueueEmpty, StoreUnavailable
from redrive.queues import QueueClient, Queues, again, item
from redrive.queues import blocking as blocking_queues
from tests.unit.queue_use import endpoint, queue_store

OF_THE_SERVER = {"check", "dismiss", "serve_here"}
"""What only those need who serve queues."""


def verbs(kind: type) -> set[str]:
    ours = [one for one in kind.__mro__ if one.__module__.startswith("redrive")]
    return {name for one in ours for name in vars(one) if not name.startswith("_")} - OF_THE_SERVER


def signature(kind: type, name: str) -> inspect.Signature:
    return inspect.signature(getattr(kind, name))


def test_all_faces_have_the_same_verbs() -> None:
    assert verbs(Queues) == verbs(QueueClient) == verbs(blocking_queues.BlockingQueues)


@pytest.mark.parametrize("name", sorted(verbs(Queues)))
def test_each_verb_is_called_in_the_same_way_on_all_faces(name: str) -> None:
    assert signature(Queues, name) == signature(QueueClient, name) == signature(blocking_queues.BlockingQueues, name)


def whole_way(queues: blocking_queues.BlockingQueues) -> None:
    hour = timedelta(hours=1)
    queues.create("dead", lease_timeout=hour, expire_timeout=hour)
    assert queues.create("orders", lease_timeout=hour, expire_timeout=hour, dead_queue="dead").dead_queue == "dead"
    assert queues.update("orders", max_attempts=3).max_attempts == 3
    assert queues.update("orders", max_attempts=0, reference="shop").max_attempts == 0
    assert queues.update("orders", reference="").reference == ""
    assert [queue.name for queue in queues.queues()] == ["dead", "orders"]
    queues.produce("orders", [item(str(number), headers={"n": number}) for number in range(3)])
    leased = queues.lease("orders", 3, client="worker")
    done, bad, held = leased.items
    assert queues.extend("orders", leased.partition, [held.id], 2 * hour) > leased.until_us
    queues.complete("orders", leased.partition, [done.id])
    queues.retry("orders", leased.partition, [again(bad, ValueError("no"), dead=True)])
    with pytest.raises(NotLeased) as refused:
        queues.complete("orders", leased.partition, [queues.bring("orders", 0, [item("brought")])[0]])
    assert len(refused.value.id) == 27
    assert [stored.payload for stored in queues.items("orders", 0)] == [b"2", b"brought"]
    assert queues.scheduled("orders", 0) == []
    assert (queues.stats("orders").partitions[0].leased, queues.info("orders").name) == (1, "orders")
    queues.discard("orders", 0, [held.id])
    assert queues.clear("orders", queue=True) == 1
    queues.reload("orders")
    with pytest.raises(QueueEmpty):
        queues.lease("orders", client="worker", timeout=timedelta(milliseconds=20))
    queues.delete("orders")


def test_the_whole_way_in_blocking_code(tmp_path: Path) -> None:
    with blocking_queues.open(f"sqlite:{tmp_path}/queues.db") as queues:
        whole_way(queues)


def test_the_whole_way_in_blocking_code_over_http() -> None:
    addresses: list[str] = []
    up, done = threading.Event(), threading.Event()

    async def serve() -> None:
        async with Queues({"store": queue_store("memory:")}) as served, endpoint(served) as address:
            addresses.append(address)
            up.set()
            await asyncio.to_thread(done.wait)

    server = threading.Thread(target=lambda: asyncio.run(serve()))
    server.start()
    try:
        assert up.wait(10)
        with blocking_queues.connect(addresses[0]) as queues:
            whole_way(queues)
    finally:
        done.set()
        server.join()


def test_nobody_there_is_told_so() -> None:
    with (
        blocking_queues.connect("http://127.0.0.1:9") as queues,
        pytest.raises(StoreUnavailable, match=r"^127\.0\.0\.1:9 cannot be reached: Connection refused$"),
    ):
        queues.info("orders")
