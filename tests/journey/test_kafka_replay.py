"""Letters go back to topics: by the command line, through the whole operation, past a dead broker and a killed process."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter, defaultdict
from pathlib import Path

import pytest

import redrive
from redrive import EVERYTHING, Message, Status, Tempo, wiring
from redrive.backends.kafka.record import message_of
from redrive.model.amendment import Amendment
from redrive.model.operation import Entry
from redrive.model.status import Act
from redrive.settings import Settings
from tests.engines import OwnEngine
from tests.unit.kafka_use import brokers, headers, made, read, shared
from tests.unit.shell import PATIENCE, Shell, eventually
from tests.unit.targets import captured

BAD = ValueError("bad")
LETTERS = 150


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def settled(shell: Shell, where: str) -> None:
    """Settings as an operator writes them."""
    (shell.folder / "redrive.toml").write_text(
        f'lease_seconds = 2\n\n[kafka]\nbrokers = "{where}"\nsocket.keepalive.enable = true\n'
    )


def filled(shell: Shell, number: int, *, source: str = "orders") -> None:
    with shell.store() as dlq:
        for id in range(number):
            dlq.capture(Message(body=b"%d" % id, id=str(id), key=b"k%d" % (id % 7)), BAD, source=source)


def ids_by_body(where: str, topic: str) -> dict[bytes, set[bytes]]:
    """Under which names each body arrived."""
    found: dict[bytes, set[bytes]] = defaultdict(set)
    for record in read(where, topic):
        found[record.value() or b""].add(headers(record)["redrive-id"])
    return found


def are_all_there(shell: Shell, where: str, topic: str) -> bool:
    """Has every letter arrived, and under its own name alone?"""
    expected = {letter["source_id"].encode(): {letter["id"].encode()} for letter in shell.letters()}
    return ids_by_body(where, topic) == expected


@pytest.mark.engine("kafka")
def test_letters_go_to_a_topic_and_its_broker_s_word_is_in_the_ledger(shell: Shell, namespace: str) -> None:
    made(shared(), namespace, partitions=3)
    settled(shell, shared())
    filled(shell, 3)
    target = f"kafka:{namespace}"
    said = shell("replay", "source:orders", "--to", target, "--yes").out.splitlines()
    assert said[0] == "3 letters of 1 failure:"
    assert said[2].split() == ["orders", "3", target]
    assert said[-1] == "3 sent, outcome open"
    (operation,) = shell("ops", "ls", "--json").json["operations"]
    assert (operation["target"], operation["status"], operation["entries"]) == (target, "finished", {"sent": 3})
    assert {letter["status"] for letter in shell.letters()} == {"redriven"}
    assert are_all_there(shell, shared(), namespace)
    told = {row["detail"] for row in shell("ops", "show", operation["id"], "--json").json["letters"]}
    records = read(shared(), namespace)
    assert told == {f"{namespace}, partition {one.partition()}, offset {one.offset()}" for one in records}


@pytest.mark.engine("kafka")
def test_a_letter_of_a_topic_goes_back_there_and_is_done_when_its_consumer_says_so(shell: Shell, namespace: str) -> None:
    made(shared(), namespace, partitions=3)
    settled(shell, shared())
    filled(shell, 2, source=f"kafka:{namespace}")
    assert shell("replay", "all", "--yes").out.endswith("2 sent, outcome open\n")
    worked, failed = [message_of(record) for record in read(shared(), namespace)]
    with shell.store() as dlq:
        assert dlq.confirm([worked]) == 1
        again = dlq.capture(failed, KeyError("price"), source=f"kafka:{namespace}").letter
        assert (again.id, again.generation, again.status) == (failed.redrive_id, 2, Status.PENDING)
        assert dlq.letters.count() == 2
    (operation,) = shell("ops", "ls", "--json").json["operations"]
    outcomes = shell("ops", "show", operation["id"], "--json").json["operation"]["entries"]
    assert outcomes == {"confirmed": 1, "failed": 1}
    assert shell("replay", "all", "--yes").out.endswith("1 sent, outcome open\n")
    last = message_of(read(shared(), namespace)[-1])
    assert {message_of(record).generation for record in read(shared(), namespace)} == {1, 2}
    assert last.origin.topic == namespace


@pytest.mark.engine("kafka")
def test_a_topic_may_be_a_letter_s_own_target_or_that_of_a_source(shell: Shell, namespace: str) -> None:
    for topic in (f"{namespace}-own", f"{namespace}-of-source"):
        made(shared(), topic)
    settled(shell, shared())
    filled(shell, 2)
    own, other = shell.letters()
    shell("edit", own["id"], "--target", f"kafka:{namespace}-own", "--yes")
    shell("replay", "all", "--yes", REDRIVE_TARGETS=f"orders=kafka:{namespace}-of-source")
    assert ids_by_body(shared(), f"{namespace}-own") == {b"0": {own["id"].encode()}}
    assert ids_by_body(shared(), f"{namespace}-of-source") == {b"1": {other["id"].encode()}}


@pytest.mark.engine("kafka")
def test_what_the_broker_does_not_take_is_told_and_the_letter_is_there(shell: Shell, namespace: str) -> None:
    settled(shell, shared())
    filled(shell, 1)
    before = shell.letters()
    missing = shell("replay", "all", "--to", f"kafka:{namespace}", "--yes", status=1).out
    assert f"there is no topic {namespace} at {shared()}; create it first" in " ".join(missing.split())
    assert [(letter["status"], len(letter["history"])) for letter in shell.letters()] == [("pending", len(before[0]["history"]))]
    made(shared(), namespace, max_message_bytes="1000")
    with shell.store() as dlq:
        dlq.capture(Message(body=b"l" * 5_000, id="large"), BAD, source="orders")
    report = shell("replay", "all", "--to", f"kafka:{namespace}", "--yes", "--stop-on-refail", "never", "--json", status=1).json
    assert report["outcomes"] == {"sent": 1, "failed": 1}
    (large,) = [letter for letter in shell.letters() if letter["source_id"] == "large"]
    assert (large["status"], large["history"][-1]["error"]) == ("pending", "kafka.MSG_SIZE_TOO_LARGE")


@pytest.mark.engine("kafka")
def test_brokers_that_are_not_named_or_not_there_are_told_in_one_sentence(shell: Shell) -> None:
    filled(shell, 1)
    assert "no brokers are known for kafka:orders" in shell.refused("replay", "all", "--to", "kafka:orders", "--yes")
    away = shell("replay", "all", "--to", "kafka://127.0.0.1:9/orders?timeout=1", "--yes", status=1).out
    assert "no Kafka broker can be reached at 127.0.0.1:9: Connection refused; nothing was sent" in " ".join(away.split())
    assert [letter["status"] for letter in shell.letters()] == ["pending"]
    said = shell("config", REDRIVE_KAFKA="brokers=k:9092 sasl.username=ann sasl.password=p4ssword").out
    assert "sasl.password=***" in said
    assert "p4ssword" not in said


@pytest.mark.engine("kafka")
def test_a_process_that_is_killed_in_the_middle_is_gone_on_with_and_loses_nothing(shell: Shell, namespace: str) -> None:
    made(shared(), namespace, partitions=3)
    settled(shell, shared())
    filled(shell, LETTERS)
    running = shell.start("replay", "all", "--to", f"kafka:{namespace}", "--yes", "--batch", "10", "--rate", "40/s")
    try:
        eventually(lambda: len(read(shared(), namespace)) >= 20)
    finally:
        os.killpg(running.pid, signal.SIGKILL)
        running.communicate(timeout=PATIENCE)
    arrived = len(read(shared(), namespace))
    assert arrived < LETTERS
    (operation,) = shell("ops", "ls", "--json").json["operations"]
    shell("ops", "resume", operation["id"])
    (operation,) = shell("ops", "ls", "--json").json["operations"]
    assert (operation["status"], operation["entries"]) == ("finished", {"sent": LETTERS})
    assert are_all_there(shell, shared(), namespace)


@pytest.mark.engine("kafka", own=True)
def test_a_broker_that_stops_in_the_middle_pauses_the_operation_which_is_gone_on_with_later(
    shell: Shell, own_engine: OwnEngine, namespace: str
) -> None:
    broker = own_engine("kafka")
    where = brokers(broker.url)
    made(where, namespace, partitions=3)
    settled(shell, where)
    filled(shell, LETTERS)
    target = f"kafka:{namespace}?timeout=2"
    running = shell.start("replay", "all", "--to", target, "--yes", "--batch", "10", "--rate", "40/s", "--json")
    eventually(lambda: len(read(where, namespace)) >= 20)
    broker.kill()
    out, err = running.communicate(timeout=PATIENCE)
    assert running.returncode == 1, err
    assert f"no Kafka broker can be reached at {where}" in out
    open = Counter(letter["status"] for letter in shell.letters())
    assert set(open) <= {"pending", "redriven"}
    assert open["pending"] > 0
    broker.start()
    (operation,) = shell("ops", "ls", "--json").json["operations"]
    assert operation["status"] == "paused"
    shell("ops", "resume", operation["id"])
    with shell.store() as dlq:
        rows = list(dlq.operations.ledger(dlq.operations.list()[0].id))
        assert {row.entry for row in rows} <= {Entry.SENT, Entry.UNKNOWN}
        # Whether what is unknown goes once more is for a person to say.
        lost = [
            Amendment(id=row.letter, generation=row.generation, act=Act.REQUEUE) for row in rows if row.entry is Entry.UNKNOWN
        ]
        dlq.letters.amend(lost)
    if lost:
        shell("replay", "all", "--to", target, "--yes")
    assert are_all_there(shell, where, namespace)


@pytest.mark.engine("kafka")
def test_thousands_of_letters_go_to_a_topic_in_one_operation(tmp_path: Path, namespace: str) -> None:
    made(shared(), namespace, partitions=6)
    settings = Settings(store=f"sqlite:{tmp_path}/redrive.db", kafka={"brokers": shared()}, telemetry=False)

    async def story() -> None:
        async with wiring.connect(settings) as dlq:
            many = [Message(body=b"%d" % number, id=str(number), key=b"k%d" % (number % 100)) for number in range(3_000)]
            await asyncio.gather(*(captured(dlq, message) for message in many))
            report = await dlq.redrive(f"kafka:{namespace}", query=EVERYTHING, tempo=Tempo(batch=1_000))
            assert (report.entries, report.stopped) == ({Entry.SENT: 3_000}, "")
            assert await dlq.letters.count() == 3_000

    asyncio.run(story())
    found = ids_by_body(shared(), namespace)
    assert (len(found), {len(names) for names in found.values()}) == (3_000, {1})
    assert len(read(shared(), namespace)) == 3_000


@pytest.mark.engine("kafka")
def test_letters_of_one_key_keep_their_order_where_that_is_asked_for(tmp_path: Path, namespace: str) -> None:
    made(shared(), namespace, partitions=3)

    async def story() -> None:
        async with redrive.open(f"sqlite:{tmp_path}/redrive.db") as dlq:
            for number in range(40):
                await captured(dlq, Message(body=b"%d" % number, id=str(number), key=b"k%d" % (number % 4)))
            tempo = Tempo(keeps_order=True, batch=20)
            report = await dlq.redrive(f"kafka://{shared()}/{namespace}", query=EVERYTHING, tempo=tempo)
            assert report.entries == {Entry.SENT: 40}

    asyncio.run(story())
    seen: dict[bytes, list[int]] = defaultdict(list)
    for record in read(shared(), namespace):
        seen[record.key() or b""].append(int(record.value() or b""))
    assert seen == {b"k%d" % key: list(range(key, 40, 4)) for key in range(4)}
