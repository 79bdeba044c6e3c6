"""Kafka: one node, which is its own controller."""

from __future__ import annotations

import base64
import socket
import struct
import uuid
from datetime import timedelta

from dev.engines.engine import Engine
from dev.engines.maven import jars, java
from redrive.testing.servers import HOST, Place, Program, Server

SOURCE = jars("kafka", ["org.apache.kafka:kafka_2.13:4.1.1", "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3"])
LOGGING = """\
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %c{1} %m%n
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
"""


def kafka(*, settings: dict[str, str] | None = None) -> Server:
    """One broker; topics are made by whoever needs them."""

    def prepare(place: Place) -> list[list[str]]:
        lines = {**_settings(place), **(settings or {})}
        (place.folder / "server.properties").write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        (place.folder / "log4j2.properties").write_text(LOGGING)
        # One that began with a dash would be taken for an option.
        cluster = base64.urlsafe_b64encode(b"\0" + uuid.uuid4().bytes[1:]).decode().rstrip("=")
        words = ["kafka.tools.StorageTool", "format", "-t", cluster, "-c", "server.properties"]
        return [java(SOURCE.folder, place.folder, "128m", *words)]

    def command(place: Place) -> list[str]:
        logging = f"-Dlog4j2.configurationFile={place.folder / 'log4j2.properties'}"
        return java(SOURCE.folder, place.folder, "384m", logging, "kafka.Kafka", "server.properties")

    return Server(
        Program(
            name="kafka",
            command=command,
            is_ready=_has_a_broker,
            prepare=prepare,
            url=lambda place: f"kafka://{HOST}:{place.port}",
            ports=2,
            patience=timedelta(seconds=60),
        )
    )


def _settings(place: Place) -> dict[str, str]:
    port, control = place.ports
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{control}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@{HOST}:{control}",
        "log.dirs": str(place.folder / "data"),
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "4",
        "default.replication.factor": "1",
        "min.insync.replicas": "1",
        "auto.create.topics.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
        "log.cleaner.dedupe.buffer.size": "4194304",
        "log.cleaner.threads": "1",
        # A broker that was killed is known to be gone after two seconds, not nine.
        "broker.session.timeout.ms": "2000",
        "broker.heartbeat.interval.ms": "500",
    }


def _has_a_broker(place: Place) -> bool:
    """Does it name a broker when asked for metadata? It takes connections before it lets itself in."""
    metadata = struct.pack("!hhih", 3, 0, 1, -1) + struct.pack("!i", 0)
    with socket.create_connection((HOST, place.port), timeout=5) as connection, connection.makefile("rb") as answer:
        connection.sendall(struct.pack("!i", len(metadata)) + metadata)
        head = answer.read(12)
        return len(head) == 12 and struct.unpack("!iii", head)[2] > 0


ENGINE = Engine(name="kafka", source=SOURCE, make=kafka)
