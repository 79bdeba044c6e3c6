"""What `redrive up` says of queues: the gauge of their items, and health."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.test_http import Server


@pytest.fixture
def server(tmp_path: Path):  # type: ignore[no-untyped-def]  # a generator
    running = Server(tmp_path, "--store", "sqlite:queues.db")
    yield running
    running.kill()


def post(server: Server, verb: str, **body: object) -> None:
    answer, told = server.ask(f"/v1/{verb}", "POST", json.dumps(body).encode(), **{"Content-Type": "application/json"})
    assert answer.status == 200, told


def gauges(server: Server) -> dict[str, float]:
    _, body = server.ask("/metrics")
    lines = [line for line in body.decode().splitlines() if line.startswith("redrive_queue_items{")]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def test_items_are_counted_by_where_they_stand_until_their_queue_is_gone(server: Server) -> None:
    post(server, "queues.create", queue_name="orders", lease_timeout="1m", expire_timeout="1h", requested_partitions=2)
    items = [{"utf8": "a"}, {"utf8": "b"}, {"utf8": "c", "enqueue_at": "2999-01-01T00:00:00Z"}]
    post(server, "queue.produce", queue_name="orders", request_timeout="5s", items=items)
    post(server, "queue.lease", queue_name="orders", request_timeout="5s", batch_size=1, client_id="one")
    found = gauges(server)
    assert {
        place: found[f'redrive_queue_items{{place="{place}",queue="orders"}}'] for place in ("ready", "leased", "scheduled")
    } == {
        "ready": 1,
        "leased": 1,
        "scheduled": 1,
    }
    post(server, "queues.delete", queue_name="orders")
    assert set(gauges(server).values()) == {0}


def test_health_looks_at_the_queues_storage(server: Server) -> None:
    status, told = server.json("/health")
    assert (status, told["status"]) == (200, "pass")
    assert told["checks"]["queues:storage"][0]["componentType"] == "datastore"
