"""The journal among processes: owners that are killed, forked, or run out of disk."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from redrive.engine.journal import pending, set_aside
from redrive.ports.inline import drive
from tests.unit.journals import (
    Store,
    drained,
    left_behind,
    letters,
    opened,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "journal"


CHILD = """
import os, sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from journals import STORE, Journal, Store, drive, letter, letters
from redrive.model.errors import NotHeld
journal = Journal(Path(sys.argv[1]), STORE)
def say(*words): print(*words, flush=True)
"""


@contextmanager
def child(folder: Path, script: str) -> Iterator[subprocess.Popen[str]]:
    arguments = [sys.executable, "-c", CHILD + script, str(folder), str(Path(__file__).parent)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def heard(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize("confirmed", [1, 7, 50])
def test_a_process_killed_while_appending_loses_no_confirmed_letter(folder: Path, confirmed: int) -> None:
    script = """
for n in range(0, 1_000_000, 2):
    drive(journal.append([letter(n, body=b"x" * 50_000), letter(n + 1)]))
    say(n + 1)
"""
    with child(folder, script) as process:
        for _ in range(confirmed):
            assert heard(process)
        assert pending(folder)[0].is_owned
        process.send_signal(signal.SIGKILL)
        assert process.stdout is not None
        rest = process.stdout.read().split()
        process.wait()
    last = int(rest[-1]) if rest else 2 * confirmed - 1
    assert [waiting.is_owned for waiting in pending(folder)] == [False]
    received = drained(folder)
    assert received == list(range(len(received)))
    assert len(received) >= last + 1
    assert not list(folder.glob("*.journal"))


def test_two_processes_share_a_folder_and_a_living_owner_keeps_its_letters(folder: Path) -> None:
    store = Store()
    with child(folder, "drive(journal.append(letters(1, 2))); say('ready'); sys.stdin.readline()") as process:
        assert heard(process) == "ready"
        with opened(folder) as journal:
            drive(journal.append(letters(3)))
            assert drive(journal.drain(store)) == 1
            assert store.received == [3]
            assert [(waiting.letters, waiting.is_owned) for waiting in pending(folder)] == [(2, True)]
            process.kill()
            process.wait()
            assert drive(journal.drain(store)) == 2
    assert store.received == [3, 1, 2]


def test_many_processes_append_and_drain_in_one_folder_and_every_letter_arrives(folder: Path) -> None:
    script = """
store = Store()
first = int(sys.stdin.readline())
for n in range(first, first + 40):
    drive(journal.append(letters(n)))
    if n % 3 == 0:
        drive(journal.drain(store, batch=2))
    if n % 10 == 9:
        journal.close()
        journal = Journal(Path(sys.argv[1]), STORE)
say(*store.received)
"""
    with child(folder, script) as one, child(folder, script) as two, child(folder, script) as three:
        for index, process in enumerate((one, two, three)):
            assert process.stdin is not None
            process.stdin.write(f"{index * 100}\n")
            process.stdin.flush()
        lines = [[int(word) for word in heard(process).split()] for process in (one, two, three)]
    rest = drained(folder)
    arrived = sorted(number for line in (*lines, rest) for number in line)
    assert arrived == sorted(index * 100 + n for index in range(3) for n in range(40))


def test_a_forked_child_writes_a_file_of_its_own(folder: Path) -> None:
    script = """
drive(journal.append(letters(1)))
if os.fork() == 0:
    assert journal.waiting == 0
    drive(journal.append(letters(2)))
    os._exit(0)
os.wait()
drive(journal.append(letters(3)))
say(journal.waiting)
sys.stdin.readline()
"""
    with child(folder, script) as process:
        assert heard(process) == "2"
        assert [(waiting.letters, waiting.is_owned) for waiting in pending(folder)] == [(2, True), (1, False)]
    assert drained(folder) == [1, 3, 2]


def test_a_forked_child_that_lives_on_does_not_keep_its_dead_parents_letters(folder: Path) -> None:
    script = """
drive(journal.append(letters(1)))
if os.fork() == 0:
    say(os.getppid())
    sys.stdin.readline()
    os._exit(0)
sys.stdin.readline()
"""
    with child(folder, script) as process:
        assert int(heard(process)) == process.pid
        process.kill()
        process.wait()
        assert drained(folder) == [1]


def test_a_child_forked_during_a_drain_does_not_keep_the_files_that_were_taken_over(folder: Path) -> None:
    left_behind(folder, 1)
    script = """
def meanwhile():
    if os.fork() == 0:
        say(os.getppid())
        sys.stdin.readline()
        os._exit(0)
    sys.stdin.readline()
store = Store()
store.meanwhile = meanwhile
drive(journal.drain(store))
"""
    with child(folder, script) as process:
        assert int(heard(process)) == process.pid
        assert pending(folder)[0].is_owned
        process.kill()
        process.wait()
        assert drained(folder) == [1]


def test_a_full_disk_is_not_held_and_leaves_no_half_letter(folder: Path) -> None:
    script = """
import resource
FOREVER = resource.RLIM_INFINITY
drive(journal.append(letters(1)))
(path,) = Path(sys.argv[1]).glob("*.journal")
size = path.stat().st_size
for room in (0, 1, 15, 100, 700):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + room, FOREVER))
    try:
        drive(journal.append([letter(2), letter(3, body=b"x" * 1000)]))
    except NotHeld as error:
        assert path.stat().st_size == size, path.stat().st_size
        assert journal.waiting == 1
        say(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (FOREVER, FOREVER))
drive(journal.append(letters(4)))
say("done")
"""
    with child(folder, script) as process:
        for _ in range(5):
            assert heard(process) == f"no space is left for the journal in {folder}; free some, then try again"
        assert heard(process) == "done"
    assert drained(folder) == [1, 4]
    assert set_aside(folder) == []


def test_a_disk_that_is_full_from_the_start_leaves_a_file_that_can_still_be_used(folder: Path) -> None:
    script = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (30, resource.RLIM_INFINITY))
try:
    drive(journal.append(letters(1)))
except NotHeld:
    say("full")
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
drive(journal.append(letters(2)))
say("done")
"""
    with child(folder, script) as process:
        assert [heard(process), heard(process)] == ["full", "done"]
    assert drained(folder) == [2]
    assert list(folder.iterdir()) == []


def test_a_full_disk_fails_every_caller_that_shared_the_write(folder: Path) -> None:
    script = """
import asyncio, resource
async def story():
    await journal.append(letters(0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, resource.RLIM_INFINITY))
    answers = await asyncio.gather(*(journal.append(letters(n)) for n in range(1, 9)), return_exceptions=True)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    say(*(type(answer).__name__ for answer in answers))
asyncio.run(story())
"""
    with child(folder, script) as process:
        assert heard(process).split() == ["NotHeld"] * 8
        process.wait()
    assert drained(folder) == [0]
