"""What the queues' HTTP interface answers, to the letter: the form of what is done, listed and counted."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from datetime import timedelta

import pytest

from redrive.queues.verbs import item
from redrive.queues.wire import messages as m
from redrive.queues.wire import proto, protojson
from tests.unit.queue_use import SOON, Use
from tests.unit.queue_wire import (
    CLEAR,
    COMPLETE,
    CREATE,
    DELETE,
    ENCODINGS,
    IMPORT,
    INFO,
    ITEMS,
    JSON,
    LEASE,
    LIST,
    PRODUCE,
    PROTOBUF,
    RELOAD,
    SCHEDULED,
    STATS,
    UPDATE,
    ask,
    complete,
    create,
    lease,
    produce,
    say,
    tried,
)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=["json", "protobuf"])
def test_what_is_done_without_more_to_say_is_code_200(encoding: str) -> None:
    async def trial(use: Use) -> None:
        (stored,) = (await use.served.lease("p1", 1, client="worker", timeout=SOON)).items
        for path, message in (
            (CREATE, create()),
            (UPDATE, m.QueueInfo(queue_name="new", lease_timeout="2m")),
            (PRODUCE, produce(queue_name="new")),
            (COMPLETE, complete(ids=[stored.id])),
            (CLEAR, m.Clear("new", queue=True)),
            (RELOAD, m.Named("new")),
            (DELETE, m.Delete("new")),
        ):
            heard = await say(use.endpoint, path, message, encoding)
            assert heard.status == 200
            assert heard.body == (b'{"code":200}' if encoding == JSON else b"\x08\xc8\x01"), path

    tried(trial)


@pytest.mark.parametrize("path", [LEASE, COMPLETE])
def test_a_quarter_of_an_hour_is_not_too_long_to_lease_and_complete(path: str) -> None:
    async def trial(use: Use) -> None:
        if path == COMPLETE:
            (stored,) = (await use.served.lease("p1", 1, client="worker", timeout=SOON)).items
            message: m.Message = complete(ids=[stored.id], request_timeout="15m")
        else:
            message = lease(request_timeout="15m")
        assert (await say(use.endpoint, path, message, JSON)).status == 200

    tried(trial)


@pytest.mark.parametrize("text", ["10.001ms", "10001µs", "14m59.999999999s", "0.5m", "1m0s0s0s0s0s0s0s", "+1s"])
def test_a_request_timeout_may_be_written_as_go_writes_it(text: str) -> None:
    async def trial(use: Use) -> None:
        assert (await say(use.endpoint, PRODUCE, produce(request_timeout=text), JSON)).status == 200

    tried(trial)


def test_names_are_in_camel_case_or_snake_case_and_come_back_in_snake_case() -> None:
    async def trial(use: Use) -> None:
        body = (
            b'{"queueName":"new","leaseTimeout":"90s","expireTimeout":"1440m","requestedPartitions":2,'
            b'"maxAttempts":"3","deadQueue":"dead","reference":null}'
        )
        assert (await ask(use.endpoint, CREATE, body)).body == b'{"code":200}'
        told = (await ask(use.endpoint, INFO, b'{"queue_name":"new"}')).told
        instants = {told.pop("created_at"), told.pop("updated_at")}
        assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3}|\.\d{6}|\.\d{9})?Z", instant) for instant in instants)
        assert told == {
            "queue_name": "new",
            "lease_timeout": "1m30s",
            "expire_timeout": "24h0m0s",
            "requested_partitions": 2,
            "max_attempts": 3,
            "dead_queue": "dead",
        }, "durations are normalised, and what is nothing is left out, the namespace too"
        listed = (await ask(use.endpoint, LIST, b'{"pivot":"new"}')).told
        assert [queue["queue_name"] for queue in listed["items"]] == ["new", "p1"]
        assert not any("namespace" in queue or "partitions" in queue for queue in listed["items"])

    tried(trial)


def test_bytes_are_base64_and_win_over_text() -> None:
    async def trial(use: Use) -> None:
        sent = [
            {"bytes": b64encode(b"\x00\xfe\xff").decode(), "utf8": "loses", "kind": "k", "encoding": "e", "reference": "r"},
            {"utf8": "naïve"},
            {"bytes": "-_8"},
            {},
        ]
        body = json.dumps({"queueName": "empty", "requestTimeout": "1m", "items": sent}).encode()
        assert (await ask(use.endpoint, PRODUCE, body)).status == 200
        told = (await say(use.endpoint, LEASE, lease(queue_name="empty", batch_size=10), JSON)).told
        items = told.pop("items")
        assert told == {"queue_name": "empty"}, "partition 0 is left out"
        ids = [one.pop("id") for one in items]
        assert ids == sorted(ids)
        assert all(len(id) == 27 for id in ids)
        common = {"attempts": 1, "lease_deadline": "2026-03-01T12:01:00Z"}
        assert items == [
            {"bytes": "AP7/", "kind": "k", "encoding": "e", "reference": "r", **common},
            {"bytes": b64encode("naïve".encode()).decode(), **common},
            {"bytes": "+/8=", **common},
            common,
        ]

    tried(trial)


def test_instants_are_rfc_3339_in_any_zone_and_come_back_in_utc() -> None:
    async def trial(use: Use) -> None:
        body = (
            b'{"queue_name":"empty","request_timeout":"1m","items":[{"enqueue_at":"2026-03-01T15:00:00.5+02:00"},'
            b'{"enqueueAt":"2026-03-01T14:00:00.123456789Z"}]}'
        )
        assert (await ask(use.endpoint, PRODUCE, body)).status == 200
        told = (await ask(use.endpoint, SCHEDULED, b'{"queue_name":"empty"}')).told
        assert sorted(one["enqueue_at"] for one in told["items"]) == ["2026-03-01T13:00:00.500Z", "2026-03-01T14:00:00.123456Z"]
        assert (await ask(use.endpoint, ITEMS, b'{"queue_name":"empty"}')).body == b"{}"

    tried(trial)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=["json", "protobuf"])
def test_stats_have_logical_queues_and_nothing_that_the_released_client_does_not_know(encoding: str) -> None:
    async def trial(use: Use) -> None:
        later = use.clock.now() + timedelta(minutes=5)
        await use.served.produce("p1", [item(b"later", at=later), item(b"more")], timeout=SOON)
        use.clock.advance(timedelta(seconds=90))
        await use.served.lease("p1", 1, client="worker", timeout=SOON)
        heard = await say(use.endpoint, STATS, m.Named("p1"), encoding)
        if encoding == PROTOBUF:
            (logical,) = proto.read(m.Stats, heard.body).logical_queues
            (partition,) = logical.partitions
            assert (partition.total, partition.total_leased, partition.scheduled) == (2, 1, 0)
            return
        told = heard.told
        assert set(told) == {"queue_name", "logicalQueues"}
        ((logical,),) = [told["logicalQueues"]]
        assert set(logical) <= {"produce_waiting", "lease_waiting", "complete_waiting", "in_flight", "partitions"}
        (partition,) = logical["partitions"]
        ages = {partition.pop("average_age"), partition.pop("average_leased_age")}
        assert partition == {"total": 2, "total_leased": 1}
        assert "1m30s" in ages

    tried(trial)


def test_lists_of_nothing_are_left_out() -> None:
    async def trial(use: Use) -> None:
        for path, body in ((LIST, b'{"pivot":"zzz"}'), (ITEMS, b'{"queue_name":"empty"}'), (SCHEDULED, b'{"queue_name":"p1"}')):
            assert (await ask(use.endpoint, path, body)).body == b"{}"

    tried(trial)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=["json", "protobuf"])
def test_what_is_imported_twice_is_echoed_without_an_id(encoding: str) -> None:
    async def trial(use: Use) -> None:
        sent = m.Import("empty", 0, [m.StoredItem(source_id="here", payload=b"x", is_leased=True, reference="r")])
        ids = []
        for _ in range(2):
            heard = await say(use.endpoint, IMPORT, sent, encoding)
            (echo,) = (protojson if encoding == JSON else proto).read(m.Imported, heard.body).items
            ids.append(echo.id)
            assert (heard.status, echo) == (200, m.StoredItem(id=echo.id, source_id="here", payload=b"x", reference="r"))
        assert [len(id) for id in ids] == [27, 0]

    tried(trial)
