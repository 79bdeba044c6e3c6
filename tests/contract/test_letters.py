"""Every letter store keeps the contract."""

from __future__ import annotations

import pytest

from redrive.testing import LetterStoreContract, Opener
from tests.contract.backends import LETTERS, opensearch_letters


class TestLetters(LetterStoreContract):
    @pytest.fixture(params=LETTERS)
    def opener(self, request: pytest.FixtureRequest) -> Opener:
        opener: Opener = request.param
        return opener

    @pytest.fixture
    def share(self, opener: Opener) -> float:
        return 0.3 if opener is opensearch_letters else 1.0
