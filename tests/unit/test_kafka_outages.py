"""A topic whose broker dies, falls silent, forbids or forgets: nothing is lost, nothing is guessed, and nothing is there twice."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from dev.engines.kafka import kafka
from redrive import BadSettings, Message, StoreUnavailable
from redrive.model.operation import Delivered, Delivery
from redrive.ports.transport import Transport
from redrive.testing.proxy import Proxy
from redrive.testing.servers import HOST, Server
from redrive.wiring import transport
from tests.unit.kafka_use import bodies, brokers, made, read, refused, sent, topics, unknown
from tests.unit.shell import eventually
from tests.unit.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.engine("kafka", own=True)

MANY = [Message(body=b"%d" % number + b"." * 50_000) for number in range(400)]
"""So many that something can happen while they are on their way."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with kafka() as running:
        yield running


@pytest.fixture(scope="module")
def proxy(server: Server) -> Iterator[Proxy]:
    """All that is said to the broker goes through this."""
    with Proxy(HOST, server.place.port) as between:
        settings = server.place.folder / "server.properties"
        lines = [line for line in settings.read_text().splitlines() if not line.startswith("advertised.listeners=")]
        settings.write_text("\n".join([*lines, f"advertised.listeners=PLAINTEXT://{HOST}:{between.port}\n"]))
        server.stop()
        server.start()
        yield between


async def begun(target: Transport, proxy: Proxy) -> asyncio.Task[list[Delivery]]:
    """A sending of all of them, some of which are on their way."""
    before = proxy.counts.request_bytes
    sending = asyncio.create_task(target.send(MANY))

    async def is_under_way() -> bool:
        return proxy.counts.request_bytes > before + 1_000_000

    await until(is_under_way)
    return sending


async def reached(target: Transport, messages: Sequence[Message]) -> list[Delivery]:
    """The answers of a broker that is back, for which its client has to look again; until it has, nothing was sent."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            with contextlib.suppress(StoreUnavailable):
                return await target.send(messages)


def is_there_once(where: str, topic: str) -> bool:
    return Counter(bodies(where, topic)) == Counter(message.body for message in MANY)


def test_answers_that_are_lost_are_unknown_and_a_line_that_is_cut_is_mended(proxy: Proxy, namespace: str) -> None:
    where = f"{HOST}:{proxy.port}"
    cut, silent = made(where, f"{namespace}-cut"), made(where, f"{namespace}-silent")

    async def story() -> None:
        sending = await begun(transport(cut), proxy)
        proxy.cut()
        assert Counter(map(type, await sending)) == {Delivered: len(MANY)}

        target = transport(f"{silent}?timeout=3")
        await target.send([Message(body=b"first")])
        sending = await begun(target, proxy)
        proxy.swallow_answers()
        answers = await sending
        lost = [unknown(one) for one in answers if not isinstance(one, Delivered)]
        assert set(lost) == {f"{silent}?timeout=3 did not acknowledge it within 3 s; it may have arrived"}
        with pytest.raises(StoreUnavailable, match=r"no Kafka broker can be reached at .*; nothing was sent"):
            await target.send([Message(body=b"never")])
        proxy.pass_answers()
        proxy.cut()
        assert isinstance((await reached(target, [Message(body=b"last")]))[0], Delivered)

    asyncio.run(story())
    assert is_there_once(where, f"{namespace}-cut")
    seen = Counter(bodies(where, f"{namespace}-silent"))
    assert set(seen.values()) == {1}
    assert b"never" not in seen
    assert seen[b"first"] == seen[b"last"] == 1


def test_a_broker_that_is_killed_and_comes_back_in_time_has_everything_once(server: Server, proxy: Proxy, namespace: str) -> None:
    where = f"{HOST}:{proxy.port}"
    url = made(where, namespace)

    async def story() -> None:
        target = transport(f"{url}?timeout=120")
        sending = await begun(target, proxy)
        server.kill()
        assert not sending.done()
        await asyncio.to_thread(server.start)
        assert Counter(map(type, await sending)) == {Delivered: len(MANY)}

    asyncio.run(story())
    assert is_there_once(where, namespace)


def test_a_broker_that_is_killed_and_stays_away_leaves_unknown_what_was_on_its_way(
    server: Server, proxy: Proxy, namespace: str
) -> None:
    where = f"{HOST}:{proxy.port}"
    url = made(where, namespace)
    answers: list[Delivery] = []

    async def story() -> None:
        target = transport(f"{url}?timeout=3")
        sending = await begun(target, proxy)
        server.kill()
        answers.extend(await sending)
        with pytest.raises(StoreUnavailable, match="nothing was sent"):
            await target.send(MANY[:1])
        await asyncio.to_thread(server.start)
        lost = [message for message, answer in zip(MANY, answers, strict=True) if not isinstance(answer, Delivered)]
        assert lost
        assert all("it may have arrived" in unknown(one) for one in answers if not isinstance(one, Delivered))
        for start in range(0, len(lost), 20):
            some = lost[start : start + 20]
            assert Counter(map(type, await reached(target, some))) == {Delivered: len(some)}

    asyncio.run(story())
    assert set(bodies(where, namespace)) == {message.body for message in MANY}


@pytest.fixture(scope="module")
def strict() -> Iterator[str]:
    """A broker that makes topics by itself, asks who may do what, and throws away at once what is too old."""
    settings = {
        "auto.create.topics.enable": "true",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "log.retention.check.interval.ms": "100",
        "log.initial.task.delay.ms": "100",
    }
    with kafka(settings=settings) as running:
        yield brokers(running.url)


def test_no_topic_is_made_by_sending_even_where_brokers_make_them(strict: str, namespace: str) -> None:
    url = f"kafka://{strict}/{namespace}"
    assert "there is no topic" in refused(url).failure.message
    with pytest.raises(BadSettings, match="there is no topic"):
        asyncio.run(transport(url).peek())
    assert namespace not in topics(strict)


def denied(where: str, topic: str, operation: AclOperation) -> None:
    """Forbid it to everybody, though the topic may be seen."""
    admin = AdminClient({"bootstrap.servers": where, "log_level": 0})
    rules = [(AclOperation.DESCRIBE, AclPermissionType.ALLOW), (operation, AclPermissionType.DENY)]
    bindings = [AclBinding(ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:*", "*", act, may) for act, may in rules]
    for done in admin.create_acls(bindings).values():
        done.result(30)


def test_a_topic_that_must_not_be_written_to_is_refused_and_the_message_is_not_blamed(strict: str, namespace: str) -> None:
    url = made(strict, namespace)
    denied(strict, namespace, AclOperation.WRITE)
    delivery = eventually(lambda: next((one for one in sent(url) if not isinstance(one, Delivered)), None))
    assert delivery.failure.message == f"{url} may not be used with this login: Topic authorization failed"
    assert (delivery.failure.type, delivery.was_reached) == ("kafka.TOPIC_AUTHORIZATION_FAILED", False)


def test_a_topic_that_must_not_be_read_is_not_looked_into(strict: str, namespace: str) -> None:
    url = made(strict, namespace)
    denied(strict, namespace, AclOperation.READ)

    def sentence() -> str:
        try:
            asyncio.run(transport(url).peek())
        except BadSettings as error:
            return str(error)
        return ""

    assert eventually(sentence) == f"{url} may not be used with this login: Topic authorization failed"


def test_a_letter_that_is_older_than_its_topic_keeps_anything_is_not_thrown_away(strict: str, namespace: str) -> None:
    """A record that says it is a year old is gone at once; so redrive's say when they were sent."""
    from confluent_kafka import Producer

    old = datetime.now(UTC) - timedelta(days=365)
    url = made(strict, namespace, retention_ms="3600000")
    made(strict, f"{namespace}-old", retention_ms="3600000")
    assert isinstance(sent(url, Message(body=b"kept", received_at=old))[0], Delivered)
    producer = Producer({"bootstrap.servers": strict, "log_level": 0})
    producer.produce(f"{namespace}-old", b"thrown away", timestamp=int(old.timestamp() * 1000))
    assert producer.flush(30) == 0
    eventually(lambda: not read(strict, f"{namespace}-old"))
    assert bodies(strict, namespace) == [b"kept"]
