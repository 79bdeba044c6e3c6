"""A damaged journal: each letter that is whole arrives, and what is not is kept aside, byte by byte."""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import pytest

from redrive.engine.journal import pending, set_aside
from redrive.model.arrival import Held
from redrive.model.errors import NotHeld, SchemaTooNew, StoreError, StoreNotWritable
from redrive.model.letter import Letter
from redrive.model.stored import restored, stored
from redrive.ports.inline import drive
from tests.unit.journals import (
    HEADER,
    Store,
    drained,
    left_behind,
    letter,
    letters,
    number_of,
    only_file,
    opened,
    spans,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "journal"


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


def test_a_letter_that_is_refused_while_others_are_taken_is_set_aside_and_holds_up_nobody(folder: Path) -> None:
    class Picky(Store):
        async def put(self, letters: Sequence[Letter], *, now: datetime | None = None) -> list[Held]:
            if any(number_of(letter) == 2 for letter in letters):
                raise StoreError("not this one")
            return await super().put(letters, now=now)

    store = Picky()
    with opened(folder) as journal:
        drive(journal.append(letters(1, 2, 3)))
        assert drive(journal.drain(store)) == 2
        assert (store.received, journal.waiting) == ([1, 3], 0)
        (kept,) = set_aside(folder)
        assert kept.name.endswith(".refused")
        assert number_of(restored(kept.read_bytes())) == 2
        drive(journal.append(letters(2)))
        with pytest.raises(StoreError):
            drive(journal.drain(store))
        assert journal.waiting == 1
