"""`redrive copy`: people move house with one command, and give it again when it was cut short."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from redrive import Letter, StoreFull, blocking, wiring
from redrive.model.amendment import Amendment
from redrive.model.lease import Claim
from redrive.ports.opening import Opened
from redrive.serve.cli.copy import command
from redrive.testing import Faulty, Moment, letter, raising
from tests.unit.shell import BAD, PATIENCE, Shell, eventually, filled, seen_on_a_terminal

MANY = 3000
ABOVE_THE_LIMIT = 2_000_000


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def put(shell: Shell, name: str, *letters: Letter) -> None:
    async def story() -> None:
        store = wiring.store(f"sqlite:{shell.folder}/{name}").letters
        await store.put(letters)
        await store.close()

    asyncio.run(story())


def in_store(shell: Shell, name: str) -> list[Letter]:
    with blocking.open(f"sqlite:{shell.folder}/{name}") as dlq:
        return list(dlq.find())


def test_copy_brings_every_letter_over_and_proves_it(shell: Shell) -> None:
    filled(shell)
    put(shell, "new.db", letter("another"))
    first, second, third = shell("copy", "sqlite:redrive.db", "sqlite:new.db").out.splitlines()
    assert first == "Copied 3 letters."
    assert re.fullmatch(
        r"Verified by count and checksum [0-9a-f]{12}: every letter of sqlite:redrive.db is in sqlite:new.db, unchanged\.", second
    )
    assert third == "sqlite:new.db also has 1 letter from elsewhere."
    there = {one.id: one for one in in_store(shell, "new.db")}
    assert all(there[one.id] == one for one in in_store(shell, "redrive.db"))
    again = shell("copy", "sqlite:redrive.db", "sqlite:new.db").out.splitlines()
    assert again == ["Copied 0 letters; 3 were there already.", second, third]


def test_copy_brings_all_namespaces(shell: Shell) -> None:
    put(shell, "a.db", letter("1", namespace="shop"), letter("1", namespace="bank"), letter("1"))
    assert shell("copy", "sqlite:a.db", "sqlite:b.db", "--json", REDRIVE_NAMESPACE="shop").json["copied"] == 3


def test_copy_in_json_says_all_that_it_counted(shell: Shell) -> None:
    filled(shell)
    answer = shell("copy", "sqlite:redrive.db", "sqlite:new.db", "--json").json
    assert (answer["from"], answer["to"]) == ("sqlite:redrive.db", "sqlite:new.db")
    assert (answer["verified"], answer["dry_run"], answer["seen"], answer["copied"]) == (True, False, 3, 3)
    assert answer["source_count"] == answer["target_count"] == 3
    assert answer["source_checksum"] == answer["target_checksum"]
    assert len(answer["source_checksum"]) == 64


def test_large_bodies_come_along(shell: Shell) -> None:
    with shell.store() as dlq:
        id = dlq.capture(b"\xff" * ABOVE_THE_LIMIT, BAD, source="s").letter.id
    shell("copy", "sqlite:redrive.db", "sqlite:new.db")
    assert len(list((shell.folder / "new.db.bodies").iterdir())) == 1
    assert shell("show", str(id), "--body", "--store", "sqlite:new.db").raw == b"\xff" * ABOVE_THE_LIMIT


def test_letters_that_differ_are_left_alone_until_one_says_otherwise(shell: Shell) -> None:
    put(shell, "a.db", letter("1", body=b"ours"))
    put(shell, "b.db", letter("1", body=b"theirs"))
    left, verdict = shell("copy", "sqlite:a.db", "sqlite:b.db", status=1).out.splitlines()[1:]
    id = str(letter("1").id)
    assert left == f"1 letter in sqlite:b.db differs ({id[:8]}); --overwrite puts what sqlite:a.db has in their place."
    assert verdict == "Not verified: 0 of 1 letters of sqlite:a.db are in sqlite:b.db, unchanged."
    assert shell("copy", "sqlite:a.db", "sqlite:b.db", "--json", status=1).json["differing_ids"] == [id]
    dry = shell("copy", "sqlite:a.db", "sqlite:b.db", "--overwrite", "--dry-run").out
    assert "--overwrite would replace them" in dry
    assert in_store(shell, "b.db")[0].body == b"theirs"
    assert "replaced 1." in shell("copy", "sqlite:a.db", "sqlite:b.db", "--overwrite").out
    assert in_store(shell, "b.db") == in_store(shell, "a.db")


def test_letters_that_somebody_holds_are_told_of(shell: Shell) -> None:
    filled(shell)
    with shell.store() as dlq:
        dlq.letters.claim(Claim(owner="ann", lease=timedelta(hours=1), limit=1, what=dlq.within()))
    out = shell("copy", "sqlite:redrive.db", "sqlite:new.db", status=1).out
    assert "1 letter is held by somebody and not copied; run it again when it is settled." in out
    assert "Not verified: 2 of 3 letters of sqlite:redrive.db are in sqlite:new.db, unchanged." in out


def test_a_dry_run_makes_nothing(shell: Shell) -> None:
    filled(shell)
    assert shell("copy", "sqlite:redrive.db", "sqlite:new.db", "--dry-run").out == "Would copy 3 letters.\n"
    assert not (shell.folder / "new.db").exists()


def test_an_empty_store_is_no_mistake(shell: Shell) -> None:
    put(shell, "a.db")
    assert shell("copy", "sqlite:a.db", "sqlite:b.db").out == "sqlite:a.db has no letters; nothing was copied.\n"


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["sqlite:no.db", "sqlite:b.db"], "there is nothing to copy from sqlite:no.db: "),
        (["sqlite:no.db", "sqlite:no.db"], "are the same store; name another one to copy to"),
        (["postgres://h/db", "postgresql://h/db"], "are the same store; name another one to copy to"),
        (["memory:", "sqlite:b.db"], "memory: lives and ends with one process; name a store that lasts"),
        (["sqlite:no.db", "memory:"], "memory: lives and ends with one process; name a store that lasts"),
        (["a.db", "sqlite:b.db"], "'a.db' has no scheme"),
        (["sqlite:a.db", "sqlit:b.db"], "did you mean sqlite:?"),
        (["sqlite:a.db"], "Missing argument 'TO'"),
        (["sqlite:a.db", "sqlite:b.db", "--batch", "0"], "0 is not in the range"),
    ],
    ids=str,
)
def test_a_mistake_gets_one_clear_sentence_and_makes_nothing(args: list[str], sentence: str, shell: Shell) -> None:
    assert sentence in shell.refused("copy", *args)
    assert list(shell.folder.iterdir()) == []


def test_one_file_under_two_names_is_one_store(shell: Shell) -> None:
    filled(shell)
    (shell.folder / "link.db").symlink_to("redrive.db")
    for other in ("sqlite:./redrive.db", f"sqlite://{shell.folder}/redrive.db", "sqlite:link.db"):
        assert "are the same store" in shell.refused("copy", "sqlite:redrive.db", other)


def test_a_target_that_cannot_be_written_gets_one_clear_sentence(shell: Shell) -> None:
    filled(shell)
    assert "nowhere" in shell.refused("copy", "sqlite:redrive.db", "sqlite:nowhere/new.db", status=1)


@contextmanager
def halfway(shell: Shell) -> Iterator[subprocess.Popen[str]]:
    """The program in the middle of a copy: some letters have come over, and somebody else's lock holds up the rest."""
    put(shell, "a.db", *(letter(str(number)) for number in range(MANY)))
    put(shell, "b.db")
    running = shell.start("copy", "sqlite:a.db", "sqlite:b.db", "--batch", "1")
    try:
        with closing(sqlite3.connect(shell.folder / "b.db", isolation_level=None)) as other:
            eventually(lambda: other.execute("SELECT count(*) FROM letters").fetchone()[0] > 10)
            other.execute("PRAGMA busy_timeout = 60000")
            other.execute("BEGIN IMMEDIATE")
            assert 10 < other.execute("SELECT count(*) FROM letters").fetchone()[0] < MANY
            yield running
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
        running.communicate(timeout=PATIENCE)


def test_after_kill_9_the_same_command_goes_on(shell: Shell) -> None:
    with halfway(shell) as running:
        running.kill()
        assert running.wait(PATIENCE) == -signal.SIGKILL
    answer = shell("copy", "sqlite:a.db", "sqlite:b.db", "--json").json
    assert answer["verified"]
    assert answer["already"] > 0
    assert answer["copied"] > 0
    assert answer["already"] + answer["copied"] == answer["target_count"] == MANY


def test_ctrl_c_says_how_far_it_came_and_how_to_go_on(shell: Shell) -> None:
    with halfway(shell) as running:
        running.send_signal(signal.SIGINT)
        assert running.wait(PATIENCE) == 130
        assert running.stdout is not None
        assert running.stderr is not None
        assert running.stdout.read() == ""
        said = re.fullmatch(
            r"Stopped after ([\d,]+) of 3,000 letters; the same command goes on from there\.\n", running.stderr.read()
        )
    assert said is not None
    answer = shell("copy", "sqlite:a.db", "sqlite:b.db", "--json").json
    assert answer["verified"]
    assert answer["already"] >= int(said[1].replace(",", ""))


def test_a_store_that_fails_halfway_is_told_of_with_how_far_it_came(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    put(shell, "a.db", letter("1"), letter("2"), letter("3"))
    open_store = wiring.store

    async def pass_by() -> None:
        return None

    def failing(url: str) -> Opened:
        opened = open_store(url)
        faulty = Faulty(opened.letters)
        faulty.lay("put", Moment.BEFORE, pass_by, times=2)
        faulty.lay("put", Moment.BEFORE, raising(StoreFull("no space is left")))
        return replace(opened, letters=faulty)

    monkeypatch.setattr(wiring, "store", failing)
    with pytest.raises(StoreFull):
        command.main([f"sqlite:{shell.folder}/{name}.db" for name in "ab"] + ["--batch", "1"], standalone_mode=False)
    assert capsys.readouterr().err == "Broke off after 2 of 3 letters; the same command goes on from there.\n"


def test_a_terminal_shows_how_far_it_is(shell: Shell) -> None:
    put(shell, "a.db", *(letter(str(number)) for number in range(200)))
    seen, status = seen_on_a_terminal(shell, "copy", "sqlite:a.db", "sqlite:b.db", "--batch", "50")
    assert status == 0
    assert "copying" in seen
    assert "200 of 200" in seen
    assert "Verified by count and checksum" in seen
    assert "copying" not in shell("copy", "sqlite:a.db", "sqlite:c.db").err


def test_an_amended_letter_is_the_same_letter_in_the_new_store(shell: Shell) -> None:
    with shell.store() as dlq:
        id = dlq.capture(b"first", BAD, source="s").letter.id
        dlq.amend(Amendment(id=id, body=b"mended"))
    shell("copy", "sqlite:redrive.db", "sqlite:new.db")
    assert in_store(shell, "new.db") == in_store(shell, "redrive.db")
