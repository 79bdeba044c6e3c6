"""A Redis cluster of three nodes, which share the slots between them."""

from __future__ import annotations

import time
from datetime import timedelta
from types import TracebackType
from typing import Self

from dev.engines.engine import Engine
from dev.engines.redis import SOURCE, ask, program
from redrive.testing.servers import HOST, Server, ServerFailed, free_port, is_free
from redrive.testing.watcher import until

SLOTS = 16_384
BUS = 10_000
"""Nodes talk to each other on their port plus this."""
EPHEMERAL = 32_768
"""From here on the system hands ports to outgoing connections."""
PATIENCE = timedelta(seconds=30)


class Cluster:
    """Three nodes. What is done to it is done to all; `nodes` holds each by itself."""

    name = "redis-cluster"
    host = HOST

    def __init__(self, *, durable: bool = True) -> None:
        ports = [node_port() for _ in range(3)]
        more = ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000"]
        self.nodes = [Server(program(durable=durable, more=more), ports=[port]) for port in ports]
        self.ready_in = timedelta()
        self._is_joined = False

    @property
    def port(self) -> int:
        return self.nodes[0].port

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.port}/0"

    @property
    def pid(self) -> int | None:
        return self.nodes[0].pid

    @property
    def is_alive(self) -> bool:
        return all(node.is_alive for node in self.nodes)

    def start(self) -> None:
        """Start the nodes that do not run, and wait until all of them say that all is well."""
        began = time.monotonic()
        for node in self.nodes:
            if not node.is_alive:
                node.start()
        if not self._is_joined:
            self._join()
        if not until(lambda: all(map(self._is_well, self.nodes)), PATIENCE):
            raise ServerFailed(f"the cluster was not whole after {PATIENCE.total_seconds():g} s")
        self.ready_in = timedelta(seconds=time.monotonic() - began)

    def kill(self) -> None:
        for node in self.nodes:
            node.kill()

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()

    def pause(self) -> None:
        for node in self.nodes:
            node.pause()

    def resume(self) -> None:
        for node in self.nodes:
            node.resume()

    def close(self) -> None:
        for node in self.nodes:
            node.close()

    def __enter__(self) -> Self:
        try:
            if not self.is_alive:
                self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _join(self) -> None:
        for number, node in enumerate(self.nodes):
            mine = range(number * SLOTS // 3, (number + 1) * SLOTS // 3)
            self._order(node, "SET-CONFIG-EPOCH", str(number + 1))
            self._order(node, "ADDSLOTS", *map(str, mine))
        for node in self.nodes[1:]:
            self._order(self.nodes[0], "MEET", HOST, str(node.port))
        self._is_joined = True

    def _order(self, node: Server, *words: str) -> None:
        answer = ask(node.port, "CLUSTER", *words)
        if not answer.startswith("+OK"):
            raise ServerFailed(f"a node would not join the cluster: {answer.strip()}")

    def _is_well(self, node: Server) -> bool:
        info = ask(node.port, "CLUSTER", "INFO").split()
        return {"cluster_state:ok", f"cluster_slots_ok:{SLOTS}", "cluster_known_nodes:3"} <= set(info)


def node_port() -> int:
    """A port that a node can listen on, with that of its bus free too."""
    while True:
        port = free_port()
        if port + BUS < EPHEMERAL and is_free(port + BUS):
            return port


ENGINE = Engine(name="redis-cluster", source=SOURCE, make=Cluster)
