"""The blocking face: the same names with the same signatures, from threads, forked children and running loops."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import redrive
from redrive import EVERYTHING, Bury, Held, Message, Policy, Status, StoreUnavailable, UnknownLetter, blocking, ports
from redrive.engine.dead_letters import DeadLetters
from redrive.engine.guard import Guard
from redrive.engine.operations import Operations
from redrive.engine.processor import RetryProcessor
from redrive.engine.repair import Repair
from redrive.engine.triage import Triages
from redrive.model.operation import Entry

BAD = ValueError("bad")

PAIRS = {
    blocking.DeadLetters: DeadLetters,
    blocking.Letters: ports.LetterStore,
    blocking.Desk: ports.Desk,
    blocking.Guard: Guard,
    blocking.Operations: Operations,
    blocking.Repairs: Repair,
    blocking.Triages: Triages,
    blocking.RetryProcessor: RetryProcessor,
}


AMONG_THEMSELVES = {"finish", "is_raised", "told_of"}
"""How a guard and its trials talk to each other; no verb for users."""


def public(kind: type) -> set[str]:
    ours = [one for one in kind.__mro__ if one.__module__.startswith("redrive")]
    return {name for one in ours for name in vars(one) if not name.startswith("_")} - AMONG_THEMSELVES


@pytest.mark.parametrize("ours", PAIRS, ids=lambda kind: kind.__name__)
def test_every_public_name_has_its_counterpart(ours: type) -> None:
    assert public(ours) == public(PAIRS[ours])


SIGNATURES = [(ours, name) for ours, theirs in PAIRS.items() for name in sorted(public(ours) & public(theirs))]


@pytest.mark.parametrize(("ours", "name"), SIGNATURES, ids=lambda part: part if isinstance(part, str) else part.__name__)
def test_every_verb_has_the_signature_of_its_counterpart(ours: type, name: str) -> None:
    here, there = getattr(ours, name), getattr(PAIRS[ours], name)
    if isinstance(there, property):
        assert isinstance(here, property)
        return
    assert inspect.signature(here).parameters == inspect.signature(there).parameters
    assert not inspect.iscoroutinefunction(here)
    answer, promised = (str(inspect.signature(one).return_annotation) for one in (here, there))
    assert answer in {promised, promised.removeprefix("Async")}


def test_both_faces_are_opened_in_the_same_way() -> None:
    assert inspect.signature(blocking.open).parameters == inspect.signature(redrive.open).parameters


def test_what_an_opened_store_shows_is_the_same_on_both_faces() -> None:
    """What is of the async face alone: how it is bridged, its telemetry, and the queues beside it, which have a face of their own."""
    with blocking.open("memory:") as ours:
        theirs = redrive.open("memory:")
        shown = {name for name in vars(theirs) if not name.startswith("_")} - {"bridge", "telemetry", "queue_store"}
        assert [name for name in shown if not hasattr(ours, name)] == []


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory:" if request.param == "memory" else f"sqlite:{tmp_path}/redrive.db"


def whole_way(dlq: blocking.DeadLetters, name: str) -> Status:
    """Send one letter its whole way, with every verb of the face; where did it end?"""
    id = dlq.capture(Message(body=b"x", id=name), BAD, source="orders").letter.id
    assert dlq.hold([dlq.get(id)]) == [Held.DUPLICATE]
    assert dlq.get(str(id)[:18]).id == id
    assert dlq.body(dlq.get(id)) == b"x"
    assert any(letter.id == id for letter in dlq.find(page=1))
    assert dlq.redrive(lambda body: None, ids=[id]).entries == {Entry.CONFIRMED: 1}
    assert dlq.guard(source="orders", policy=Policy(max_attempts=1)).each([1, 0], lambda n: 1 / n)[1] == Bury()
    assert dlq.drain() == 0
    assert dlq.letters.count() >= 2
    dlq.letters.check()
    assert dlq.desk.operations()
    return dlq.get(id).status


def test_a_letter_goes_its_whole_way_without_a_loop(url: str) -> None:
    with blocking.open(url) as dlq:
        assert whole_way(dlq, "1") is Status.COMPLETED


def test_it_does_so_inside_a_running_loop(url: str) -> None:
    async def story() -> None:
        with blocking.open(url) as dlq:
            assert whole_way(dlq, "1") is Status.COMPLETED

    asyncio.run(story())


def in_threads(count: int, work: Callable[[int], None]) -> None:
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=[number]) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert errors == []


def test_eight_threads_share_one_object(url: str) -> None:
    with blocking.open(url) as dlq:

        def work(number: int) -> None:
            for turn in range(3):
                whole_way(dlq, f"{number}-{turn}")

        in_threads(8, work)
        assert dlq.letters.count() == 8 * 3 * 2


def test_the_first_use_may_be_from_many_threads_at_once(url: str) -> None:
    for turn in range(1, 4):
        with blocking.open(url) as dlq:
            barrier = threading.Barrier(8)

            def work(number: int, dlq: blocking.DeadLetters = dlq, barrier: threading.Barrier = barrier) -> None:
                barrier.wait(60)
                dlq.capture("x", BAD, source="orders")

            in_threads(8, work)
            assert dlq.letters.count() == 8 * (1 if url == "memory:" else turn)


def forked(work: Callable[[], Any]) -> str:
    """What the work says in a forked child, or how it failed there."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of forks beside threads: that is the point
        child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(60)
        try:
            answer = str(work())
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"
        os.write(writing, answer.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    return answer if status == 0 else f"{answer} (status {status})"


def test_a_forked_child_can_use_the_same_object(tmp_path: Path) -> None:
    with blocking.open(f"sqlite:{tmp_path}/redrive.db") as dlq:
        whole_way(dlq, "parent")

        def in_child() -> int:
            whole_way(dlq, "child")
            return dlq.letters.count()

        assert forked(in_child) == "4"
        whole_way(dlq, "parent again")
        assert dlq.letters.count() == 6
        assert {letter.source_id for letter in dlq.find()} >= {"parent", "child", "parent again"}


def test_a_child_that_closes_it_takes_nothing_from_its_parent(tmp_path: Path) -> None:
    with blocking.open(f"sqlite:{tmp_path}/redrive.db") as dlq:
        dlq.capture("a", BAD, source="orders")
        dlq.redrive(lambda order: None, query=EVERYTHING)

        def in_child() -> str:
            dlq.capture("b", BAD, source="orders")
            dlq.close()
            return "closed"

        assert forked(in_child) == "closed"
        assert forked(dlq.close) == "None"
        dlq.capture("c", BAD, source="orders")
        assert dlq.redrive(lambda order: None, query=EVERYTHING).entries == {Entry.CONFIRMED: 2}
        assert dlq.letters.count() == 3


def test_what_a_child_confirmed_is_there_after_its_parent_let_go(tmp_path: Path) -> None:
    """A server that forks workers and then closes its own store: nothing that a worker held may be lost."""
    url = f"sqlite:{tmp_path}/redrive.db"
    dlq = blocking.open(url)
    dlq.capture("parent", BAD, source="orders")
    closed, is_closed = os.pipe()
    used, is_used = os.pipe()

    def in_child() -> list[str]:
        answers = [dlq.capture("child, before", BAD, source="orders").held.value]
        os.write(is_used, b"x")
        os.read(closed, 1)
        return [*answers, dlq.capture("child, after", BAD, source="orders").held.value]

    def close_when_used() -> None:
        os.read(used, 1)
        dlq.close()
        os.write(is_closed, b"x")

    closer = threading.Thread(target=close_when_used)
    closer.start()
    answers = forked(in_child)
    closer.join(60)
    for end in (closed, is_closed, used, is_used):
        os.close(end)
    with blocking.open(url) as again:
        bodies = {letter.body for letter in again.find()}
    assert answers == "['new', 'new']"
    assert bodies == {b"parent", b"child, before", b"child, after"}


@pytest.mark.parametrize("body", [b"x", b"x" * 200_000], ids=["little", "so much that the log is copied all the time"])
def test_a_child_may_be_forked_while_other_threads_write(tmp_path: Path, body: bytes) -> None:
    with blocking.open(f"sqlite:{tmp_path}/redrive.db") as dlq:
        stop = threading.Event()
        count = 0

        def write() -> None:
            nonlocal count
            while not stop.is_set():
                dlq.capture(body, BAD, source="orders")
                count += 1

        thread = threading.Thread(target=write)
        thread.start()
        try:
            for _ in range(10):
                assert forked(lambda: dlq.capture("y", BAD, source="child").held) == "new"
        finally:
            stop.set()
            thread.join(60)
        assert dlq.letters.count() == count + 10


def test_a_closed_store_says_so_and_closing_twice_is_fine(url: str) -> None:
    dlq = blocking.open(url)
    dlq.capture("x", BAD, source="orders")
    dlq.close()
    dlq.close()
    if url == "memory:":
        return
    with pytest.raises(StoreUnavailable, match="was closed; open it again"):
        dlq.letters.count()
    with pytest.raises(StoreUnavailable, match="was closed; open it again"):
        dlq.redrive(print, query=EVERYTHING)
    dlq.close()


def test_opening_touches_nothing(tmp_path: Path) -> None:
    blocking.open(f"sqlite:{tmp_path}/redrive.db").close()
    redrive.open(f"sqlite:{tmp_path}/redrive.db")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("id", "sentence"),
    [
        ("", "is not a letter's id"),
        ("xyz", "'xyz' is not a letter's id: those are hexadecimal"),
        ("0" * 33, "is not a letter's id"),
        ("ffffffff", "there is no letter ffffffff"),
        ("'; DROP TABLE letters; --", "is not a letter's id"),
    ],
)
def test_an_unknown_id_gets_one_clear_sentence(url: str, id: str, sentence: str) -> None:
    with blocking.open(url) as dlq:
        dlq.capture(Message(body=b"x", id="1"), BAD, source="orders")
        with pytest.raises(UnknownLetter) as refused:
            dlq.get(id)
        assert sentence in str(refused.value)


def test_the_beginning_of_an_id_is_enough_while_it_is_unambiguous(url: str) -> None:
    with blocking.open(url) as dlq:
        ids = [dlq.capture(Message(body=b"x", id=str(number)), BAD, source="orders").letter.id for number in range(40)]
        for id in ids:
            assert dlq.get(str(id).upper()).id == id
            assert dlq.get(id.hex[:20]).id == id
        first = next(str(id)[0] for id in ids if sum(other.hex[0] == id.hex[0] for other in ids) > 1)
        with pytest.raises(UnknownLetter, match=f"more than one letter begins with {first}; give more of the id"):
            dlq.get(first)


def test_an_interrupted_redrive_gives_its_letters_back(tmp_path: Path) -> None:
    """Ctrl-C in blocking code: the sending is stopped, not left to go on behind the caller's back."""
    program = """
import asyncio, os, signal
from redrive import blocking
with blocking.open("sqlite:redrive.db") as dlq:
    dlq.capture("a", ValueError("bad"), source="orders")
    async def handle(order):
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(3600)
    try:
        dlq.redrive(handle, source="orders")
    except KeyboardInterrupt:
        print("interrupted", [letter.status.value for letter in dlq.find()])
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "interrupted ['pending']\n"
    assert (done.stderr, done.returncode) == ("", 0)


def test_a_program_that_forgets_to_close_ends_all_the_same(tmp_path: Path) -> None:
    program = """
import asyncio, redrive
from redrive import blocking
dlq = blocking.open("sqlite:redrive.db")
dlq.capture("a", ValueError("bad"), source="orders")
dlq.redrive(lambda order: None, source="orders")
other = redrive.open("sqlite:redrive.db")
asyncio.run(other.capture("b", ValueError("bad"), source="orders"))
print("end")
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == ("end\n", "", 0)
