"""Every queue store keeps the contract."""

from __future__ import annotations

import pytest

from redrive.testing.kit.queue_clerk import QueueOpener
from redrive.testing.kit.queues import QueueContract
from tests.contract.queue_places import QUEUES, SLOW


class TestQueues(QueueContract):
    @pytest.fixture(params=QUEUES)
    def opener(self, request: pytest.FixtureRequest) -> QueueOpener:
        opener: QueueOpener = request.param
        return opener

    @pytest.fixture
    def share(self, opener: QueueOpener) -> float:
        return 0.3 if opener in SLOW else 1.0
