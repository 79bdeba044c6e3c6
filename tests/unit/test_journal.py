"""The journal: what it confirmed reaches the store, in order, whatever dies in between."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redrive.engine.journal import Journal, pending, set_aside
from redrive.model.arrival import Held
from redrive.model.errors import NotHeld, StoreFull
from redrive.model.letter import Letter
from redrive.ports.inline import drive
from tests.unit.journals import (
    HEADER,
    STORE,
    Store,
    drained,
    left_behind,
    letter,
    letters,
    only_file,
    opened,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def test_letters_wait_on_the_disk_and_go_to_the_store_in_order(folder: Path) -> None:
    async def story() -> None:
        store = Store()
        with opened(folder) as journal:
            assert journal.waiting == 0
            await journal.append(letters(1, 2))
            await journal.append(letters(3))
            await journal.append([])
            assert journal.waiting == 3
            assert await journal.drain(store, batch=2) == 3
            assert store.puts == [[1, 2], [3]]
            assert journal.waiting == 0
            assert pending(folder) == []
            assert await journal.drain(store) == 0
        (found,) = await store.get([letter(2).id])
        assert found == letter(2)

    asyncio.run(story())


def test_its_verbs_can_be_driven_inline(folder: Path) -> None:
    store = Store()
    with opened(folder) as journal:
        drive(journal.append(letters(1, 2)))
        assert drive(journal.drain(store)) == 2
    assert store.received == [1, 2]


def test_a_journal_that_was_never_used_leaves_no_trace(folder: Path) -> None:
    with opened(folder) as journal:
        assert drive(journal.drain(Store())) == 0
    assert not folder.exists()
    assert pending(folder) == []
    assert set_aside(folder) == []


def test_folder_and_files_are_for_their_user_only(folder: Path) -> None:
    path = left_behind(folder, 1)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_first_append_makes_the_files_name_durable_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    really = os.fsync

    def fsync(descriptor: int) -> None:
        really(descriptor)
        found = os.fstat(descriptor)
        synced.append(next((kind for kind, path in places.items() if os.path.samestat(found, path.stat())), "file"))

    places = {"folder": folder, "parent": folder.parent}
    monkeypatch.setattr(os, "fsync", fsync)
    with opened(folder) as journal:
        drive(journal.append(letters(1)))
        assert synced == ["parent", "file", "folder"]
        drive(journal.append(letters(2)))
        assert synced[3:] == ["file"]
        monkeypatch.undo()


def test_a_new_file_that_a_drain_takes_for_a_dead_owners_is_made_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    really = fcntl.flock
    meddled: list[bool] = []

    def flock(descriptor: int, kind: int) -> None:
        if not meddled:
            meddled.append(True)
            assert drained(folder) == []
            assert list(folder.iterdir()) == []
        really(descriptor, kind)

    monkeypatch.setattr(fcntl, "flock", flock)
    with opened(folder) as journal:
        drive(journal.append(letters(1)))
        assert meddled
    assert drained(folder) == [1]


def test_concurrent_appends_are_all_kept_and_share_their_fsyncs(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs: list[int] = []
    really = os.fsync

    def fsync(descriptor: int) -> None:
        syncs.append(descriptor)
        really(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)

    async def story() -> None:
        with opened(disk) as journal:
            await asyncio.gather(*(journal.append(letters(2 * n, 2 * n + 1)) for n in range(200)))
            assert journal.waiting == 400

    asyncio.run(story())
    monkeypatch.undo()
    received = drained(disk)
    assert sorted(received) == list(range(400))
    assert all(received[received.index(2 * n) + 1] == 2 * n + 1 for n in range(200))
    assert len(syncs) < 200


def test_the_rest_waits_in_order_when_the_store_goes_down_in_the_middle(folder: Path) -> None:
    store = Store()
    store.puts_left = 2
    with opened(folder) as journal:
        drive(journal.append(letters(*range(10))))
        assert drive(journal.drain(store, batch=3)) == 6
        assert journal.waiting == 4
        drive(journal.append(letters(10)))
        assert drive(journal.drain(store, batch=3)) == 0
        store.puts_left = None
        assert drive(journal.drain(store, batch=3)) == 5
    assert store.received == list(range(11))


def test_letters_that_the_store_confirmed_are_not_put_again_by_the_next_owner(folder: Path) -> None:
    store = Store()
    store.puts_left = 2
    with opened(folder) as journal:
        drive(journal.append(letters(*range(10))))
        drive(journal.drain(store, batch=3))
    assert [waiting.letters for waiting in pending(folder)] == [4]
    assert drained(folder) == [6, 7, 8, 9]


def test_letters_whose_answer_was_lost_are_put_again_and_counted_once(folder: Path) -> None:
    store = Store()
    store.puts_left, store.loses_answers = 0, True
    with opened(folder) as journal:
        drive(journal.append(letters(1, 2)))
        assert drive(journal.drain(store)) == 0
        store.puts_left = None
        assert drive(journal.drain(store)) == 2
    assert store.puts == [[1, 2], [1, 2]]
    assert len(store.occurrences) == 2


def test_letters_appended_during_a_drain_come_after_those_that_waited(folder: Path) -> None:
    store = Store()
    with opened(folder) as journal:
        drive(journal.append(letters(1, 2)))
        late = iter([3, 4, 5])

        def meanwhile() -> None:
            for number in late:
                drive(journal.append(letters(number)))
                break

        store.meanwhile = meanwhile
        assert drive(journal.drain(store, batch=1)) == 5
        assert journal.waiting == 0
    assert store.received == [1, 2, 3, 4, 5]


def test_appends_and_drains_at_the_same_time_lose_nothing(folder: Path) -> None:
    store = Store()

    async def story() -> None:
        with opened(folder) as journal:
            appending = asyncio.ensure_future(append_all(journal))
            while not appending.done():
                await journal.drain(store, batch=3)
            await appending
            await journal.drain(store)
            assert journal.waiting == 0

    async def append_all(journal: Journal) -> None:
        for number in range(200):
            await journal.append(letters(number))

    asyncio.run(story())
    assert store.received == list(range(200))


def test_a_second_drain_at_the_same_time_does_nothing(folder: Path) -> None:
    store = Store()
    with opened(folder) as journal:
        drive(journal.append(letters(1)))
        answers: list[int] = []
        store.meanwhile = lambda: answers.append(drive(journal.drain(store)))
        assert drive(journal.drain(store)) == 1
    assert answers == [0]
    assert store.received == [1]


def test_a_cancelled_drain_loses_nothing_and_gives_its_locks_back(folder: Path) -> None:
    left_behind(folder, 1, 2)

    class Slow(Store):
        async def put(self, letters: Sequence[Letter], *, now: datetime | None = None) -> list[Held]:
            started.set()
            await asyncio.Event().wait()
            return []

    async def story() -> list[int]:
        with opened(folder) as journal:
            await journal.append(letters(3))
            task = asyncio.ensure_future(journal.drain(Slow()))
            await started.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            store = Store()
            await journal.drain(store)
            return store.received

    started = asyncio.Event()
    assert asyncio.run(story()) == [1, 2, 3]


def test_files_of_the_dead_are_drained_before_the_own_oldest_first(folder: Path) -> None:
    store = Store()
    for number in (1, 2, 3):
        journal = Journal(folder, STORE)
        drive(journal.append(letters(number)))
        journal.close()
    with opened(folder) as journal:
        drive(journal.append(letters(4)))
        assert drive(journal.drain(store)) == 4
    assert store.received == [1, 2, 3, 4]


def test_age_is_kept_when_the_clock_goes_back(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left_behind(folder, 1)
    monkeypatch.setattr("time.time_ns", lambda: 5)
    with opened(folder) as journal:
        drive(journal.append(letters(2)))
    assert drained(folder) == [1, 2]


def test_letters_never_go_to_another_store(folder: Path) -> None:
    path = left_behind(folder, 1)
    other = Store()
    with opened(folder, "redis://elsewhere") as journal:
        drive(journal.append(letters(2)))
        assert drive(journal.drain(other)) == 1
        # Not even when somebody gives the file the name of one of theirs.
        drive(journal.append(letters(3)))
        (theirs,) = set(folder.glob("*.journal")) - {path}
        disguised = path.rename(folder / (theirs.name[:16] + path.name[16:]))
        assert drive(journal.drain(other)) == 1
    assert other.received == [2, 3]
    disguised.rename(path)
    assert drained(folder) == [1]


def test_pending_tells_what_waits_where_and_whether_its_owner_lives(folder: Path) -> None:
    dead = left_behind(folder, 1, 2)
    with opened(folder, "redis://elsewhere") as journal:
        drive(journal.append(letters(3)))
        first, second = pending(folder)
        assert first == (dead.name, 2, dead.stat().st_size, False)
        assert (second.letters, second.is_owned) == (1, True)
        drive(journal.append(letters(4)))
        assert pending(folder)[1].letters == 2


def test_closing_removes_an_empty_file_and_leaves_a_full_one_to_others(folder: Path) -> None:
    store = Store()
    journal = Journal(folder, STORE)
    drive(journal.append(letters(1)))
    journal.close()
    journal.close()
    with pytest.raises(NotHeld, match="closed"):
        drive(journal.append(letters(2)))
    assert [waiting.is_owned for waiting in pending(folder)] == [False]
    assert drained(folder, store) == [1]
    assert list(folder.iterdir()) == []


def test_a_file_that_somebody_removed_is_not_written_to(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with opened(folder) as journal:
        drive(journal.append(letters(1)))
        only_file(folder).unlink()
        folder.rmdir()
        drive(journal.append(letters(2)))
        assert journal.waiting == 1
    assert "file_vanished" in caplog.text
    assert drained(folder) == [2]


def test_a_store_that_refuses_letters_is_heard_and_the_letters_stay(folder: Path) -> None:
    store = Store()
    store.refuses = StoreFull
    with opened(folder) as journal:
        drive(journal.append(letters(1)))
        with pytest.raises(StoreFull):
            drive(journal.drain(store))
        assert journal.waiting == 1
        store.refuses = None
        assert drive(journal.drain(store)) == 1


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 4)),
        st.tuples(st.just("crash"), st.just(0)),
        st.tuples(st.just("close"), st.just(0)),
        st.tuples(st.just("drain"), st.integers(1, 3)),
        st.tuples(st.just("down after"), st.integers(0, 3)),
        st.tuples(st.just("loses the answer after"), st.integers(0, 3)),
        st.tuples(st.just("torn"), st.integers(1, 100)),
        st.tuples(st.just("up"), st.just(0)),
    ),
    max_size=30,
)


@settings(deadline=None, derandomize=True, max_examples=100)
@given(STEPS)
def test_whatever_happens_each_letter_arrives_in_order_and_is_counted_once(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    folder = tmp_path_factory.mktemp("journal")
    store = Store()
    journal = Journal(folder, STORE)
    number = 0
    for step, amount in steps:
        match step:
            case "append":
                # Some are one more failure of an earlier message: the same letter, another occurrence.
                drive(journal.append([letter(n, source_id=str(n // 2)) for n in range(number, number + amount)]))
                number += amount
            case "crash":
                journal = Journal(folder, STORE)
            case "torn":
                # The process dies in the middle of a write.
                journal = Journal(folder, STORE)
                for path in sorted(folder.glob("*.journal"))[-1:]:
                    with path.open("ab") as file:
                        file.write(path.read_bytes()[HEADER : HEADER + amount])
            case "close":
                journal.close()
                journal = Journal(folder, STORE)
            case "drain":
                drive(journal.drain(store, batch=amount))
            case "up":
                store.puts_left = None
            case _:
                store.puts_left, store.loses_answers = amount, step == "loses the answer after"
    store.puts_left = None
    drive(journal.drain(store))
    assert journal.waiting == 0
    journal.close()
    assert store.first_seen == list(range(number))
    assert len(store.occurrences) == len(set(store.occurrences)) == number
    assert not list(folder.glob("*.journal"))
