"""A Redis cluster that changes while letters are kept in it: nodes die and come back, slots move."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import pytest
from redis import Redis
from redis.crc import key_slot

from dev.engines.engine import Running
from dev.engines.redis import ask
from dev.engines.redis_cluster import Cluster, node_port
from redrive.backends.redis import RedisLetters
from redrive.model.arrival import Held
from redrive.model.errors import AnswerLost, BadSettings, StoreUnavailable
from redrive.model.finding import Health
from redrive.model.lease import Claim, Due
from redrive.model.letter import Letter
from redrive.model.settlement import Completed, Settled, Settlement
from redrive.testing import letter
from redrive.testing.kit.samples import LANE
from redrive.testing.servers import Server
from redrive.testing.watcher import until
from tests.engines import OwnEngine
from tests.unit import redis_use
from tests.unit.redis_use import Use

T = TypeVar("T")

pytestmark = pytest.mark.engine("redis-cluster", own=True)


@pytest.fixture
def cluster(own_engine: OwnEngine) -> Cluster:
    made = own_engine("redis-cluster")
    assert isinstance(made, Cluster)
    return made


PAST = datetime(2025, 1, 1, tzinfo=UTC)
PATIENCE_SECONDS = 30.0
PATIENCE = timedelta(seconds=PATIENCE_SECONDS)


def used(url: str, use: Use[T], **options: object) -> T:
    return redis_use.used(redis_use.location(url, timeout=3, **options), use)


def some(count: int, first: int = 0) -> list[Letter]:
    return [letter(str(number), due=PAST) for number in range(first, first + count)]


async def until_held(letters: RedisLetters, batch: list[Letter]) -> list[Held]:
    """As a caller does who tries again while the store is unavailable."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                return await letters.put(batch)
            except StoreUnavailable:
                await asyncio.sleep(0.05)


def test_a_node_that_is_down_makes_the_store_unavailable_and_loses_nothing(cluster: Cluster) -> None:

    async def live(letters: RedisLetters) -> None:
        await letters.put(some(100))
        claimed = await letters.claim(Claim(owner="ann", lease=timedelta(hours=1), limit=40, what=Due(LANE)))
        await asyncio.to_thread(cluster.nodes[1].kill)
        with pytest.raises(AnswerLost, match="part of the batch was done"):
            await letters.put(some(100, first=100))
        with pytest.raises(StoreUnavailable):
            await letters.count()
        await asyncio.to_thread(cluster.start)
        held = await until_held(letters, some(100, first=100))
        assert set(held) == {Held.NEW, Held.DUPLICATE}, "those of the nodes that lived had been held"
        assert await letters.count() == 200
        assert await letters.settle([Settlement.of(one.lease, Completed()) for one in claimed]) == [Settled.DONE] * 40

    used(cluster.url, live)


def test_letters_are_followed_to_where_their_slot_moved(cluster: Cluster) -> None:

    async def live(letters: RedisLetters) -> None:
        await letters.put(some(100))
        shards = [shard.tag for shard in (await letters.server()).shards]
        slots = {slot for tag in shards if _owner(cluster.nodes, slot := key_slot(tag)) is cluster.nodes[0]}
        assert slots
        for slot in slots:
            begin_moving(cluster.nodes, slot, cluster.nodes[0], cluster.nodes[2])
        # A shard whose slot moves refuses what is new to it, whole; the others take theirs.
        with pytest.raises(AnswerLost, match="part of the batch was done"):
            await letters.put(some(100, first=100))
        before = await letters.count()
        assert 100 < before < 200
        for slot in slots:
            move(slot, cluster.nodes[0], cluster.nodes[2])
        # All is at the new place, which is asked for each time until the cluster is told.
        assert await letters.count() == before
        with pytest.raises(StoreUnavailable, match="is moving letters to another node; try again"):
            await letters.find(limit=1000)
        for slot in slots:
            end_moving(cluster.nodes, slot, cluster.nodes[2])
        assert set(await until_held(letters, some(100, first=100))) <= {Held.NEW, Held.DUPLICATE}
        assert len((await letters.find(limit=1000)).letters) == await letters.count() == 200
        claimed = await letters.claim(Claim(owner="ann", lease=timedelta(hours=1), limit=200, what=Due(LANE)))
        assert await letters.settle([Settlement.of(one.lease, Completed()) for one in claimed]) == [Settled.DONE] * 200

    used(cluster.url, live)


def test_a_replica_that_took_over_has_what_was_replicated_and_goes_on(cluster: Cluster, own_engine: OwnEngine) -> None:
    first = cluster.nodes[0]
    enabled = ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000"]
    replica = own_engine("redis", more=enabled, ports=[node_port()])
    ask(first.port, "CLUSTER", "MEET", "127.0.0.1", str(replica.port))
    assert until(lambda: ask(replica.port, "CLUSTER", "REPLICATE", _id(first)).startswith("+OK"), PATIENCE)
    assert until(lambda: "master_link_status:up" in ask(replica.port, "INFO", "replication"), PATIENCE)
    assert until(lambda: all("slave" in ask(node.port, "CLUSTER", "NODES") for node in cluster.nodes), PATIENCE)

    async def live(letters: RedisLetters) -> None:
        await letters.put(some(100))
        claimed = await letters.claim(Claim(owner="ann", lease=timedelta(hours=1), limit=100, what=Due(LANE)))
        assert until(lambda: _offset(first) == _offset(replica), PATIENCE), "replication is asynchronous"
        await asyncio.to_thread(first.kill)
        assert set(await until_held(letters, some(100, first=100))) <= {Held.NEW, Held.DUPLICATE}
        assert await letters.count() == 200
        assert await letters.settle([Settlement.of(one.lease, Completed()) for one in claimed]) == [Settled.DONE] * 100

    used(cluster.url, live)


def test_a_cluster_can_be_opened_by_any_node_and_is_looked_over_whole(cluster: Cluster) -> None:
    used(cluster.url, lambda letters: letters.put(some(30)))
    for node in cluster.nodes:
        assert used(node.url, lambda letters: letters.count()) == 30

    findings = asyncio.run(redis_use.examined(redis_use.location(cluster.url)))
    assert {finding.health for finding in findings} == {Health.OK}
    assert "holds 30 letters in 16 shards" in findings[0].detail
    assert [finding.what for finding in findings[1:]] == ["durability"] * 3 + ["memory"] * 3


def test_a_cluster_is_atomic_only_with_one_shard(cluster: Cluster) -> None:

    async def capable(letters: RedisLetters) -> tuple[bool, bool]:
        before = letters.capabilities.atomic
        await letters.put(some(10))
        return before, letters.capabilities.atomic

    assert used(cluster.url, capable) == (False, False)
    assert used(cluster.url, capable, shards=1, prefix="whole") == (True, True)


def test_a_cluster_has_no_numbered_databases(cluster: Cluster) -> None:
    with pytest.raises(BadSettings, match="has no database 3"):
        used(cluster.url.removesuffix("/0") + "/3", lambda letters: letters.count())


def _owner(nodes: list[Server], slot: int) -> Server:
    return nodes[next(number for number in range(3) if slot < (number + 1) * 16_384 // 3)]


def _id(node: Server) -> str:
    return ask(node.port, "CLUSTER", "MYID").strip()


def _offset(node: Running) -> str:
    """How much of the primary's writes this node has."""
    facts = ask(node.port, "INFO", "replication").split()
    (offset,) = [fact for fact in facts if fact.startswith("master_repl_offset:")]
    return offset


def begin_moving(nodes: list[Server], slot: int, source: Server, target: Server) -> None:
    ask(target.port, "CLUSTER", "SETSLOT", str(slot), "IMPORTING", _id(source))
    ask(source.port, "CLUSTER", "SETSLOT", str(slot), "MIGRATING", _id(target))


def move(slot: int, source: Server, target: Server) -> None:
    with Redis(port=source.port) as client:
        names = client.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 1000)
        client.execute_command("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *names)


def end_moving(nodes: list[Server], slot: int, target: Server) -> None:
    for node in (target, *nodes):
        ask(node.port, "CLUSTER", "SETSLOT", str(slot), "NODE", _id(target))
