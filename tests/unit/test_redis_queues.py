"""Queues on Redis: what is its own, beyond the contract. Large batches, lost answers, rights, a cluster whose slots move."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, TypeVar

import pytest
from redis import Redis
from redis.crc import key_slot

from dev.engines.redis import ask
from dev.engines.redis_cluster import Cluster
from redrive.backends.redis import RedisQueues, opened
from redrive.backends.redis.address import parsed
from redrive.model.errors import AnswerLost, NotLeased, QueueGone, StoreFull, StoreNotWritable, StoreUnavailable
from redrive.model.item import Again, Fresh, Item, Move, Place
from redrive.model.ksuid import what_is_wrong
from redrive.model.queue import Shard
from redrive.ports import QueueStore
from redrive.testing import START
from redrive.testing.proxy import Proxy
from tests.engines import OwnEngine
from tests.unit.redis_use import location
from tests.unit.test_redis_cluster import begin_moving, end_moving, move

T = TypeVar("T")

own = pytest.mark.engine("redis", own=True)
shared = pytest.mark.engine("redis")

ORDERS = Shard(queue="orders", partitions=(0,), lease_us=60_000_000, expire_us=3_600_000_000, max_attempts=2)
DEAD = Shard(queue="dead", partitions=(0,), lease_us=60_000_000)
LINES = Shard(queue="lines", partitions=(0,), lease_us=60_000_000, is_ordered=True)
EVERYWHERE = frozenset(Place)


def used(where: str, use: Callable[[RedisQueues], Coroutine[Any, Any, T]]) -> T:
    """What becomes of a store that is opened, used and closed."""

    async def scene() -> T:
        queues = RedisQueues(parsed(where, is_tls=False))
        try:
            return await use(queues)
        finally:
            await queues.close()

    return asyncio.run(scene())


def here(namespace: str) -> str:
    return location(os.environ["REDRIVE_TEST_REDIS"], prefix=namespace)


def fresh(count: int, **changes: Any) -> list[Fresh]:
    return [Fresh(**{"payload": b"%d" % number, **changes}) for number in range(count)]


async def drained(queues: RedisQueues, shard: Shard, limit: int = 1000) -> list[Item]:
    """All that is ready, leased and completed."""
    found: list[Item] = []
    while some := (await queues.lease(shard, limit)).items:
        await queues.complete(shard, 0, [item.id for item in some])
        found += some
    return found


@shared
def test_a_url_opens_queues_beside_the_letters(namespace: str) -> None:
    async def scene() -> list[str]:
        store = opened(here(namespace))
        queues: QueueStore | None = store.queues
        assert queues is not None
        ids = await queues.put(ORDERS, fresh(2))
        assert await store.letters.count() == 0
        await queues.close()
        await store.letters.close()
        return ids

    assert len(set(asyncio.run(scene()))) == 2


@shared
def test_a_batch_may_be_larger_than_what_lua_can_unpack(namespace: str) -> None:
    async def live(queues: RedisQueues) -> None:
        ids = await queues.put(ORDERS, fresh(10_000))
        assert ids == sorted(set(ids)), "no id twice, and each higher than the one before, in one second"
        assert not any(map(what_is_wrong, ids))
        leased = await queues.lease(ORDERS, 9000)
        assert [item.id for item in leased.items] == ids[:9000]
        await queues.extend(ORDERS, 0, ids[:9000], 90_000_000)
        await queues.complete(ORDERS, 0, ids[:8500])
        await queues.delete(ORDERS, 0, ids[8500:])
        (stats,) = await queues.stats(ORDERS)
        assert (stats.total, stats.average_age_us, stats.average_leased_age_us) == (0, 0, 0)

    used(here(namespace), live)


@shared
def test_ids_are_of_the_servers_second_and_never_fall_with_the_clock(namespace: str) -> None:
    async def live(queues: RedisQueues) -> None:
        ids: list[str] = []
        for seconds in (0, 1, 1, -5, 0.5, 3600, 2):
            ids += await queues.put(ORDERS, fresh(3), now=START + timedelta(seconds=seconds))
        assert ids == sorted(set(ids))
        assert ids[0][:3] == ids[-1][:3], "all of them are of about the same time"
        (later,) = await queues.put(ORDERS, fresh(1), now=START + timedelta(days=365))
        assert later > ids[-1]
        assert later[:3] != ids[-1][:3]

    used(here(namespace), live)


@shared
def test_instants_far_away_are_kept_to_the_microsecond(namespace: str) -> None:
    """Beyond the year 2255 they are no longer exact as Lua's numbers."""
    far = 253_402_300_799_999_999

    async def live(queues: RedisQueues) -> None:
        await queues.put(ORDERS, fresh(1, enqueue_us=far - 1, expire_us=far, created_us=far - 2))
        await queues.put(ORDERS, fresh(1, expire_us=far))
        scheduled, ready = await queues.items(ORDERS, 0, EVERYWHERE)
        assert (scheduled.created_us, scheduled.enqueue_us, scheduled.expire_us) == (far - 2, far - 1, far)
        assert (scheduled.place, ready.place, ready.expire_us) == (Place.SCHEDULED, Place.READY, far)

    used(here(namespace), live)


@shared
def test_a_lease_that_meets_very_many_past_their_time_gets_to_those_that_are_not(namespace: str) -> None:
    async def live(queues: RedisQueues) -> None:
        await queues.put(ORDERS, fresh(5500, expire_us=1))
        await queues.put(ORDERS, fresh(1, payload=b"alive"))
        leased = await queues.lease(ORDERS, 10)
        assert [item.payload for item in leased.items] == [b"alive"]
        assert leased.dying == 5500
        assert await queues.clear(ORDERS, frozenset({Place.DYING})) == 5500
        (stats,) = await queues.stats(ORDERS)
        assert (stats.total, stats.leased) == (1, 1)

    used(here(namespace), live)


@shared
def test_a_page_of_many_ready_items_is_found_in_every_priority(namespace: str) -> None:
    async def live(queues: RedisQueues) -> None:
        ids = await queues.put(ORDERS, [Fresh(priority=number % 3) for number in range(3000)])
        found: list[str] = []
        while page := await queues.items(ORDERS, 0, EVERYWHERE, pivot=f"{found[-1]}0" if found else "", limit=700):
            found += [item.id for item in page]
        assert found == ids

    used(here(namespace), live)


@shared
def test_everybody_who_waits_hears_of_a_change(namespace: str) -> None:
    async def live(queues: RedisQueues) -> None:
        await queues.put(ORDERS, fresh(1))
        await queues.changed(timedelta(milliseconds=1))
        waiting = [asyncio.create_task(queues.changed(timedelta(hours=1))) for _ in range(3)]
        await queues.lease(ORDERS, 1)
        await queues.put(ORDERS, fresh(1))
        async with asyncio.timeout(30):
            await asyncio.gather(*waiting)

    used(here(namespace), live)


@shared
def test_instants_before_1970_are_long_ago(namespace: str) -> None:
    async def live(queues: RedisQueues) -> None:
        await queues.put(ORDERS, fresh(1, enqueue_us=-62_135_596_800_000_000))
        (item,) = (await queues.lease(ORDERS, 1)).items
        await queues.retry(ORDERS, 0, [Again(id=item.id, at_us=-62_135_596_800_000_000)])
        assert (await queues.stats(ORDERS))[0].ready == 1

    used(here(namespace), live)


@own
def test_what_is_worked_off_or_removed_leaves_next_to_nothing_behind(own_engine: OwnEngine) -> None:
    server = own_engine("redis", durable=False)

    async def live(queues: RedisQueues) -> None:
        for shard in (ORDERS, LINES):
            await queues.put(shard, fresh(20, key="a", source_id="s") + fresh(3, source_id="t", expire_us=1 << 60))
            for number in range(20):
                await queues.put(shard, fresh(1, key=f"{number % 3}", source_id=f"{number}"))
            await drained(queues, shard)
        with Redis(port=server.port, decode_responses=True) as client:
            left = {str(key).rpartition(":")[2] for key in client.scan_iter("*queues}q:*")}
        assert left == {"state"}
        assert await queues.next_due() == []
        await queues.put(LINES, fresh(5, key="a", enqueue_us=1 << 52))
        await queues.remove(LINES)
        await queues.remove(LINES)
        assert await queues.next_due() == []
        with pytest.raises(QueueGone, match="'lines'"):
            await queues.move(DEAD, [], LINES)
        assert ask(server.port, "GET", "{redrive:queues}q:lines:0:state").strip() == "gone"

    used(location(server.url, durability="none"), live)


@own
def test_a_server_that_forgot_its_scripts_learns_them_again(own_engine: OwnEngine) -> None:
    server = own_engine("redis")

    async def live(queues: RedisQueues) -> None:
        await queues.put(ORDERS, fresh(1))
        ask(server.port, "SCRIPT", "FLUSH")
        await queues.put(ORDERS, fresh(1))
        assert len(await drained(queues, ORDERS)) == 2

    used(location(server.url), live)


@own
def test_a_server_that_keeps_less_than_was_asked_for_is_refused(own_engine: OwnEngine) -> None:
    server = own_engine("redis", durable=False)
    with pytest.raises(StoreNotWritable, match="appendonly"):
        used(location(server.url), lambda queues: queues.check())
    assert used(location(server.url, durability="none"), lambda queues: queues.check()) is None


@own
def test_a_server_without_memory_takes_no_half_of_a_batch_and_still_gives(own_engine: OwnEngine) -> None:
    server = own_engine("redis", more=["--maxmemory", "6mb"])

    async def live(queues: RedisQueues) -> None:
        put = 0

        async def fill() -> None:
            nonlocal put
            while True:
                put += len(await queues.put(ORDERS, fresh(4, payload=bytes(50_000))))

        with pytest.raises(StoreFull, match="no memory left"):
            await fill()
        (stats,) = await queues.stats(ORDERS)
        assert stats.ready == put > 0
        assert len(await drained(queues, ORDERS, limit=3)) == put
        await queues.put(ORDERS, fresh(4, payload=bytes(50_000)))

    used(location(server.url), live)


@own
def test_a_user_with_half_of_the_rights_writes_nothing_rather_than_half(own_engine: OwnEngine) -> None:
    server = own_engine("redis")
    ask(server.port, "ACL", "SETUSER", "ann", "on", ">secret", "~*", "+@all", "-zpopmin")
    where = f"//ann:secret@127.0.0.1:{server.port}"
    for use in (lambda queues: queues.put(ORDERS, fresh(1)), lambda queues: queues.check()):
        with pytest.raises(StoreNotWritable, match="ZPOPMIN"):
            used(where, use)
    assert ask(server.port, "DBSIZE").strip() == ":0"


@own
def test_what_was_confirmed_survives_a_kill(own_engine: OwnEngine) -> None:
    server = own_engine("redis")

    async def live(queues: RedisQueues) -> None:
        ids = await queues.put(ORDERS, fresh(20))
        leased = await queues.lease(ORDERS, 5)
        before = await queues.items(ORDERS, 0, EVERYWHERE)
        await asyncio.to_thread(server.kill)
        with pytest.raises(StoreUnavailable):
            await queues.put(ORDERS, fresh(1))
        server.start()
        assert await queues.items(ORDERS, 0, EVERYWHERE) == before
        await queues.complete(ORDERS, 0, [item.id for item in leased.items])
        (another,) = await queues.put(ORDERS, fresh(1))
        assert another > ids[-1]

    used(location(server.url), live)


@shared
@pytest.mark.parametrize("fault", ["cut", "silence"])
def test_a_lost_answer_is_told_apart_from_a_refusal(namespace: str, fault: str) -> None:
    host, _, port = os.environ["REDRIVE_TEST_REDIS"].removeprefix("redis://").removesuffix("/0").partition(":")
    with Proxy(host, int(port)) as proxy:

        async def lose(queues: RedisQueues) -> None:
            _, id = await queues.put(ORDERS, fresh(2))
            # From here on the server knows how to lease, whichever test came before: the next is one message, and is done.
            await queues.complete(ORDERS, 0, [item.id for item in (await queues.lease(ORDERS, 1)).items])
            if fault == "cut":
                proxy.cut_after(answer_bytes=0)
            else:
                proxy.swallow_answers()
            with pytest.raises(AnswerLost, match="it may have been done or not"):
                await queues.lease(ORDERS, 1)
            proxy.swallow_answers()
            with pytest.raises(StoreUnavailable) as caught:
                await queues.stats(ORDERS)
            assert not isinstance(caught.value, AnswerLost), "reading again does no harm"
            proxy.pass_answers()
            (item,) = await queues.items(ORDERS, 0, frozenset({Place.LEASED}))
            assert (item.id, item.attempts) == (id, 1), "it had been done"

        used(f"//{proxy.host}:{proxy.port}?prefix={namespace}&timeout=2", lose)


@pytest.mark.engine("redis-cluster", own=True)
def test_while_a_clusters_slot_moves_everything_is_done_whole_or_refused(own_engine: OwnEngine) -> None:
    cluster = own_engine("redis-cluster")
    assert isinstance(cluster, Cluster)
    slot = key_slot(b"{redrive:queues}")
    source = next(node for number, node in enumerate(cluster.nodes) if slot < (number + 1) * 16_384 // 3)
    target = next(node for node in cluster.nodes if node is not source)

    async def live(queues: RedisQueues) -> None:
        ids = await queues.put(ORDERS, fresh(20))
        first = await queues.lease(ORDERS, 2)
        begin_moving(cluster.nodes, slot, source, target)
        for verb in (lambda: queues.put(ORDERS, fresh(1)), lambda: queues.lease(ORDERS, 3), lambda: queues.sweep(ORDERS)):
            with pytest.raises(StoreUnavailable, match="is moving letters to another node; try again"):
                await verb()
        move(slot, source, target)
        end_moving(cluster.nodes, slot, target)
        await queues.complete(ORDERS, 0, [item.id for item in first.items])
        assert [item.id for item in await drained(queues, ORDERS)] == ids[2:]
        assert (await queues.stats(ORDERS))[0].total == 0

    used(location(cluster.url, timeout=3), live)


@pytest.mark.engine("redis-cluster")
def test_on_a_cluster_a_dying_item_moves_to_another_queue_in_one_step(namespace: str) -> None:
    async def live(queues: RedisQueues) -> None:
        (id,) = await queues.put(ORDERS, fresh(1, expire_us=1))
        assert (await queues.sweep(ORDERS)).dying == 1
        assert await queues.move(ORDERS, [Move(partition=0, id=id, fresh=Fresh(source_id=id, partition=3))], DEAD) == 1
        assert [item.source_id for item in await queues.items(DEAD, 3, EVERYWHERE)] == [id]
        assert await queues.dying(ORDERS) == []
        with pytest.raises(NotLeased):
            await queues.complete(DEAD, 3, [(await queues.items(DEAD, 3, EVERYWHERE))[0].id])

    used(location(os.environ["REDRIVE_TEST_REDIS_CLUSTER"], prefix=namespace), live)
