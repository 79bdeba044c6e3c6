"""Every queue store across a network keeps the contract when the network or the engine fails."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from redrive.testing.kit.queue_lines import QueueRemote
from redrive.testing.kit.queue_network import QueueNetworkContract, QueueOutageContract
from tests.contract.queue_remotes import QUEUE_CLUSTERS, QUEUE_REMOTES, QueueStarter


class TestQueueNetwork(QueueNetworkContract):
    @pytest.fixture(params=QUEUE_REMOTES, scope="class")
    @classmethod
    def remote(cls, request: pytest.FixtureRequest) -> Iterator[QueueRemote]:
        start: QueueStarter = request.param
        with start() as remote:
            yield remote


class TestQueueCluster(QueueOutageContract):
    @pytest.fixture(params=QUEUE_CLUSTERS, scope="class")
    @classmethod
    def remote(cls, request: pytest.FixtureRequest) -> Iterator[QueueRemote]:
        start: QueueStarter = request.param
        with start() as remote:
            yield remote
