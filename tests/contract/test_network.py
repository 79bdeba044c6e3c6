"""Every store across a network keeps the contract when the network or the engine fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from redrive.testing import NetworkContract, OutageContract, Remote
from tests.contract.remotes import CLUSTERS, REMOTES, Starter
from tests.contract.test_published import pytest_says

FORGETFUL = """
from redrive.testing import NetworkContract

class TestMyNetwork(NetworkContract):
    pass
"""


class TestNetwork(NetworkContract):
    @pytest.fixture(params=REMOTES, scope="class")
    @classmethod
    def remote(cls, request: pytest.FixtureRequest) -> Iterator[Remote]:
        start: Starter = request.param
        with start() as remote:
            yield remote


class TestCluster(OutageContract):
    @pytest.fixture(params=CLUSTERS, scope="class")
    @classmethod
    def remote(cls, request: pytest.FixtureRequest) -> Iterator[Remote]:
        start: Starter = request.param
        with start() as remote:
            yield remote


def test_who_forgets_to_say_where_the_engine_is_is_told_what_to_do(tmp_path: Path) -> None:
    done = pytest_says(tmp_path, FORGETFUL, "idle_connections")
    assert done.returncode == 1
    assert "override the fixture `remote` with one that gives an engine and how your store on it is opened" in done.stdout
    assert "Traceback" not in done.stdout
