"""Every letter store keeps the contract."""

from __future__ import annotations

import pytest

from redrive.testing import LetterStoreContract, Opener
from tests.contract.backends import LETTERS


class TestLetters(LetterStoreContract):
    @pytest.fixture(params=LETTERS)
    def opener(self, request: pytest.FixtureRequest) -> Opener:
        opener: Opener = request.param
        return opener
