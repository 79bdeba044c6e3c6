"""`redrive import`: what was exported comes into any store as it was, and twice changes nothing."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import signal
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from redrive import BadSettings, Claim, Letter, Order, Status, blocking, wiring
from redrive.backends.files.bodies import FileBodies
from redrive.backends.memory import MemoryLetters
from redrive.engine.bring_in import BroughtIn, bring_in
from redrive.engine.whole import Side
from redrive.model.amendment import Amendment
from redrive.model.letter import HISTORY_LIMIT, Origin, RetryPlan
from redrive.serve.cli.cloud_events import event_of
from redrive.serve.cli.lines import letter_of, line_of
from redrive.testing import START, attempt, letter
from redrive.testing.kit.strategies import effort, letters
from tests.unit.shell import BAD, PATIENCE, Shell, eventually, filled, seen_on_a_terminal

FORMS = ["lines", "cloudevents"]
MANY = 3000
FILLED = 2000
ABOVE_THE_LIMIT = 2_000_000


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def written(shell: Shell, *letters: Letter, as_line: Callable[[Letter], bytes] = line_of) -> None:
    (shell.folder / "in.jsonl").write_bytes(b"".join(map(as_line, letters)))


def in_store(shell: Shell, name: str = "redrive.db") -> list[Letter]:
    with blocking.open(f"sqlite:{shell.folder}/{name}") as dlq:
        return list(dlq.find(order=Order.OLDEST))


def inside(one: Letter) -> Letter:
    """As an export has it: with the bodies inside."""
    return replace(one, body_ref=None, original=one.original and replace(one.original, body_ref=None))


def brought(lines: list[bytes], target: Side, **how: Any) -> BroughtIn:
    return asyncio.run(bring_in(lines, letter_of, target, **how))


@effort()
@given(st.lists(letters().map(inside), max_size=4, unique_by=lambda one: one.id), st.integers(1, 3))
def test_whatever_was_written_comes_in_as_it_was(drawn: list[Letter], batch: int) -> None:
    async def story(folder: Path) -> None:
        opened = wiring.store(f"sqlite:{folder}/letters.db")
        assert opened.bodies_folder is not None
        target = Side(letters=opened.letters, bodies=FileBodies(opened.bodies_folder), body_limit=8)
        try:
            lines = list(map(line_of, drawn))
            first = await bring_in(lines, letter_of, target, batch=batch)
            again = await bring_in(lines, letter_of, target, batch=batch)
            assert (first.brought, again.brought, again.already) == (len(drawn), 0, len(drawn))
            for one, known in zip(drawn, await target.letters.get([one.id for one in drawn]), strict=True):
                assert known is not None
                assert replace(known, body=b"", body_ref=None, original=None) == replace(one, body=b"", original=None)
                assert (known.body_ref is not None) == (len(one.body) > 8)
        finally:
            await opened.letters.close()

    with TemporaryDirectory() as folder:
        asyncio.run(story(Path(folder)))


@pytest.mark.parametrize("form", FORMS)
def test_a_filled_store_goes_out_and_comes_in_equal(form: str, shell: Shell) -> None:
    shell("testing", "fill", "--count", str(FILLED))
    with shell.store() as dlq:
        dlq.capture(b"\xff" * ABOVE_THE_LIMIT, BAD, source="large")
        dlq.capture(b'{\n "order": "\xff"}', BAD, source="undecodable")
        id = dlq.capture(b"\xfe" * ABOVE_THE_LIMIT, BAD, source="mended").letter.id
        dlq.amend(Amendment(id=id, body=b"mended"))
    out = shell("export", "--format", form).raw
    done = shell("import", "--store", "sqlite:new.db", stdin=out)
    assert (done.out, done.err) == (f"Imported {FILLED + 3:,} letters.\n", "")
    assert in_store(shell, "new.db") == in_store(shell)
    assert len(list((shell.folder / "new.db.bodies").iterdir())) == 2
    assert shell("export", "--store", "sqlite:new.db").raw == shell("export").raw
    for store in ("sqlite:new.db", "sqlite:redrive.db"):
        again = shell("import", "-", "--replace", "--yes", "--store", store, stdin=out).out
        assert again == f"Imported 0 letters; {FILLED + 3:,} were there already.\n"


def test_every_field_is_kept_also_where_a_capture_would_set_it(shell: Shell) -> None:
    history = tuple(attempt(f"a{number}") for number in range(HISTORY_LIMIT))
    odd = letter("1", namespace="shop", history=history, history_dropped=7, forgotten=b"0" * 112, metadata={"raw": b"\xff"})
    stand = [letter(status.value, status=status, generation=3) for status in Status if status is not Status.RETRYING]
    written(shell, odd, *stand)
    shell("import", "in.jsonl")
    with shell.store() as dlq:
        assert dlq.letters.get([one.id for one in (odd, *stand)]) == [odd, *stand]


def test_both_forms_may_stand_in_one_file_with_blank_lines_and_a_mark_before_them(shell: Shell) -> None:
    (shell.folder / "in.jsonl").write_bytes(
        b"\xef\xbb\xbf"
        + line_of(letter("1"))
        + b"\n \r\n"
        + event_of(letter("2")).rstrip()
        + b"\r\n"
        + line_of(letter("3")).rstrip()
    )
    assert shell("import", "in.jsonl").out == "Imported 3 letters.\n"
    assert {one.source_id for one in in_store(shell)} == {"1", "2", "3"}


def test_letters_that_differ_are_left_alone_until_one_says_otherwise(shell: Shell) -> None:
    written(shell, letter("1", body=b"ours"), letter("2"), letter("3"))
    with shell.store() as dlq:
        dlq.letters.put([letter("1", body=b"theirs"), letter("2")])
    first, second = shell("import", "in.jsonl", status=1).out.splitlines()
    assert first == "Imported 1 letter; 1 was there already."
    id = str(letter("1").id)
    assert second == f"1 letter in sqlite:redrive.db differs ({id[:8]}); --replace puts what was read in their place."
    assert "--replace would replace them" in shell("import", "in.jsonl", "--replace", "--dry-run").out
    refused = shell.refused("import", "in.jsonl", "--replace")
    assert refused == "This would replace 1 letter. Say --yes to do it without being asked."
    assert {one.body for one in in_store(shell) if one.source_id == "1"} == {b"theirs"}
    assert shell("import", "in.jsonl", "--replace", "--yes").out == "Imported 0 letters; replaced 1; 2 were there already.\n"
    assert {one.body for one in in_store(shell) if one.source_id == "1"} == {b"ours"}
    assert shell("import", "in.jsonl", "--replace").out == "Imported 0 letters; 3 were there already.\n"


def test_what_is_read_only_once_is_not_replaced_without_a_yes(shell: Shell) -> None:
    with shell.store() as dlq:
        dlq.letters.put([letter("1", body=b"theirs")])
    line = line_of(letter("1", body=b"ours"))
    assert "Say --yes to replace letters that differ." in shell.refused("import", "--replace", stdin=line)
    assert shell("import", "--replace", "-y", stdin=line).out == "Imported 0 letters; replaced 1.\n"


def test_a_person_is_asked_before_letters_are_replaced(shell: Shell) -> None:
    written(shell, letter("1", body=b"ours"))
    with shell.store() as dlq:
        dlq.letters.put([letter("1", body=b"theirs")])
    seen, status = seen_on_a_terminal(shell, "import", "in.jsonl", "--replace", typed=b"n\n")
    assert "1 letter in sqlite:redrive.db differs; replace it? [y/N]:" in seen
    assert (status, in_store(shell)[0].body) == (130, b"theirs")
    seen, status = seen_on_a_terminal(shell, "import", "in.jsonl", "--replace", typed=b"y\n")
    assert (status, in_store(shell)[0].body) == (0, b"ours")


def test_a_letter_that_comes_twice_is_one_letter(shell: Shell) -> None:
    written(shell, letter("1"), letter("1"), letter("1", body=b"later"))
    answer = shell("import", "in.jsonl", "--json", status=1).json
    assert (answer["brought"], answer["already"], answer["differing"], answer["whole"]) == (1, 1, 1, False)
    shell("import", "in.jsonl", "--replace", "--yes")
    assert [one.body for one in in_store(shell)] == [b"later"]


def test_equal_letters_are_equal_however_their_defaults_came_about() -> None:
    side = Side(letters=MemoryLetters())
    spelled_out = letter(
        "1", origin=Origin(), retry=RetryPlan(policy="".join("never")), content_type="application/" + "octet-stream"
    )
    asyncio.run(side.letters.put([spelled_out]))
    assert brought([line_of(letter("1"))], side).already == 1


def test_a_dry_run_makes_nothing(shell: Shell) -> None:
    written(shell, letter("1"), letter("2"))
    assert shell("import", "in.jsonl", "--dry-run").out == "Would import 2 letters.\n"
    assert not (shell.folder / "redrive.db").exists()


def test_import_in_json_says_all_that_it_counted(shell: Shell) -> None:
    written(shell, letter("1"), letter("2"))
    with (shell.folder / "in.jsonl").open("ab") as file:
        file.write(b"no letter\n")
    answer = shell("import", "in.jsonl", "--json", status=1).json
    assert (answer["store"], answer["dry_run"], answer["whole"]) == ("sqlite:redrive.db", False, False)
    assert (answer["lines"], answer["brought"], answer["unreadable"], answer["differing_ids"]) == (3, 2, 1, [])
    assert answer["mistakes"] == ["line 3: this line is no JSON: invalid character (byte 4)"]


def test_a_letter_that_was_held_when_it_was_exported_comes_in_as_pending(shell: Shell) -> None:
    filled(shell)
    with shell.store() as dlq:
        dlq.letters.claim(Claim(owner="ann", lease=timedelta(hours=1), limit=1, what=dlq.within()))
    lines = shell("export").raw
    told = shell("import", "--store", "sqlite:new.db", stdin=lines).out
    assert "1 letter was held by somebody when exported; it is pending here." in told
    assert {one.status for one in in_store(shell, "new.db")} == {Status.PENDING, Status.COMPLETED}
    assert "3 were there already" in shell("import", "--store", "sqlite:new.db", stdin=lines).out


def changed(**fields: Any) -> bytes:
    return json.dumps(json.loads(line_of(letter("bad"))) | fields).encode()


UNREADABLE: list[tuple[bytes, str]] = [
    (b"hello", "this line is no JSON: "),
    (b"\x1f\x8b\x08\x00", "this line is not UTF-8"),
    (b'{"schema":1,"source":"\xff"}', "this line is not UTF-8"),
    (b"7", "this line holds no letter: a letter is a JSON object"),
    (b"[" * 100_000, "this line holds no letter: "),
    (b'{"schema":1,"x":' + b"[" * 100_000, "this line holds no letter: it is nested too deep"),
    (b'{"order":7}', "this line holds no letter: it has neither schema nor specversion, as what redrive export writes has"),
    (b'{"schema":"1"}', "this line holds no letter: its schema is no number"),
    (b'{"schema":2}', "this line has schema 2, this redrive knows 1; upgrade redrive"),
    (b'{"specversion":"1.0","type":"a.b"}', "this event is of type a.b, this redrive knows io.redrive.letter.v1; only"),
    (changed(id="x"), "this line holds no letter: Invalid UUID"),
    (changed(updated_at="2026-01-01T00:00:00"), "its instants must be in UTC, e.g. 2026-01-31T14:00:00Z"),
    (changed(updated_at="2026-01-01T00:00:00+02:00"), "its instants must be in UTC"),
    (changed(priority=2**63), "a number in it is too small or too large"),
    (changed(generation=0), "a number in it is too small or too large"),
    (changed(metadata={"n": 2**70}), "holds a value that cannot be stored"),
]


@pytest.mark.parametrize(("line", "sentence"), UNREADABLE, ids=[sentence for _, sentence in UNREADABLE])
def test_a_line_that_cannot_be_read_is_told_and_the_others_come(line: bytes, sentence: str, shell: Shell) -> None:
    (shell.folder / "in.jsonl").write_bytes(line_of(letter("1")) + line + b"\n" + line_of(letter("3")))
    done = shell("import", "in.jsonl", status=1)
    assert done.out == "Imported 2 letters.\n"
    assert done.err.startswith("Could not read line 2: this ")
    assert sentence in done.err
    assert done.err.count("\n") == 1
    assert len(in_store(shell)) == 2


def test_of_many_lines_that_cannot_be_read_the_first_are_told_and_all_are_counted(shell: Shell) -> None:
    (shell.folder / "in.jsonl").write_bytes(b"x\n" * 100 + line_of(letter("1")))
    done = shell("import", "in.jsonl", status=1)
    assert done.out == "Imported 1 letter.\n"
    *told, counted = done.err.splitlines()
    assert [line.partition(": ")[0] for line in told] == [f"Could not read line {number}" for number in range(1, 21)]
    assert counted == "Could not read 100 lines in all."


@pytest.mark.parametrize("form", [line_of, event_of])
def test_a_file_that_was_cut_off_loses_only_the_cut_line(form: Callable[[Letter], bytes], shell: Shell) -> None:
    written(shell, *(letter(str(number)) for number in range(5)), as_line=form)
    whole = (shell.folder / "in.jsonl").read_bytes()
    (shell.folder / "in.jsonl").write_bytes(whole[:-200])
    done = shell("import", "in.jsonl", status=1)
    assert done.out == "Imported 4 letters.\n"
    assert done.err.startswith("Could not read line 5: this line is no JSON: ")
    assert done.err.endswith("; all ends there: it may have been cut off\n")


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["none.jsonl"], "there is no file none.jsonl; name one that redrive export wrote, or - for standard input"),
        (["none.jsonl", "--replace"], "there is no file none.jsonl; "),
        (["."], ". is a directory; name a file that redrive export wrote"),
        ([".", "--replace"], ". is a directory; "),
        (["x" * 5000, "--replace"], "cannot be opened: File name too long"),
        (["-", "--store", "memory:"], "memory: lives and ends with one process; name a store that lasts"),
        (["-", "--store", "sqlit:x"], "did you mean sqlite:?"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_mistake_gets_one_clear_sentence_and_makes_nothing(args: list[str], sentence: str, shell: Shell) -> None:
    assert sentence in shell.refused("import", *args)
    assert list(shell.folder.iterdir()) == []


@pytest.mark.parametrize("given", [b"", b"\n\n"])
def test_nothing_to_import_is_no_mistake(given: bytes, shell: Shell) -> None:
    assert shell("import", stdin=given).out == "There are no letters to import.\n"


def test_a_letter_that_the_store_refuses_is_told_and_the_others_come(shell: Shell) -> None:
    line = changed(body_ref={"name": "../x.body", "size": 1, "sha256": ""})
    done = shell("import", status=1, stdin=line + b"\n" + line_of(letter("1")))
    assert "Imported 1 letter." in done.out
    assert f"Could not import {letter('bad').id}: its body is in a file" in done.out


def test_large_letters_are_read_few_at_a_time() -> None:
    at_once: list[int] = []

    class Counting(MemoryLetters):
        async def put(self, letters: Any, *, now: Any = None) -> Any:
            at_once.append(sum(len(one.body) for one in letters))
            return await super().put(letters, now=now)

    lines = [line_of(letter(str(number))) for number in range(20)]
    lines += [line_of(letter(f"large {number}", body=b"x" * 1_000_000)) for number in range(40)]
    report = brought(lines, Side(letters=Counting()))
    assert (report.brought, sum(at_once) > 40_000_000, max(at_once) < 10_000_000) == (60, True, True)


def test_a_batch_has_at_least_one_letter() -> None:
    with pytest.raises(BadSettings, match="at least 1"):
        brought([], Side(letters=MemoryLetters()), batch=0)


@contextmanager
def halfway(shell: Shell) -> Iterator[subprocess.Popen[str]]:
    """The program in the middle of an import: some letters have come in, and it waits for the rest."""
    written(shell, *(letter(str(number), at=START + timedelta(seconds=number)) for number in range(MANY)))
    in_store(shell)
    os.mkfifo(shell.folder / "pipe")
    running = shell.start("import", "pipe")
    try:
        lines = (shell.folder / "in.jsonl").read_bytes().splitlines(keepends=True)
        with (shell.folder / "pipe").open("wb") as pipe, closing(sqlite3.connect(shell.folder / "redrive.db")) as other:
            pipe.write(b"".join(lines[: MANY // 2]))
            pipe.flush()
            eventually(lambda: other.execute("SELECT count(*) FROM letters").fetchone()[0] > 100)
            yield running
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
        running.communicate(timeout=PATIENCE)


def test_after_kill_9_the_same_command_goes_on(shell: Shell) -> None:
    with halfway(shell) as running:
        running.kill()
        assert running.wait(PATIENCE) == -signal.SIGKILL
    answer = shell("import", "in.jsonl", "--json").json
    assert answer["already"] > 100
    assert answer["already"] + answer["brought"] == MANY == len(in_store(shell))


def test_ctrl_c_ends_it_also_while_it_waits_for_more_and_says_how_to_go_on(shell: Shell) -> None:
    with halfway(shell) as running:
        running.send_signal(signal.SIGINT)
        assert running.wait(PATIENCE) == 130
        assert running.stdout is not None
        assert running.stderr is not None
        assert running.stdout.read() == ""
        said = running.stderr.read()
        assert re.fullmatch(r"Stopped after [\d,]+ lines; the same command goes on from there\.\n", said), said
    assert shell("import", "in.jsonl", "--json").json["whole"]


def test_a_terminal_shows_how_far_it_is(shell: Shell) -> None:
    written(shell, *(letter(str(number)) for number in range(300)))
    seen, status = seen_on_a_terminal(shell, "import", "in.jsonl")
    assert status == 0
    assert "importing" in seen
    assert "300 of 300" in seen
    assert "Imported 300 letters." in seen
    assert "importing" not in shell("import", "in.jsonl").err


def test_a_line_with_damaged_base64_is_told_of_and_not_imported(shell: Shell) -> None:
    with shell.store() as dlq:
        dlq.capture(b"\xff\xfe\xfd", ValueError("bad"), source="orders", id="1")
    line = shell("export").out
    packed = base64.b64encode(b"\xff\xfe\xfd").decode()
    assert packed in line
    done = shell.ended(
        "import", "-", "--store", "sqlite:other.db", stdin=line.replace(packed, f"{packed[:2]}!{packed[2:]}").encode()
    )
    assert (done.status, "line 1" in done.err + done.out) == (1, True)
    assert "Traceback" not in done.err
