"""The journal: what it confirmed reaches the store, in order, whatever dies in between."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID, uuid5

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redrive.backends.memory.letters import MemoryLetters
from redrive.engine.journal import Journal, pending, set_aside
from redrive.model.arrival import Held
from redrive.model.errors import NotHeld, SchemaTooNew, StoreFull, StoreNotWritable, StoreUnavailable
from redrive.model.letter import Attempt, Failure, Letter, letter_id
from redrive.model.stored import stored
from redrive.ports.inline import drive

STORE = "postgresql://user:***@host/letters"
AT = datetime(2024, 5, 1, tzinfo=UTC)
HEADER = 8 + 2 + 8 + 16 + 4 + 8 + 4
FRAME = 8 + 4 + 4


def letter(number: int, body: bytes = b"", source_id: str | None = None) -> Letter:
    source_id = source_id or str(number)
    return Letter(
        id=letter_id("default", "orders", source_id),
        source="orders",
        source_id=source_id,
        failure=Failure(type="builtins.ValueError", message=f"failure {number}"),
        first_received_at=AT,
        dead_lettered_at=AT,
        updated_at=AT,
        body=body or b"secret %d" % number,
        history=(Attempt(at=AT, occurrence=uuid5(UUID(int=0), str(number)), message=str(number)),),
    )


def letters(*numbers: int) -> list[Letter]:
    return [letter(number) for number in numbers]


class Store(MemoryLetters):
    """A store that remembers what was put, can be down, and can lose its answer."""

    def __init__(self) -> None:
        super().__init__()
        self.puts: list[list[int]] = []
        self.puts_left: int | None = None
        self.loses_answers = False
        self.refuses: type[Exception] | None = None
        self.meanwhile: Callable[[], None] | None = None

    async def put(self, letters: Sequence[Letter], *, now: datetime | None = None) -> list[Held]:
        if self.meanwhile is not None:
            self.meanwhile()
        if self.puts_left == 0 and not self.loses_answers:
            raise StoreUnavailable("down")
        if self.refuses is not None:
            raise self.refuses("refused")
        held = await super().put(letters, now=now)
        self.puts.append([number_of(letter) for letter in letters])
        if self.puts_left == 0:
            raise StoreUnavailable("the answer was lost")
        if self.puts_left is not None:
            self.puts_left -= 1
        return held

    @property
    def received(self) -> list[int]:
        return [number for batch in self.puts for number in batch]

    @property
    def first_seen(self) -> list[int]:
        return list(dict.fromkeys(self.received))

    @property
    def occurrences(self) -> list[UUID]:
        """Of every letter, as the store counts them."""
        held = [one for one in drive(self.get([letter_id("default", "orders", str(n)) for n in range(1000)])) if one]
        return [attempt.occurrence for one in held for attempt in one.history]


def number_of(letter: Letter) -> int:
    return int(letter.history[0].message)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "journal"


@contextmanager
def opened(folder: Path, store_name: str = STORE) -> Iterator[Journal]:
    journal = Journal(folder, store_name)
    try:
        yield journal
    finally:
        journal.close()


def drained(folder: Path, store: Store | None = None, batch: int = 100) -> list[int]:
    """What another process would find."""
    store = store or Store()
    with opened(folder) as journal:
        drive(journal.drain(store, batch))
    return store.received


def only_file(folder: Path) -> Path:
    (path,) = folder.glob("*.journal")
    return path


def left_behind(folder: Path, *numbers: int) -> Path:
    """The file of an owner that is gone, with these letters."""
    with opened(folder) as journal:
        drive(journal.append(letters(*numbers)))
    return only_file(folder)


def spans(path: Path) -> list[tuple[int, int]]:
    """Where each frame of an undamaged file begins and ends."""
    data, at, found = path.read_bytes(), HEADER, []
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at + 8)
        found.append((at, at + FRAME + length))
        at += FRAME + length
    return found


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


def test_concurrent_appends_are_all_kept_and_share_their_fsyncs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs: list[int] = []
    really = os.fsync

    def fsync(descriptor: int) -> None:
        syncs.append(descriptor)
        really(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)

    async def story() -> None:
        with opened(folder) as journal:
            await asyncio.gather(*(journal.append(letters(2 * n, 2 * n + 1)) for n in range(200)))
            assert journal.waiting == 400

    asyncio.run(story())
    monkeypatch.undo()
    received = drained(folder)
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


def test_a_tail_torn_at_any_byte_costs_only_the_torn_letter(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    whole = left_behind(tmp_path / "whole", 1, 2, 3)
    data = whole.read_bytes()
    begin, end = spans(whole)[-1]
    for cut in range(begin, end):
        folder = tmp_path / str(cut)
        folder.mkdir()
        (folder / whole.name).write_bytes(data[:cut])
        caplog.clear()
        assert drained(folder) == [1, 2]
        kept = set_aside(folder)
        assert [path.read_bytes() for path in kept] == ([data[begin:cut]] if cut > begin else [])
        assert ("torn_tail_kept" in caplog.text) == (cut > begin)
        assert "secret" not in caplog.text
        assert list(folder.iterdir()) == kept
        assert all(path.name.endswith(".torn") and path.stat().st_mode & 0o777 == 0o600 for path in kept)


@pytest.mark.parametrize("damage", [b"\0", b"\xff"])
def test_any_damaged_byte_of_the_last_letter_costs_only_that_letter(tmp_path: Path, damage: bytes) -> None:
    whole = left_behind(tmp_path / "whole", 1, 2)
    data = whole.read_bytes()
    begin, end = spans(whole)[-1]
    for at in range(begin, end):
        if data[at : at + 1] == damage:
            continue
        folder = tmp_path / str(at)
        folder.mkdir()
        (folder / whole.name).write_bytes(data[:at] + damage + data[at + 1 :])
        assert drained(folder) == [1]
        assert [len(path.read_bytes()) for path in set_aside(folder)] == [end - begin]


def test_any_damaged_byte_in_the_middle_costs_only_its_letter(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    whole = left_behind(tmp_path / "whole", 1, 2, 3, 4)
    data = whole.read_bytes()
    begin, end = spans(whole)[1]
    for at in range(begin, end):
        folder = tmp_path / str(at)
        folder.mkdir()
        damaged = data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]
        (folder / whole.name).write_bytes(damaged)
        caplog.clear()
        assert drained(folder) == [1, 3, 4]
        (kept,) = set_aside(folder)
        assert kept.name.endswith(".damaged")
        assert kept.read_bytes() == damaged[begin:end]
        assert "damage_kept" in caplog.text
        assert "secret" not in caplog.text


@pytest.mark.parametrize("filler", [b"", b"\0" * 5, b"x" * 3_000_000])
def test_letters_are_found_again_behind_bytes_that_were_lost_or_put_in(folder: Path, filler: bytes) -> None:
    path = left_behind(folder, 1, 2, 3, 4)
    data = path.read_bytes()
    (begin, _), (_, end) = spans(path)[1:3]
    lost = data[begin + 20 : end - 3]
    path.write_bytes(data[: begin + 20] + filler + data[end - 3 :])
    assert lost
    assert drained(folder) == [1, 4]
    assert [kept.read_bytes() for kept in set_aside(folder)] == [data[begin : begin + 20] + filler + data[end - 3 : end]]


def test_the_next_frame_is_found_wherever_it_lies_among_the_chunks_that_are_searched(tmp_path: Path) -> None:
    whole = left_behind(tmp_path / "whole", 1, 2, 3)
    data = whole.read_bytes()
    begin, end = spans(whole)[1]
    for shift in range(10):
        folder = tmp_path / str(shift)
        folder.mkdir()
        (folder / whole.name).write_bytes(data[:begin] + b"x" * ((1 << 20) + 1 - shift) + data[end:])
        assert drained(folder) == [1, 3]


@pytest.mark.parametrize("at", [0, 9, 12, 25, 37])
def test_a_damaged_header_costs_no_letter(folder: Path, at: int) -> None:
    path = left_behind(folder, 1, 2)
    data = bytearray(path.read_bytes())
    data[at] ^= 0x01
    if at == 9:
        data[at] = 0
    path.write_bytes(data)
    assert drained(folder) == [1, 2]
    assert [kept.read_bytes() for kept in set_aside(folder)] == [bytes(data[:HEADER])]


@pytest.mark.parametrize("at", [HEADER - 12, HEADER - 1])
def test_a_damaged_position_only_puts_letters_again(folder: Path, at: int) -> None:
    store = Store()
    store.puts_left = 1
    with opened(folder) as journal:
        drive(journal.append(letters(1, 2)))
        drive(journal.drain(store, batch=1))
    path = only_file(folder)
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)
    assert drained(folder) == [1, 2]
    assert set_aside(folder) == []


def test_a_position_behind_the_end_only_puts_letters_again(folder: Path) -> None:
    store = Store()
    store.puts_left = 1
    with opened(folder) as journal:
        drive(journal.append(letters(1, 2, 3)))
        drive(journal.drain(store, batch=2))
    path = only_file(folder)
    os.truncate(path, spans(path)[0][1])
    assert drained(folder) == [1]


def test_every_crash_while_the_file_is_made_leaves_what_can_be_drained(tmp_path: Path) -> None:
    whole = left_behind(tmp_path / "whole", 1)
    for cut in range(HEADER + 1):
        folder = tmp_path / str(cut)
        folder.mkdir()
        (folder / whole.name).write_bytes(whole.read_bytes()[:cut])
        assert drained(folder) == []
        assert not list(folder.glob("*.journal"))


def test_a_body_made_to_look_like_a_frame_is_never_taken_for_a_letter(folder: Path) -> None:
    """Who sends messages knows how a frame is made, but not the marker that was drawn for this file."""
    payload = stored(letter(666))
    size = len(payload).to_bytes(4, "big")
    frame = size + zlib.crc32(payload, zlib.crc32(size)).to_bytes(4, "big") + payload
    with opened(folder) as journal:
        drive(journal.append([letter(1, body=(b"\0" * 8 + frame) * 3), letter(2)]))
    path = only_file(folder)
    data = bytearray(path.read_bytes())
    data[HEADER + 1] ^= 0xFF
    path.write_bytes(data)
    assert drained(folder) == [2]


def test_a_whole_frame_whose_letter_cannot_be_read_is_kept_aside(folder: Path) -> None:
    path = left_behind(folder, 1, 2, 3)
    replace_payload(path, 1, b"\x01garbage")
    assert drained(folder) == [1, 3]
    assert [b"garbage" in kept.read_bytes() for kept in set_aside(folder)] == [True]


def test_a_letter_in_a_newer_form_is_refused_and_stays(folder: Path) -> None:
    path = left_behind(folder, 1, 2, 3)
    replace_payload(path, 1, b"\xfenewer")
    store = Store()
    with opened(folder) as journal:
        drive(journal.append(letters(4)))
        with pytest.raises(SchemaTooNew, match="upgrade redrive"):
            drive(journal.drain(store))
        assert store.received == [1, 4]
    assert b"\xfenewer" in path.read_bytes()
    assert set_aside(folder) == []


def test_a_journal_of_a_newer_version_is_refused_and_holds_up_no_other(folder: Path) -> None:
    path = left_behind(folder, 1)
    data = bytearray(path.read_bytes())
    data[8:10] = (2).to_bytes(2, "big")
    path.write_bytes(data)
    assert pending(folder) == [(path.name, None, len(data), False)]
    store = Store()
    with opened(folder) as journal:
        drive(journal.append(letters(2)))
        with pytest.raises(SchemaTooNew, match=r"version 2.*upgrade redrive"):
            drive(journal.drain(store))
        assert journal.waiting == 0
        assert [waiting.is_owned for waiting in pending(folder)] == [False]
    assert store.received == [2]
    assert path.read_bytes() == data


def replace_payload(path: Path, index: int, payload: bytes) -> None:
    data = path.read_bytes()
    begin, end = spans(path)[index]
    size = len(payload).to_bytes(4, "big")
    frame = data[begin : begin + 8] + size + zlib.crc32(payload, zlib.crc32(size)).to_bytes(4, "big") + payload
    path.write_bytes(data[:begin] + frame + data[end:])


def test_a_folder_that_cannot_be_used_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with opened(tmp_path / "file") as journal:
        with pytest.raises(NotHeld, match="cannot write the journal"):
            drive(journal.append(letters(1)))
        with pytest.raises(StoreNotWritable):
            drive(journal.drain(Store()))
        assert journal.waiting == 0


def test_damage_that_cannot_be_kept_aside_stops_the_drain_and_drops_nothing(folder: Path) -> None:
    path = left_behind(folder, 1, 2)
    data = path.read_bytes()[:-1]
    path.write_bytes(data)
    begin, _ = spans(path)[-1]
    blocked = folder / f"{path.name}.{begin}.torn"
    blocked.mkdir()
    with opened(folder) as journal, pytest.raises(StoreNotWritable):
        drive(journal.drain(Store()))
    assert path.read_bytes()[HEADER:] == data[HEADER:]
    blocked.rmdir()
    assert drained(folder) == [1]


CHILD = """
import os, sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from test_journal import STORE, Journal, NotHeld, drive, letter, letters
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
from test_journal import Store
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
from test_journal import Store
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
