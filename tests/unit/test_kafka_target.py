"""A topic as a target: what a record has of a message, in which order and partition it lands, and what a broker does not take."""

from __future__ import annotations

import asyncio
import gc
import inspect
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from redrive import BadSettings, Message, StoreUnavailable, Unsupported
from redrive.backends.kafka import KafkaTransport
from redrive.backends.kafka.line import Landed
from redrive.backends.kafka.record import headers_of
from redrive.model.letter import Origin
from redrive.model.message import outgoing
from redrive.model.operation import Delivered, Refused
from redrive.ports.transport import Transport
from redrive.settings import Settings, load
from redrive.testing.kit.samples import letter
from redrive.testing.servers import free_port
from redrive.wiring import transport
from tests.unit.kafka_use import bodies, deleted, made, read, refused, sent, shared, topics
from tests.unit.shell import eventually
from tests.unit.test_blocking import forked

pytestmark = pytest.mark.engine("kafka")

JSON = Message(body=b'{"order": 17}', content_type="application/json")


def landed(topic: str, partition: int, offset: int) -> Delivered:
    """What is told of a message that the topic has."""
    where = f"{topic}, partition {partition}, offset {offset}"
    return Delivered(result=Landed(topic, partition, offset), where=where)


def test_a_letter_becomes_a_record_with_all_that_it_has(namespace: str) -> None:
    one = letter("1", generation=3, key=b"cust-9", headers=(("team", b"a"), ("team", b"b"), ("raw", b"\x00\xff"), ("größe", b"")))
    (delivery,) = sent(made(shared(), namespace), outgoing(one, b"\x00body"))
    assert delivery == landed(namespace, 0, 0)
    (record,) = read(shared(), namespace)
    assert (record.key(), record.value()) == (b"cust-9", b"\x00body")
    assert record.headers() == [
        ("team", b"a"),
        ("team", b"b"),
        ("raw", b"\x00\xff"),
        ("größe", b""),
        ("redrive-id", str(one.id).encode()),
        ("redrive-generation", b"3"),
        ("redrive-source-id", one.source_id.encode()),
        *([("content-type", one.content_type.encode())] if one.content_type != "application/octet-stream" else []),
        ("redrive-received-at", one.first_received_at.isoformat().encode()),
    ]


def test_a_record_is_as_young_as_its_sending_and_says_how_old_its_message_is(namespace: str) -> None:
    before = datetime.now(UTC)
    old = Message(body=b"x", received_at=datetime(2001, 2, 3, 4, 5, tzinfo=UTC), headers=(("Redrive-Received-At", b"stale"),))
    sent(made(shared(), namespace), old)
    (record,) = read(shared(), namespace)
    assert record.timestamp()[1] >= int(before.timestamp() * 1000)
    assert record.headers() == [("redrive-received-at", b"2001-02-03T04:05:00+00:00")]


def test_a_content_type_of_the_message_s_own_is_left_alone(namespace: str) -> None:
    own = Message(body=b"x", content_type="text/plain", headers=(("Content-Type", b"theirs"),), id="7")
    assert sent(made(shared(), namespace), JSON, own) == [
        landed(namespace, 0, 0),
        landed(namespace, 0, 1),
    ]
    first, second = read(shared(), namespace)
    assert first.headers() == [("content-type", b"application/json")]
    assert second.headers() == [("Content-Type", b"theirs"), ("redrive-source-id", b"7")]


def test_thousands_of_messages_arrive_once_each_and_in_order_within_a_key(namespace: str) -> None:
    url = made(shared(), namespace, partitions=6)
    messages = [Message(body=b"%d" % number, key=b"k%d" % (number % 50)) for number in range(5_000)]

    async def story() -> None:
        target = transport(url)
        for start in range(0, 5_000, 1_000):
            assert all(isinstance(one, Delivered) for one in await target.send(messages[start : start + 1_000]))

    asyncio.run(story())
    places: dict[bytes, set[int | None]] = {}
    seen: dict[bytes, list[int]] = {}
    for record in read(shared(), namespace):
        key = record.key() or b""
        places.setdefault(key, set()).add(record.partition())
        seen.setdefault(key, []).append(int(record.value() or b""))
    assert {len(partitions) for partitions in places.values()} == {1}
    assert len({partition for partitions in places.values() for partition in partitions}) > 1
    assert seen == {b"k%d" % key: list(range(key, 5_000, 50)) for key in range(50)}


def test_a_message_goes_back_to_the_partition_that_it_came_from(namespace: str) -> None:
    url = made(shared(), namespace, partitions=4)
    where = [
        Origin(topic=namespace, partition=3, offset=17),
        Origin(topic=namespace, partition=9, offset=17),  # there were more partitions then
        Origin(topic="elsewhere", partition=3, offset=17),
        Origin(topic=namespace, partition=2),  # a queue of the same name
    ]
    partitions = [one.result.partition for one in sent(url, *(Message(body=b"x", key=b"k", origin=one) for one in where))]  # type: ignore[union-attr]  # all are delivered
    assert partitions[0] == 3
    assert len(set(partitions[1:])) == 1


def test_a_key_goes_where_kafka_s_own_clients_send_it(namespace: str) -> None:
    url = made(shared(), namespace, partitions=100)
    # What Java's partitioner gives for these keys: murmur2, without its sign, modulo 100.
    (delivery,) = sent(url, Message(body=b"x", key=b"21"))
    assert isinstance(delivery, Delivered)
    assert delivery.result.partition == (-973932308 & 0x7FFFFFFF) % 100


def test_a_topic_that_is_not_there_is_refused_and_not_made(namespace: str) -> None:
    delivery = refused(f"kafka://{shared()}/{namespace}")
    assert delivery.failure.message == f"there is no topic {namespace} at {shared()}; create it first, for redrive makes none"
    assert (delivery.failure.type, delivery.was_reached) == ("kafka.UNKNOWN_TOPIC_OR_PART", False)
    assert namespace not in topics(shared())


def test_a_topic_that_was_made_meanwhile_is_found(namespace: str) -> None:
    async def story() -> None:
        target = transport(f"kafka://{shared()}/{namespace}")
        assert isinstance((await target.send([JSON]))[0], Refused)
        made(shared(), namespace)
        assert isinstance((await target.send([JSON]))[0], Delivered)

    asyncio.run(story())


def test_a_topic_that_was_made_anew_is_sent_to_as_before(namespace: str) -> None:
    async def story() -> None:
        target = transport(made(shared(), namespace))
        for number in range(3):
            assert isinstance((await target.send([Message(body=b"%d" % number)]))[0], Delivered)
        deleted(shared(), namespace)
        assert isinstance((await target.send([JSON]))[0], Refused)
        made(shared(), namespace)
        answers = await target.send([Message(body=b"4"), Message(body=b"5")])
        assert [type(one) for one in answers] == [Delivered, Delivered]

    asyncio.run(story())
    assert bodies(shared(), namespace) == [b"4", b"5"]


def test_a_line_ends_with_its_target(namespace: str) -> None:
    target = transport(made(shared(), namespace))
    asyncio.run(target.send([JSON]))
    before = lines()
    assert before
    del target
    gc.collect()
    eventually(lambda: len(lines()) < len(before))


def lines() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "redrive-kafka"]


def test_only_what_is_too_large_for_the_topic_is_refused(namespace: str) -> None:
    url = made(shared(), namespace, max_message_bytes="200000")
    small, large = Message(body=b"s", id="1"), Message(body=b"l" * 300_000, id="2")
    first, middle, last = sent(url, small, large, small)
    assert isinstance(first, Delivered)
    assert isinstance(last, Delivered)
    assert isinstance(middle, Refused)
    assert middle.failure.message == f"{url} takes no message of this size; raise its max.message.bytes, or repair the body"
    assert (middle.failure.type, middle.was_reached) == ("kafka.MSG_SIZE_TOO_LARGE", True)
    assert bodies(shared(), namespace) == [b"s", b"s"]


def test_what_fits_by_itself_is_not_refused_for_those_it_went_with(namespace: str) -> None:
    url = made(shared(), namespace, max_message_bytes="2000")
    messages = [Message(body=b"%d" % number * 500) for number in range(8)]
    answers = sent(url, *messages[:4], Message(body=b"x" * 3_000), *messages[4:])
    assert [type(one) for one in answers] == [Delivered] * 4 + [Refused] + [Delivered] * 4
    assert sorted(bodies(shared(), namespace)) == [message.body for message in messages]


def test_a_large_message_is_taken_where_its_topic_takes_it(namespace: str) -> None:
    url = made(shared(), namespace, max_message_bytes="8000000")
    assert isinstance(sent(url, Message(body=b"l" * 5_000_000))[0], Delivered)


def test_what_kafka_cannot_carry_is_not_sent_and_the_others_are(namespace: str) -> None:
    url = made(shared(), namespace)
    answers = sent(
        url,
        Message(body=b"<object>", content_type="text/x-python-repr"),
        Message(body=b"x", headers=(("a\0b", b"1"),)),
        Message(body=b"x", headers=(("\ud800", b"1"),)),
        JSON,
    )
    assert [isinstance(one, Refused) and not one.was_reached for one in answers] == [True, True, True, False]
    assert bodies(shared(), namespace) == [JSON.body]


def test_nothing_is_sent_when_there_is_nothing_to_send(namespace: str) -> None:
    assert asyncio.run(transport(made(shared(), namespace)).send([])) == []


def test_a_broker_that_nobody_can_reach_is_told_in_one_sentence_and_nobody_waits_for_it_on_the_loop() -> None:
    port = free_port()

    async def story() -> None:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.01)
                ticks += 1

        ticking = asyncio.create_task(tick())
        with pytest.raises(StoreUnavailable) as raised:
            await transport(f"kafka://127.0.0.1:{port}/orders?timeout=3").send([JSON])
        assert str(raised.value) == f"no Kafka broker can be reached at 127.0.0.1:{port}: Connection refused; nothing was sent"
        # Of three hundred, where a loop that waits has none.
        assert ticks > 30
        ticking.cancel()

    asyncio.run(story())


def test_who_is_cancelled_does_not_wait() -> None:
    async def story() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await transport(f"kafka://127.0.0.1:{free_port()}/orders").send([JSON])

    started = datetime.now(UTC)
    asyncio.run(story())
    assert datetime.now(UTC) - started < timedelta(seconds=5)


def test_a_login_that_is_not_taken_is_told_without_it() -> None:
    kafka = {"brokers": shared(), "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "annabel"}
    with pytest.raises(BadSettings) as raised:
        sent("kafka:orders", kafka=kafka | {"sasl.password": "p4ssword"})
    sentence = str(raised.value)
    assert sentence.startswith(f"no Kafka broker at {shared()} lets redrive in: ")
    assert "mend [kafka] in the settings; nothing was sent" in sentence
    assert "annabel" not in sentence
    assert "p4ssword" not in sentence


def test_several_sends_at_once_share_a_line(namespace: str) -> None:
    url = made(shared(), namespace, partitions=3)

    async def story() -> None:
        target = transport(url)
        batches = [[Message(body=b"%d-%d" % (batch, number)) for number in range(100)] for batch in range(20)]
        answers = await asyncio.gather(*map(target.send, batches))
        assert all(isinstance(one, Delivered) for answer in answers for one in answer)

    asyncio.run(story())
    assert len(set(bodies(shared(), namespace))) == 2_000


def test_a_target_serves_one_event_loop_after_another(namespace: str) -> None:
    target = transport(made(shared(), namespace))
    for offset in range(3):
        assert asyncio.run(target.send([JSON])) == [landed(namespace, 0, offset)]


def test_a_forked_child_has_a_line_of_its_own(namespace: str) -> None:
    target = transport(made(shared(), namespace))
    assert isinstance(asyncio.run(target.send([JSON]))[0], Delivered)
    assert forked(lambda: asyncio.run(target.send([JSON]))[0].result.offset) == "1"  # type: ignore[union-attr]  # it is delivered
    assert asyncio.run(target.send([JSON])) == [landed(namespace, 0, 2)]


def test_a_topic_is_looked_into_oldest_first_and_nothing_is_changed(namespace: str) -> None:
    url = made(shared(), namespace, partitions=3)
    at = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=timezone(timedelta(hours=2)))

    async def story() -> None:
        target = transport(url)
        for number in range(7):
            message = Message(
                body=b"%d" % number, key=b"k%d" % number, content_type="text/plain", received_at=at, headers=(("n", b"1"),)
            )
            await target.send([message])
        for _ in range(2):
            seen = await target.peek(limit=4)
            assert [one.body for one in seen] == [b"0", b"1", b"2", b"3"]
        first = seen[0]
        assert (first.key, first.content_type, first.received_at) == (b"k0", "text/plain", at)
        assert (first.origin.topic, first.origin.offset) == (namespace, 0)
        assert first.id == f"{namespace}-{first.origin.partition}-0"
        assert dict(first.headers)["n"] == b"1"
        assert len(await target.peek(limit=100)) == 7
        assert await target.peek(limit=0) == []

    asyncio.run(story())
    assert len(read(shared(), namespace)) == 7


def test_an_empty_topic_and_one_that_is_not_there_are_told_apart(namespace: str) -> None:
    assert asyncio.run(transport(made(shared(), namespace)).peek()) == []
    with pytest.raises(BadSettings, match=f"there is no topic {namespace}-not at"):
        asyncio.run(transport(f"kafka://{shared()}/{namespace}-not").peek())


def test_what_was_put_there_by_others_is_looked_at_as_it_is(namespace: str) -> None:
    from confluent_kafka import Producer

    url = made(shared(), namespace)
    producer = Producer({"bootstrap.servers": shared(), "log_level": 0})
    producer.produce(namespace, value=None, key=None, headers=[("empty", None), ("redrive-received-at", b"soon")])
    assert producer.flush(30) == 0
    (message,) = asyncio.run(transport(url).peek())
    assert (message.body, message.key, message.headers[0]) == (b"", None, ("empty", b""))
    assert message.received_at is not None


def test_it_has_every_verb_of_its_port_with_the_same_signature() -> None:
    verbs = {name: verb for name, verb in vars(Transport).items() if inspect.iscoroutinefunction(verb)}
    assert verbs.keys() == {"send", "receive", "settle", "peek"}
    for name, verb in verbs.items():
        assert inspect.signature(getattr(KafkaTransport, name)).parameters == inspect.signature(verb).parameters, name


def test_a_topic_cannot_be_received_from() -> None:
    target: Transport = transport("kafka://127.0.0.1/orders")
    assert target.name == "kafka://127.0.0.1/orders"
    for verb in (target.receive(), target.settle([], done=True)):
        with pytest.raises(Unsupported, match="a topic can be sent to and looked into, but not"):
            asyncio.run(verb)


BROKERS = {"brokers": "127.0.0.1:9092"}


@pytest.mark.parametrize(
    ("url", "kafka", "sentence"),
    [
        ("kafka:", BROKERS, "'' is no topic: its name has 1 to 249 letters"),
        ("kafka:a/b", BROKERS, "'a/b' is no topic"),
        ("kafka:..", BROKERS, "'..' is no topic"),
        ("kafka://h:9092", BROKERS, "'' is no topic"),
        ("kafka:orders", {}, 'no brokers are known for kafka:orders; write brokers = "host:9092" under [kafka]'),
        ("kafka:///orders", BROKERS, "no brokers are known"),
        ("kafka://a b/orders", {}, "'a b' does not name brokers"),
        ("kafka://ann:s3cret@h/orders", {}, "a topic's URL has no login; name brokers and login under [kafka]"),
        ("kafka:orders?time=5", BROKERS, "a topic's URL has no option 'time'; did you mean timeout?"),
        ("kafka:orders?timeout=soon", BROKERS, "timeout=soon must be a number of seconds"),
        ("kafka:orders", BROKERS | {"acks": "0"}, "acks under [kafka] is not free to choose"),
        ("kafak:orders", BROKERS, "did you mean kafka:?"),
    ],
)
def test_a_url_that_is_none_gets_one_clear_sentence(url: str, kafka: dict[str, str], sentence: str) -> None:
    with pytest.raises(BadSettings) as raised:
        transport(url, Settings(kafka=kafka))
    assert sentence in str(raised.value)
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"securty.protocol": "SSL"}, 'cannot be used: No such configuration property: "securty.protocol"'),
        ({"sasl.oauthbearer.config": "s3cret", "security.protocol": "tea"}, 'Invalid value "tea" for configuration property'),
        ({"ssl.key.pem": "s3cret", "security.protocol": "SSL"}, "[kafka] in the settings cannot be used"),
        ({"stats_cb": "print"}, "'stats_cb' under [kafka] is no option of librdkafka"),
        ({"default.topic.config": "x"}, "'default.topic.config' under [kafka] is no option of librdkafka"),
        ({"\ud800": "x"}, r"'\ud800' under [kafka] is no option of librdkafka"),
        ({"sasl.password": "s3cret\0"}, "the value of sasl.password under [kafka] is no text"),
        ({"client.id": "\ud800"}, "the value of client.id under [kafka] is no text"),
    ],
)
def test_options_that_librdkafka_does_not_take_are_told_without_secrets(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(BadSettings) as raised:
        sent("kafka:orders", kafka=BROKERS | options)
    assert sentence in str(raised.value)
    assert "s3cret" not in str(raised.value)


def test_a_topic_on_other_brokers_gets_none_of_the_login(namespace: str) -> None:
    kafka = {"brokers": "127.0.0.1:9", "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    (delivery,) = sent(made(shared(), namespace), kafka=kafka | {"sasl.username": "ann", "sasl.password": "p4ssword"})
    assert isinstance(delivery, Delivered)


def test_brokers_and_options_come_from_the_settings(tmp_path: Path) -> None:
    (tmp_path / "redrive.toml").write_text(
        '[kafka]\nbrokers = "a:9092,b:9092"\nsecurity.protocol = "SASL_SSL"\n"sasl.password" = "p4ss word"\nsocket.keepalive.enable = true\n'
    )
    loaded = load(environ={}, folder=tmp_path)
    assert loaded.settings.kafka == {
        "brokers": "a:9092,b:9092",
        "security.protocol": "SASL_SSL",
        "sasl.password": "p4ss word",
        "socket.keepalive.enable": "true",
    }
    shown = next(entry.value for entry in loaded.entries() if entry.name == "kafka")
    assert shown == "brokers=a:9092,b:9092 security.protocol=SASL_SSL sasl.password=*** socket.keepalive.enable=true"
    assert "p4ss" not in repr(loaded.settings)
    (tmp_path / "secret").write_text("brokers=c:9092 sasl.password=hush\n")
    assert load(environ={"REDRIVE_KAFKA_FILE": "secret"}, folder=tmp_path).settings.kafka == {
        "brokers": "c:9092",
        "sasl.password": "hush",
    }
    with pytest.raises(BadSettings, match=r"kafka \(environment REDRIVE_KAFKA\) must be brokers") as raised:
        load(environ={"REDRIVE_KAFKA": "brokers=c:9092 hush"}, folder=tmp_path)
    assert "hush" not in str(raised.value)


def test_headers_of_a_letter_can_be_read_back() -> None:
    one = letter("1", generation=2)
    made = dict(headers_of(outgoing(one, b"x")))
    assert made["redrive-id"] == str(one.id).encode()
    assert Message(body=b"x", headers=tuple(made.items())).generation == 2  # type: ignore[arg-type]  # all are bytes


def test_nothing_of_kafka_is_loaded_until_a_topic_is_used() -> None:
    program = """
import sys, redrive, redrive.wiring
assert "confluent_kafka" not in sys.modules
sys.modules["confluent_kafka"] = None
try:
    redrive.wiring.transport("kafka://127.0.0.1/orders")
except redrive.MissingExtra as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "kafka: needs confluent-kafka; install it with: pip install 'redrive[kafka]'"
