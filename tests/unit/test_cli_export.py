"""`redrive export`: whole letters as lines, streaming, and back again without loss."""

from __future__ import annotations

import json
import os
import re
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from msgspec.structs import replace

from redrive import BadSettings, Claim, Letter, Order, blocking
from redrive.model.letter import BodyRef, Original
from redrive.serve.cli.lines import letter_of, line_of
from redrive.testing import START, letter
from redrive.testing.kit.strategies import effort, letters
from tests.unit.shell import PATIENCE, Shell, filled, seen_on_a_terminal


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def read(lines: bytes) -> list[Letter]:
    return [letter_of(line) for line in lines.splitlines()]


def whole(one: Letter) -> Letter:
    """As an export has it: with the bodies inside."""
    original = one.original and replace(one.original, body_ref=None)
    return replace(one, body_ref=None, original=original)


@effort(200)
@given(letters())
def test_any_letter_is_the_same_after_a_line(one: Letter) -> None:
    line = line_of(whole(one))
    assert line.count(b"\n") == 1
    assert letter_of(line) == whole(one)


@pytest.mark.parametrize(
    "metadata",
    [
        {"at": datetime(2026, 1, 1, tzinfo=UTC)},
        {"raw": b"\xff", "deep": [{"x": b""}]},
        {"inner": {1: "one", 2.5: "two"}},
        {"huge": float("inf")},
        {"one": 1.0, "two": [1, 1.0, True, None, "x"]},
        {"big": 2**63},
    ],
    ids=lambda metadata: next(iter(metadata)),
)
def test_metadata_that_json_cannot_say_is_kept_exactly(metadata: dict[str, Any]) -> None:
    back = letter_of(line_of(letter("1", metadata=metadata))).metadata
    assert repr(back) == repr(metadata)


def test_a_line_is_what_show_prints_and_more() -> None:
    one = letter("1", body=b"\xff\x00", key=b"\xfe", headers=(("a", b"x"), ("b", b"\xff")), forgotten=b"0" * 16)
    shape = json.loads(line_of(replace(one, original=Original(body=b"first"))))
    assert (shape["schema"], shape["body_base64"], shape["key_base64"]) == (1, "/wA=", "/g==")
    assert shape["headers"] == [{"name": "a", "value": "x"}, {"name": "b", "value_base64": "/w=="}]
    assert (shape["original"]["body"], shape["status"]) == ("first", "pending")
    assert "metadata_msgpack" not in shape


@pytest.mark.parametrize("line", [b"", b"7", b"{}", b'{"schema": 2}', b'{"schema": 1, "id": "x"}', b'{"schema":1,"headers":[]}'])
def test_a_line_that_is_no_letter_is_refused_in_one_sentence(line: bytes) -> None:
    with pytest.raises(BadSettings, match="this line"):
        letter_of(line)


def test_letters_go_to_standard_output_oldest_first(shell: Shell) -> None:
    filled(shell)
    done = shell("export")
    with shell.store() as dlq:
        assert read(done.raw) == list(dlq.find(order=Order.OLDEST))
    assert done.err == "Exported 3 letters.\n"
    assert [one.source for one in read(shell("export", "source:mails").raw)] == ["mails"]
    assert shell("export", "none").raw == b""


def test_a_file_is_there_when_it_is_whole(shell: Shell) -> None:
    filled(shell)
    (shell.folder / "out.jsonl").write_text("what was there before")
    assert shell("export", "-o", "out.jsonl").err == "Exported 3 letters to out.jsonl.\n"
    assert len(read((shell.folder / "out.jsonl").read_bytes())) == 3
    assert (shell.folder / "out.jsonl").stat().st_mode & 0o777 == 0o600
    assert not (shell.folder / "out.jsonl.part").exists()


@pytest.mark.parametrize(
    "name",
    [
        "redrive.db",
        "./folder/../redrive.db",
        "link",
        "hard",
        "redrive.db-wal",
        "redrive.db-shm",
        "redrive.db.bodies/x.body",
        "redrive-desk.db",
        "redrive-queues.db",
    ],
)
def test_a_file_of_the_store_is_never_overwritten(name: str, shell: Shell) -> None:
    filled(shell)
    (shell.folder / "folder").mkdir()
    (shell.folder / "link").symlink_to("redrive.db")
    (shell.folder / "hard").hardlink_to(shell.folder / "redrive.db")
    (shell.folder / "redrive.toml").write_text('[queues]\nother = "sqlite:redrive-queues.db"\n')
    before = sorted(shell.folder.rglob("*"))
    for more in ([], ["--pytest", shell.letters()[0]["id"], "--handler", "json:loads"]):
        sentence = shell.refused("export", "-o", name, *more)
        assert re.fullmatch(
            rf"{re.escape(name.lstrip('./'))} would overwrite the store sqlite:\S+; name another file", sentence
        ), sentence
        assert sorted(shell.folder.rglob("*")) == before
    assert len(shell.letters()) == 3


def test_a_store_is_not_overwritten_by_what_is_written_aside(shell: Shell) -> None:
    filled(shell)
    (shell.folder / "redrive.db").rename(shell.folder / "x.part")
    assert "x would overwrite the store sqlite:x.part" in shell.refused("export", "-o", "x", "--store", "sqlite:x.part")
    assert len(read(shell("export", "--store", "sqlite:x.part").raw)) == 3


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("", "the name is empty; name a file, e.g. letters.jsonl"),
        (".", ". is a directory; name a file, e.g. letters.jsonl"),
        ("folder", "folder is a directory; name a file, e.g. letters.jsonl"),
        ("aside", "aside.part is a directory; name a file, e.g. letters.jsonl"),
        ("nowhere/out.jsonl", "nowhere/out.jsonl cannot be written: No such file or directory"),
        ("file/out.jsonl", "file/out.jsonl cannot be written: Not a directory"),
        ("n" * 300, "cannot be written: File name too long"),
        ("n" * 253, "cannot be written: File name too long"),
        ("loop", "loop cannot be written: Too many levels of symbolic links"),
    ],
)
def test_a_place_that_no_file_can_have_is_told_before_anything_is_opened(name: str, sentence: str, shell: Shell) -> None:
    for folder in ("folder", "aside.part"):
        (shell.folder / folder).mkdir()
    (shell.folder / "file").touch()
    (shell.folder / "loop").symlink_to("loop")
    before = sorted(shell.folder.rglob("*"))
    assert sentence in shell.refused("export", "-o", name)
    assert sorted(shell.folder.rglob("*")) == before


def test_a_link_is_followed(shell: Shell) -> None:
    filled(shell)
    (shell.folder / "folder").mkdir()
    (shell.folder / "link").symlink_to("folder/out.jsonl")
    for number in (3, 1):
        shell("export", *(["source:mails"] if number == 1 else []), "-o", "link")
        assert (shell.folder / "link").is_symlink()
        assert len(read((shell.folder / "folder" / "out.jsonl").read_bytes())) == number
    assert [path.name for path in (shell.folder / "folder").iterdir()] == ["out.jsonl"]


def test_a_pipe_is_written_into(shell: Shell) -> None:
    filled(shell)
    os.mkfifo(shell.folder / "pipe")
    running = shell.start("export", "-o", "pipe")
    with (shell.folder / "pipe").open("rb") as pipe:
        assert len(read(pipe.read())) == 3
    _, said = running.communicate(timeout=PATIENCE)
    assert (running.returncode, said) == (0, "Exported 3 letters to pipe.\n")
    assert (shell.folder / "pipe").is_fifo()


def test_a_device_is_written_into(shell: Shell) -> None:
    filled(shell)
    (shell.folder / "device").symlink_to("/dev/full")
    told = "Broke off after 3 letters.\nError: device cannot be written: No space left on device\n"
    assert shell("export", "-o", "device", status=1).err == told
    assert sorted(path.name for path in shell.folder.glob("device*")) == ["device"]


def test_a_file_that_grows_too_large_leaves_nothing_behind(shell: Shell) -> None:
    with shell.store() as dlq:
        dlq.hold([letter(str(number), body=b"x" * 5000) for number in range(500)])
    (shell.folder / "out.jsonl").write_text("what was there before")
    done = shell.sh("ulimit -f 100; exec $program export -o out.jsonl")
    told, mistake = done.stderr.splitlines()
    assert re.fullmatch(r"Broke off after \d+ letters; out.jsonl was not written\.", told)
    assert (done.returncode, mistake) == (1, "Error: out.jsonl cannot be written: File too large")
    assert (shell.folder / "out.jsonl").read_text() == "what was there before"
    assert not (shell.folder / "out.jsonl.part").exists()


def test_nothing_is_redacted_for_its_owner(shell: Shell) -> None:
    with shell.store() as dlq:
        dlq.capture({"card": "4111 1111 1111 1111"}, ValueError("bad"), source="s")
    (one,) = read(shell("export", REDRIVE_REDACT="cards").raw)
    assert b"4111 1111 1111 1111" in one.body
    assert "4111" not in shell("ls", "--json", REDRIVE_REDACT="cards").out


def test_large_bodies_are_inside(shell: Shell) -> None:
    with shell.store() as dlq:
        dlq.capture(b"\xff" * 2_000_000, ValueError("bad"), source="s")
    (one,) = read(shell("export").raw)
    assert (one.body, one.body_ref) == (b"\xff" * 2_000_000, None)


def test_a_letter_whose_body_is_missing_is_told_of_and_the_others_come(shell: Shell) -> None:
    with shell.store() as dlq:
        dlq.hold(
            [letter("1"), replace(letter("2"), body=b"", body_ref=BodyRef(name="x." + "0" * 32 + ".body", size=1, sha256=""))]
        )
    done = shell("export", status=1)
    assert [one.source_id for one in read(done.raw)] == ["1"]
    assert f"Could not export {letter('2').id}: the body x." in done.err


def test_letters_that_somebody_holds_are_told_of(shell: Shell) -> None:
    filled(shell)
    with shell.store() as dlq:
        dlq.letters.claim(Claim(owner="ann", lease=timedelta(hours=1), limit=1, what=dlq.within()))
    done = shell("export")
    assert len(read(done.raw)) == 3
    assert "1 letter is held by somebody right now: the status says retrying." in done.err


def test_what_was_exported_can_be_put_into_another_store(shell: Shell) -> None:
    filled(shell)
    with shell.store() as dlq, blocking.open(f"sqlite:{shell.folder}/new.db") as new:
        new.letters.put(read(shell("export").raw))
        assert list(new.find()) == list(dlq.find())


def test_a_terminal_shows_how_far_it_is(shell: Shell) -> None:
    with shell.store() as dlq:
        dlq.hold([letter(str(number), at=START + timedelta(seconds=number)) for number in range(300)])
    seen, status = seen_on_a_terminal(shell, "export", "-o", "out.jsonl")
    assert status == 0
    assert "exporting" in seen
    assert "300 of 300" in seen
    assert "Exported 300 letters to out.jsonl." in seen


def test_a_reader_that_has_enough_is_no_mistake(shell: Shell) -> None:
    with shell.store() as dlq:
        dlq.hold([letter(str(number), body=b"x" * 5000) for number in range(500)])
    running = shell.start("export")
    assert running.stdout is not None
    assert running.stdout.readline().startswith('{"schema":1')
    running.stdout.close()
    assert running.stderr is not None
    said = running.stderr.read()
    assert (running.wait(PATIENCE), "Traceback" in said) == (0, False)
    running.stderr.close()


def test_a_cut_leaves_no_half_file(shell: Shell) -> None:
    with shell.store() as dlq:
        dlq.hold([letter(str(number), body=b"x" * 5000) for number in range(500)])
    os.mkfifo(shell.folder / "out.jsonl.part")
    running = shell.start("export", "-o", "out.jsonl")
    try:
        with (shell.folder / "out.jsonl.part").open("rb") as pipe:
            pipe.read(1)
            running.send_signal(signal.SIGINT)
            pipe.read()
        assert running.wait(PATIENCE) == 130
        assert running.stderr is not None
        assert "; out.jsonl was not written." in running.stderr.read()
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
        running.communicate(timeout=PATIENCE)
    assert not list(shell.folder.glob("out.jsonl*"))
