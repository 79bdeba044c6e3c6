"""No confirmation comes before its fsync: every write, sync and confirmation is watched from below the process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.fsync_child import BATCH, CROWD, SINGLE
from tests.chaos.fsync_log import Log

HERE = Path(__file__).parent
ALONE = 2 * (SINGLE + 2)
"""Calls of each verb with nothing else under way: blocking ones and those on a loop."""


@pytest.fixture
def shim(disk: Path) -> Path:
    compiler = shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        reason = "NO PROOF THAT CONFIRMATIONS WAIT FOR THEIR FSYNC: this needs Linux and a C compiler (cc)"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    library = disk / "shim.so"
    command = [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", str(library), str(HERE / "fsync_shim.c"), "-ldl"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return library


def log_of(shim: Path, disk: Path, mutant: str = "none") -> Log:
    """What a child did under the shim."""
    place = (disk / "place").resolve()
    place.mkdir()
    log = disk / "log"
    environment = os.environ | {"LD_PRELOAD": str(shim), "FSYNC_SHIM_ROOT": str(place), "FSYNC_SHIM_LOG": str(log)}
    child = [sys.executable, str(HERE / "fsync_child.py"), str(place), mutant]
    ended = subprocess.run(child, env=environment, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    return Log(log)


def test_no_confirmation_comes_before_its_fsync(shim: Path, disk: Path) -> None:
    log = log_of(shim, disk)
    assert log.complaints == []
    expected = {f"wal {verb}": ALONE for verb in ("put", "claim", "record", "settle")}
    expected |= {"journal append": 2 * (SINGLE + 1)}
    expected |= {f"{file} {company}": CROWD for file in ("wal", "journal") for company in ("crowd", "thread")}
    assert {name: log.seen[name] for name in expected} == expected
    assert sum(count for name, count in log.seen.items() if " " in name) == log.seen["M"]


def test_the_shim_sees_what_is_written_and_synced(shim: Path, disk: Path) -> None:
    log = log_of(shim, disk)
    wal, journal = log.file("wal"), log.file("journal")
    assert wal is not None
    assert journal is not None
    assert len(wal.ends) == 2 * (SINGLE + 2 * BATCH) + 2 * CROWD
    assert len(journal.ends) == 2 * (SINGLE + BATCH) + 2 * CROWD
    assert wal.on_disk > 4 * ALONE
    # Callers that come at once share an fsync.
    assert log.seen["B"] == log.seen["E"] < log.seen["M"]


def test_a_database_that_does_not_wait_for_the_disk_is_caught(shim: Path, disk: Path) -> None:
    complaints = log_of(shim, disk, "hasty database").complaints
    for verb in ("put", "claim", "record", "settle", "crowd", "thread"):
        assert any(one.startswith(verb) and "before the wal was synced" in one for one in complaints), verb
    assert not any("journal" in one for one in complaints)


def test_a_journal_that_does_not_wait_for_the_disk_is_caught(shim: Path, disk: Path) -> None:
    complaints = log_of(shim, disk, "hasty journal").complaints
    for verb in ("append", "crowd", "thread"):
        assert any(one.startswith(verb) and "before the journal was synced" in one for one in complaints), verb
    assert any("before the folder of its journal was synced" in one for one in complaints)
    assert not any("wal" in one for one in complaints)
