"""Several processes that serve the same queues from one store: what one does, the others see, and what one leaves, another finishes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from redrive.model.errors import NoSuchQueue, NotLeased, QueueEmpty
from redrive.model.item import Again, Leased
from redrive.queues import QueueClient, Queues, item
from redrive.testing.kill.children import children
from redrive.testing.kill.points import Kill, Visits
from redrive.testing.kill.queues import watched_queues
from tests.unit import queue_use
from tests.unit.queue_use import AT_ONCE, HOUR, MINUTE, SOON, Place, endpoint, queue_store
from tests.unit.waiting import until

PROCESSES = 5
ITEMS = 2_000
_BATCH = 50
_PATIENCE_SECONDS = 60.0
_SEEN_WITHIN_SECONDS = 10.0
"""By when one sees what others did, which is a second on a machine that is not busy."""
_LONG = timedelta(minutes=5)
"""Who waits for so long sees nothing by itself before."""

STORES = [one for one in queue_use.STORES if one.id != "memory"]
"""Those that processes share."""
SETTINGS: Any = {"lease_timeout": MINUTE, "expire_timeout": 24 * HOUR}


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path, namespace: str) -> str:
    place: Place = request.param
    return place(tmp_path, namespace)


def _run(life: Callable[[str, Connection, Any], Awaitable[None]], url: str, pipe: Connection, given: Any) -> None:
    asyncio.run(life(url, pipe, given))  # type: ignore[arg-type]  # every life is a coroutine function


@asynccontextmanager
async def other(life: Callable[[str, Connection, Any], Awaitable[None]], url: str, given: Any = None) -> AsyncIterator[Other]:
    """Another process, that lives this life."""
    context = children()
    ours, theirs = context.Pipe()
    process = context.Process(target=_run, args=(life, url, theirs, given), daemon=True)
    process.start()
    theirs.close()
    try:
        yield Other(ours, process)
    finally:
        ours.close()
        await asyncio.to_thread(process.join, 10)
        if process.is_alive():
            process.kill()
            process.join()
        process.close()


class Other:
    def __init__(self, pipe: Connection, process: Any) -> None:
        self._pipe = pipe
        self._process = process

    async def heard(self) -> Any:
        """What it says next."""
        if not await asyncio.to_thread(self._pipe.poll, _PATIENCE_SECONDS):
            pytest.fail("a process did not answer")
        return self._pipe.recv()

    async def ask(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        """Let it call a verb of its queues: the answer, or the name of the error."""
        self._pipe.send((verb, args, kwargs))
        return await self.heard()

    async def go(self) -> None:
        self._pipe.send("go")

    async def end(self) -> int | None:
        """How it ended."""
        await asyncio.to_thread(self._process.join, _PATIENCE_SECONDS)
        code: int | None = self._process.exitcode
        return code


async def serve(url: str, pipe: Connection, given: Any) -> None:
    """Do as one is told, until nobody tells anything any more."""
    async with Queues({"store": queue_store(url)}, owns_stores=True) as queues:
        while True:
            try:
                verb, args, kwargs = await asyncio.to_thread(pipe.recv)
            except (EOFError, OSError):
                return
            try:
                answer = await getattr(queues, verb)(*args, **kwargs)
            except Exception as error:  # it is told to whoever asked
                answer = type(error).__name__
            pipe.send(answer)


async def give_up_and_die(url: str, pipe: Connection, given: Any) -> None:
    """Give an item up, and be killed before it is moved."""
    store = watched_queues(queue_store(url), Visits(Kill("after retry")))
    async with Queues({"store": store}, owns_stores=True) as queues:
        leased = await queues.lease("orders", client="doomed")
        pipe.send([one.id for one in leased.items])
        await queues.retry("orders", leased.partition, [Again(id=one.id, dead=True) for one in leased.items])
        pipe.send("still alive")


async def lease_and_die(url: str, pipe: Connection, given: Any) -> None:
    store = watched_queues(queue_store(url), Visits(Kill("before complete")))
    async with Queues({"store": store}, owns_stores=True) as queues:
        leased = await queues.lease("orders", client="doomed")
        pipe.send([one.id for one in leased.items])
        await queues.complete("orders", leased.partition, [one.id for one in leased.items])
        pipe.send("still alive")


async def work(url: str, pipe: Connection, number: Any) -> None:
    """Produce one's share, and work off whatever there is; tell what was worked and what was completed."""
    worked: list[str] = []
    completed: list[str] = []
    async with Queues({"store": queue_store(url)}, owns_stores=True) as queues:
        pipe.send("ready")
        await asyncio.to_thread(pipe.recv)
        is_produced = asyncio.Event()

        async def produce() -> None:
            for start in range(0, ITEMS // PROCESSES, _BATCH):
                await queues.produce("orders", [item(f"{number}/{start + one}") for one in range(_BATCH)])
            is_produced.set()

        async def consume(worker: int) -> None:
            while True:
                # On a busy machine one's own share may come later than one would wait: nobody else stays for it.
                is_all_there = is_produced.is_set()
                try:
                    leased = await queues.lease("orders", 20, client=f"{number}/{worker}", timeout=timedelta(milliseconds=500))
                except QueueEmpty:
                    if is_all_there:
                        return
                    continue
                names = [one.payload.decode() for one in leased.items]
                worked.extend(names)
                try:
                    await queues.complete("orders", leased.partition, [one.id for one in leased.items])
                except NotLeased:
                    continue
                completed.extend(names)

        await asyncio.gather(produce(), consume(0), consume(1))
    pipe.send((worked, completed))


@asynccontextmanager
async def served(url: str, way: str) -> AsyncIterator[Queues | QueueClient]:
    async with Queues({"store": queue_store(url)}, owns_stores=True) as queues:
        if way == "in process":
            yield queues
            return
        async with endpoint(queues) as address, QueueClient(address) as client:
            yield client


@pytest.mark.parametrize("way", ["in process", "over HTTP"])
def test_who_waits_here_is_woken_by_what_is_produced_there(url: str, way: str) -> None:
    async def whole() -> None:
        async with served(url, way) as queues, other(serve, url) as there:
            await queues.create("orders", **SETTINGS)
            for number in range(3):
                waiting = asyncio.create_task(queues.lease("orders", client="here", timeout=_LONG))
                await asyncio.sleep(0.1 * number)
                assert await there.ask("produce", "orders", [item(str(number))]) is None
                async with asyncio.timeout(_SEEN_WITHIN_SECONDS):
                    leased = await waiting
                assert [one.payload.decode() for one in leased.items] == [str(number)]

    asyncio.run(whole())


def test_an_item_given_back_or_scheduled_there_wakes_who_waits_here(url: str) -> None:
    async def whole() -> None:
        async with served(url, "in process") as queues, other(serve, url) as there:
            await queues.create("orders", **SETTINGS)
            await queues.produce("orders", [item("a")])
            leased = await there.ask("lease", "orders", client="there")
            waiting = asyncio.create_task(queues.lease("orders", client="here", timeout=_LONG))
            await asyncio.sleep(0.05)
            assert await there.ask("retry", "orders", 0, [Again(id=leased.items[0].id)]) is None
            async with asyncio.timeout(_SEEN_WITHIN_SECONDS):
                assert [one.attempts for one in (await waiting).items] == [2]

    asyncio.run(whole())


def test_what_is_defined_there_is_seen_here(url: str) -> None:
    async def whole() -> None:
        async with served(url, "in process") as queues, other(serve, url) as there:
            with pytest.raises(NoSuchQueue):
                await queues.produce("orders", [item("too early")])
            await there.ask("create", "orders", **SETTINGS)
            await queues.produce("orders", [item("a")])

            await there.ask("update", "orders", max_attempts=7, partitions=2)
            assert (await queues.info("orders")).max_attempts == 7
            assert len((await queues.stats("orders")).partitions) == 2

            await there.ask("delete", "orders")

            async def is_gone() -> bool:
                try:
                    await queues.lease("orders", client="here", timeout=AT_ONCE)
                except NoSuchQueue:
                    return True
                return False

            await until(is_gone, _SEEN_WITHIN_SECONDS)
            with pytest.raises(NoSuchQueue):
                await queues.produce("orders", [item("too late")])

    asyncio.run(whole())


def test_a_queue_that_is_created_again_there_is_another_one_here(url: str) -> None:
    async def whole() -> None:
        async with served(url, "in process") as queues, other(serve, url) as there:
            await queues.create("orders", **SETTINGS)
            await queues.produce("orders", [item("of the old one")])
            await there.ask("delete", "orders")
            await there.ask("create", "orders", **SETTINGS)
            # Nobody told us: what is produced lands in the new one all the same.
            await queues.produce("orders", [item("of the new one")])
            leased = await there.ask("lease", "orders", client="there")
            assert [one.payload for one in leased.items] == [b"of the new one"]

    asyncio.run(whole())


@pytest.mark.parametrize("moment", ["while one waits", "before one comes"])
def test_who_waits_here_gets_what_comes_into_the_queue_that_was_created_again_there(url: str, moment: str) -> None:
    async def whole() -> None:
        async with served(url, "in process") as queues, other(serve, url) as there:
            await queues.create("orders", **SETTINGS)

            async def again() -> None:
                await there.ask("delete", "orders")
                await there.ask("create", "orders", **SETTINGS)

            if moment == "before one comes":
                await again()

            async def wait() -> Leased:
                while True:
                    try:
                        return await queues.lease("orders", client="here", timeout=_LONG)
                    except NoSuchQueue:
                        # We looked between the end of the one and the beginning of the other.
                        await asyncio.sleep(0.01)

            waiting = asyncio.create_task(wait())
            await asyncio.sleep(0.05)
            if moment == "while one waits":
                await again()
            await there.ask("produce", "orders", [item("of the new one")])
            async with asyncio.timeout(_SEEN_WITHIN_SECONDS):
                assert [one.payload for one in (await waiting).items] == [b"of the new one"]

    asyncio.run(whole())


def test_who_waits_here_at_a_queue_that_is_deleted_there_is_told_so(url: str) -> None:
    async def whole() -> None:
        async with served(url, "in process") as queues, other(serve, url) as there:
            await queues.create("orders", **SETTINGS)
            waiting = asyncio.create_task(queues.lease("orders", client="here", timeout=_LONG))
            await asyncio.sleep(0.05)
            await there.ask("delete", "orders")
            with pytest.raises(NoSuchQueue):
                async with asyncio.timeout(_SEEN_WITHIN_SECONDS):
                    await waiting

    asyncio.run(whole())


def test_what_a_killed_process_gave_up_is_moved_by_another(url: str) -> None:
    async def whole() -> None:
        async with served(url, "in process") as queues:
            await queues.create("dead", **SETTINGS)
            await queues.create("orders", **SETTINGS, dead_queue="dead")
            await queues.produce("orders", [item(str(number)) for number in range(5)])
            async with other(give_up_and_die, url) as there:
                ids = await there.heard()
                assert await there.end() == -9

            async def is_moved() -> bool:
                return len(await queues.items("dead", 0)) == 5

            await until(is_moved, _SEEN_WITHIN_SECONDS)
            assert [one.source_id for one in await queues.items("dead", 0)] == ids
            assert await queues.items("orders", 0) == []

    asyncio.run(whole())


def test_what_a_killed_process_had_leased_comes_to_another(url: str) -> None:
    async def whole() -> None:
        async with served(url, "in process") as queues:
            await queues.create("orders", lease_timeout=timedelta(seconds=1), expire_timeout=HOUR)
            await queues.produce("orders", [item("a")])
            async with other(lease_and_die, url) as there:
                (id,) = await there.heard()
                leased = await queues.lease("orders", client="here", timeout=SOON)
                assert await there.end() == -9
            ((again,),) = (leased.items,)
            assert (again.attempts, again.id > id) == (2, True)

    asyncio.run(whole())


def test_processes_produce_and_consume_each_item_and_complete_it_once(url: str) -> None:
    async def whole() -> None:
        async with served(url, "in process") as queues:
            await queues.create("orders", **SETTINGS, partitions=2)
            worked: Counter[str] = Counter()
            completed: Counter[str] = Counter()

            async def life(number: int, begin: asyncio.Barrier) -> None:
                async with other(work, url, number) as there:
                    assert await there.heard() == "ready"
                    await begin.wait()
                    await there.go()
                    theirs, done = await there.heard()
                    worked.update(theirs)
                    completed.update(done)

            begin = asyncio.Barrier(PROCESSES)
            await asyncio.gather(*(life(number, begin) for number in range(PROCESSES)))
            stats = (await queues.stats("orders")).partitions
            assert [one.total for one in stats] == [0, 0]
            names = {f"{process}/{number}" for process in range(PROCESSES) for number in range(ITEMS // PROCESSES)}
            assert worked.keys() == names
            assert completed == Counter(names)

    asyncio.run(whole())
