"""Kill -9 a server of queues at every step between giving an item up and its rest in the dead queue, while others lease: started again
until all is done, no item is lost, none is twice in the dead queue, and none is in both queues."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from msgspec import Struct, json

from redrive.model.errors import QueueEmpty, QueueRefused
from redrive.model.item import Again, Item, Place
from redrive.model.queue import Queue, Shard
from redrive.model.story import heard
from redrive.ports.queues import QueueStore
from redrive.queues import QueueClient, Queues, item
from redrive.testing import Harness, Kill, LawBroken
from redrive.testing.clock import ManualClock
from redrive.testing.kill.harness import Life
from redrive.testing.kill.points import Visit
from redrive.testing.kill.queues import watched_queues
from redrive.testing.kit.samples import START, is_chaos
from tests.unit.queue_use import endpoint, queue_store

ITEMS = 12
WORKERS = 3
_HOUR = timedelta(hours=1)
_MINUTE = timedelta(minutes=1)
_PATIENCE = timedelta(milliseconds=50)
_EVERYWHERE = frozenset(Place)


def points(*verbs: str) -> list[str]:
    return [f"{moment} {verb}" for verb in verbs for moment in ("before", "after")]


TOGETHER = points("lease", "complete", "retry", "sweep", "dying", "move")
"""Where a process is killed whose queues lie in one store."""
APART = points("lease", "complete", "retry", "sweep", "dying", "bury", "delete")
"""Where one is killed whose dead queue lies in another: `bury` puts an item there, `delete` takes it from its own queue."""
POINTS = {"together": TOGETHER, "apart": APART}
TELLING = {
    "together": ["after retry", "after sweep", "before move", "after move"],
    "apart": ["after retry", "before bury", "after bury", "after delete"],
}
"""The ones that an ordinary run tries."""
WHERE = list(POINTS)


def opened(place: Path, where: str, visit: Visit | None = None) -> dict[str, QueueStore]:
    stores = {"store": queue_store(f"sqlite:{place}/queues.db")}
    if where == "apart":
        stores["graves"] = queue_store(f"sqlite:{place}/graves.db")
    if visit is None:
        return stores
    return {name: watched_queues(store, visit, **({"put": "bury"} if name == "graves" else {})) for name, store in stores.items()}


def queue(name: str, store: str, dead_queue: str = "", partitions: int = 1) -> Queue:
    return Queue(
        id=f"id-of-{name}",
        name=name,
        lease_timeout=_MINUTE,
        expire_timeout=1000 * _HOUR,
        created_us=1,
        updated_us=1,
        partitions=(store,) * partitions,
        dead_queue=dead_queue,
        max_attempts=1 if dead_queue else 0,
    )


def fill(place: Path, where: str) -> None:
    place.mkdir(parents=True, exist_ok=True)

    async def put() -> None:
        stores = opened(place, where)
        grave = list(stores)[-1]
        defined = [queue("dead", grave, partitions=2), queue("orders", "store", "dead", partitions=2)]
        assert await stores["store"].define((await stores["store"].catalogue()).version, defined)
        async with Queues(stores, clock=ManualClock(START), owns_stores=True) as queues:
            for number in range(ITEMS):
                await queues.produce("orders", [item(f"payload of {number}", reference=str(number))])

    asyncio.run(put())


class Note(Struct, frozen=True):
    """What a worker held, was about to do, and knew to be done."""

    what: str
    name: str
    id: str


def note(place: Path, what: str, one: Item) -> None:
    with (place / "notes").open("ab") as lines:
        lines.write(json.encode(Note(what, one.reference, one.id)) + b"\n")


def notes(place: Path) -> list[Note]:
    file = place / "notes"
    return [json.decode(line, type=Note) for line in file.read_bytes().splitlines()] if file.exists() else []


async def whole_life(life: Life, visit: Visit, *, where: str) -> None:
    """Serve the queues over HTTP and work at them, several at a time, until the source is empty."""
    clock = ManualClock(START + life.number * _HOUR)
    async with asyncio.timeout(30):
        async with (
            Queues(opened(life.place, where, visit), clock=clock, owns_stores=True) as served,
            endpoint(served) as address,
            QueueClient(address) as client,
        ):
            workers = [asyncio.create_task(work(life.place, client, f"worker {number}")) for number in range(WORKERS)]
            while any(one.total or one.scheduled for one in (await served.stats("orders")).partitions):
                for worker in workers:
                    if worker.done():
                        worker.result()
                await asyncio.sleep(0.02)
                clock.advance(timedelta(seconds=10))
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)


async def work(place: Path, client: QueueClient, name: str) -> None:
    """Of four items one is completed, one given up, one given back, and one left to its lease."""
    while True:
        try:
            leased = await client.lease("orders", 2, client=name, timeout=_PATIENCE)
        except QueueEmpty:
            continue
        for one in leased.items:
            note(place, "held", one)
            try:
                match int(one.reference) % 4:
                    case 0:
                        note(place, "completing", one)
                        await client.complete("orders", leased.partition, [one.id])
                        note(place, "completed", one)
                    case 1:
                        await client.retry("orders", leased.partition, [Again(id=one.id, dead=True)])
                    case 2:
                        await client.retry("orders", leased.partition, [Again(id=one.id)])
            except QueueRefused:
                # Its lease was over before: somebody else has it, or will.
                note(place, "refused", one)


def shard_of(one: Queue) -> Shard:
    """A queue's items, only to be looked at."""
    return Shard(queue=one.id, partitions=tuple(range(len(one.partitions))), lease_us=1)


def holds(place: Path, is_over: bool, *, where: str) -> None:
    """The law of items that are given up on."""
    source, dead = asyncio.run(found(place, where))
    known = notes(place)
    tries = Counter((one.what, one.name) for one in known)
    here, there = Counter(one.reference for one in source), Counter(one.reference for one in dead)
    for name in map(str, range(ITEMS)):
        left = tries["completing", name] - tries["refused", name]
        _ensure(here[name] <= 1, f"{name} is {here[name]} times in the source")
        _ensure(there[name] <= 1, f"{name} is {there[name]} times in the dead queue")
        _ensure(here[name] + there[name] > 0 or left > 0, f"{name} is lost")
        _ensure(not (tries["completed", name] and here[name] + there[name]), f"{name} was completed and is there")
    for one in source:
        is_between = where == "apart" and one.place is Place.DYING
        _ensure(not there[one.reference] or is_between, f"{one.reference} is {one.place} in the source, and in the dead queue")
        if one.place is Place.DYING:
            note(place, "died", one)
    held: dict[str, str] = {}
    died: dict[str, str] = {}
    for line in known:
        if line.what == "held":
            held[line.name] = max(line.id, held.get(line.name, ""))
        if line.what == "died":
            _ensure(died.setdefault(line.name, line.id) == line.id, f"{line.name} died at two positions")
    for one in dead:
        name = one.reference
        _ensure(one.payload == f"payload of {name}".encode(), f"{name} is not whole")
        _ensure(one.source_id == died.get(name, one.source_id), f"{name} died at {died.get(name)}, not {one.source_id}")
        # It may have been leased once more by one who was killed before it could say so.
        _ensure(one.source_id >= held.get(name, ""), f"{name} was held at {held.get(name)} and died at {one.source_id} before")
        story = heard(one.story)
        _ensure((story.queue, one.attempts) == ("orders", 0), f"{name} comes from {story.queue}, tried {one.attempts} times")
    if is_over:
        _ensure(not source, f"{sorted(here)} are left in the source")
        _ensure(len(dead) >= ITEMS * 3 // 4, f"only {sorted(there)} are in the dead queue")


async def found(place: Path, where: str) -> tuple[list[Item], list[Item]]:
    """All that is in the source and in the dead queue, as it lies there."""
    stores = opened(place, where)
    lists: dict[str, list[Item]] = {}
    for one in (await stores["store"].catalogue()).queues:
        store = stores[one.partitions[0]]
        shard = shard_of(one)
        lists[one.name] = [stored for number in shard.partitions for stored in await store.items(shard, number, _EVERYWHERE)]
    for store in stores.values():
        await store.close()
    return lists["orders"], lists["dead"]


def harness(place: Path, where: str) -> Harness:
    fill(place, where)
    return Harness(place, partial(whole_life, where=where), partial(holds, where=where))


def _ensure(is_so: bool, complaint: str) -> None:
    if not is_so:
        raise LawBroken(complaint)


@pytest.mark.parametrize("where", WHERE)
def test_a_life_without_a_kill_passes_every_point(tmp_path: Path, where: str) -> None:
    unharmed = harness(tmp_path, where)
    assert unharmed.live() is False
    assert [point for point in POINTS[where] if not unharmed.visits().get(point)] == []


@pytest.mark.parametrize(
    ("where", "point"), [(where, point) for where in WHERE for point in (POINTS if is_chaos() else TELLING)[where]]
)
def test_a_server_that_is_killed_on_the_way_to_the_dead_queue_loses_and_doubles_nothing(
    tmp_path: Path, where: str, point: str
) -> None:
    for visit in range(1, 13) if is_chaos() else (1,):
        killed = harness(tmp_path / str(visit), where)
        if not killed.live(Kill(point, visit)):
            assert visit > 1, "this child was to be killed"
            break
        assert killed.live() is False
        assert killed.kills == 1


@pytest.mark.parametrize("seed", range(20 if is_chaos() else 1))
@pytest.mark.parametrize("where", WHERE)
def test_kills_in_a_row_lose_and_double_nothing_either(tmp_path: Path, where: str, seed: int) -> None:
    dice = random.Random(seed)
    killed = harness(tmp_path, where)
    for _ in range(25 if is_chaos() else 5):
        if not killed.live(Kill(dice.choice(POINTS[where]), dice.randint(1, 2))):
            break
    assert killed.live() is False
    assert killed.kills > 0


@pytest.mark.parametrize("where", WHERE)
def test_the_law_sees_what_is_lost_and_what_is_twice(tmp_path: Path, where: str) -> None:
    unharmed = harness(tmp_path, where)
    unharmed.live()

    async def alter(*, is_lost: bool) -> None:
        stores = opened(tmp_path, where)
        (dead,) = [one for one in (await stores["store"].catalogue()).queues if one.name == "dead"]
        store, shard = stores[dead.partitions[0]], shard_of(dead)
        if is_lost:
            await store.clear(shard, _EVERYWHERE)
        else:
            await store.put(shard, [item("payload of 1", reference="1")])
        for one in stores.values():
            await one.close()

    asyncio.run(alter(is_lost=False))
    with pytest.raises(LawBroken, match="1 is 2 times in the dead queue"):
        holds(tmp_path, True, where=where)
    asyncio.run(alter(is_lost=True))
    with pytest.raises(LawBroken, match="1 is lost"):
        holds(tmp_path, True, where=where)
