"""A pytest plugin: processes that tests fork know every store from the start; to import them took each half a second.

The server that forks them is started before the first test, where any of those are to be run that kill processes.
"""

from __future__ import annotations

from multiprocessing import forkserver, get_all_start_methods
from pathlib import Path

import pytest

from redrive.testing.kill import children

KILLING = [Path(__file__).parent / folder for folder in ("chaos", "contract")]
STORES = ["tests.contract.backends", "tests.contract.queue_places", "tests.unit.queue_use"]


@pytest.fixture(scope="session", autouse=True)
def forks(request: pytest.FixtureRequest) -> None:
    # Not before: its children have the environment that it began with, and what they say is the tests'.
    kills = any(item.path.is_relative_to(folder) for item in request.session.items for folder in KILLING)
    if kills and "forkserver" in get_all_start_methods():
        forkserver.set_forkserver_preload([*children.PRELOADED, *STORES])
        forkserver.ensure_running()
