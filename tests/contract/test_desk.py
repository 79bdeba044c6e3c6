"""Every desk keeps the contract."""

from __future__ import annotations

import pytest

from redrive.testing import DeskContract, DeskOpener
from tests.contract.backends import DESKS


class TestDesk(DeskContract):
    @pytest.fixture(params=DESKS)
    def opener(self, request: pytest.FixtureRequest) -> DeskOpener:
        opener: DeskOpener = request.param
        return opener
