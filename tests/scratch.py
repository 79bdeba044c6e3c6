"""A pytest plugin: what tests write lies on a RAM disk, where there is one with room: thousands of databases need not wait for a disk.

`tmp_path`, engines and child processes find it through `TMPDIR`; one that is set beforehand is used as it is. Kills lose nothing
there: only a machine that stops does. What is about the disk itself asks for `disk`.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

RAM = Path("/dev/shm")
ROOM_BYTES = 2 << 30
"""A run takes about a third of it."""
_DISK = "TMPDIR_ON_DISK"


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    # Where the run was begun; other processes have their environment from there.
    if hasattr(config, "workerinput") or "TMPDIR" in os.environ or not _is_fit(RAM):
        return
    os.environ[_DISK] = tempfile.gettempdir()
    os.environ["TMPDIR"] = tempfile.tempdir = str(RAM)


@pytest.fixture
def disk() -> Iterator[Path]:
    """A folder that is on no RAM disk of ours."""
    with tempfile.TemporaryDirectory(prefix="redrive-", dir=os.environ.get(_DISK)) as folder:
        yield Path(folder)


def _is_fit(folder: Path) -> bool:
    """Has it room, and may programs be run there?"""
    try:
        found = os.statvfs(folder)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize >= ROOM_BYTES and not found.f_flag & getattr(os, "ST_NOEXEC", 0)
