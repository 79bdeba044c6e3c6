"""Every letter store keeps the contract."""

from __future__ import annotations

import pytest

from redrive.testing import LetterStoreContract, Opener
from tests.contract.backends import LETTERS, opensearch_letters, pooled_letters, postgres_letters
from tests.contract.redis_places import redis_cluster_letters, redis_letters

REMOTE = (postgres_letters, redis_letters)
SLOW = (opensearch_letters, pooled_letters, redis_cluster_letters)
"""The last two do what their quicker siblings do, over a longer way."""


class TestLetters(LetterStoreContract):
    @pytest.fixture(params=LETTERS)
    def opener(self, request: pytest.FixtureRequest) -> Opener:
        opener: Opener = request.param
        return opener

    @pytest.fixture
    def share(self, opener: Opener) -> float:
        return 0.15 if opener in SLOW else 0.5 if opener in REMOTE else 1.0
