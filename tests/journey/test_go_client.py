"""The released Go client of the queues' interface, unchanged: an item's whole way through a queue and its dead queue."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from dev.engines.queue_client import JOURNEY
from tests.engines import installed
from tests.unit.test_http import Server


@pytest.mark.timeout(900)
@pytest.mark.parametrize("store", ["memory:", "sqlite:queues.db"])
def test_an_item_goes_its_whole_way(store: str, tmp_path: Path) -> None:
    installed(JOURNEY, "the Go client")
    server = Server(tmp_path, "--store", store)
    try:
        way = subprocess.run(
            [JOURNEY.folder / "way", f"http://{server.address}"], capture_output=True, text=True, timeout=120, check=False
        )
        assert way.returncode == 0, way.stdout + way.stderr
        steps = way.stdout.splitlines()
        assert all(step.startswith("ok ") for step in steps)
        assert {"ok lease", "ok retry as dead", "ok chain is refused", "ok delete the dead queue"} <= set(steps)
        status, _, errors, _ = server.stop(signal.SIGTERM)
        assert (status, errors) == (0, "")
    finally:
        server.kill()
