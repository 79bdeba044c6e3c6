"""`redrive purge`, `archive`, `restore`, `discard`: count first, ask, do, tell; and go on after a cut."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from redrive import Claim, Field, Status
from redrive.testing import START, letter
from tests.unit.shell import PATIENCE, Shell, eventually, filled, seen_on_a_terminal

MANY = 4000
SLOWLY = "CREATE TRIGGER slowly AFTER DELETE ON letters BEGIN SELECT length(randomblob(1000000)); END"
"""Each removal takes a while: whoever stops them does not come too late, on however busy a machine."""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def statuses(shell: Shell) -> dict[str, int]:
    with shell.store() as dlq:
        return dlq.letters.tally(Field.STATUS)


def many(shell: Shell, number: int = MANY) -> None:
    with shell.store() as dlq:
        dlq.hold([letter(str(one), at=START + timedelta(seconds=one)) for one in range(number)])


def test_purge_counts_first_and_says_what_it_did(shell: Shell) -> None:
    filled(shell)
    out = shell("purge", "source:orders", "--yes").out.splitlines()
    assert out == [
        "2 letters match:",
        "  status  1 completed, 1 pending",
        "  source  2 orders",
        "Removed 2 letters.",
    ]
    assert statuses(shell) == {"pending": 1}
    assert shell("purge", "source:orders", "--yes").out == "No letters in sqlite:redrive.db match that could be removed.\n"


def test_in_json_it_is_one_object(shell: Shell) -> None:
    filled(shell)
    answer = shell("archive", "all", "--yes", "--json").json
    assert {name: answer[name] for name in ("act", "dry_run", "matched", "done", "skipped", "held", "changed")} == {
        "act": "archive", "dry_run": False, "matched": 3, "done": 3, "skipped": 0, "held": 0, "changed": 0,
    }  # fmt: skip
    assert answer["statuses"] == {"pending": 2, "completed": 1}
    assert answer["sources"] == {"orders": 2, "mails": 1}
    again = shell("archive", "all", "--yes", "--json").json
    assert (again["matched"], again["done"]) == (0, 0)


def test_archive_discard_and_restore(shell: Shell) -> None:
    filled(shell)
    assert "Archived 2 letters." in shell("archive", "source:orders", "--yes").out
    assert "Discarded 1 letter." in shell("discard", "source:mails", "--reason", "spam", "--yes").out
    assert statuses(shell) == {"archived": 2, "discarded": 1}
    assert shell.letters()[2]["metadata"]["discard_reason"] == "spam"
    assert "  status  2 archived, 1 discarded" in shell("restore", "all", "--yes").out
    assert statuses(shell) == {"pending": 3}


def test_a_dry_run_only_counts(shell: Shell) -> None:
    filled(shell)
    assert shell("purge", "all", "--dry-run").out.splitlines()[-1] == "Would remove 3 letters."
    assert shell("purge", "all", "--dry-run", "--json").json["done"] == 0
    assert sum(statuses(shell).values()) == 3


def test_older_than_is_an_age(shell: Shell) -> None:
    with shell.store() as dlq:
        dlq.hold([letter("old", at=datetime.now(UTC) - timedelta(days=31)), letter("young", at=datetime.now(UTC))])
    assert shell("purge", "all", "--older-than", "30d", "--yes", "--json").json["done"] == 1
    assert [one["source_id"] for one in shell.letters()] == ["young"]


def test_letters_that_somebody_holds_are_told_of(shell: Shell) -> None:
    filled(shell)
    with shell.store() as dlq:
        dlq.letters.claim(Claim(owner="ann", lease=timedelta(hours=1), limit=1, what=dlq.within()))
    out = shell("purge", "all", "--yes").out
    assert "1 letter is held by somebody right now and will be left alone." in out
    assert "Removed 2 letters.\nLeft alone 1 letter that somebody holds; run it again when they are settled.\n" in out
    assert "Nothing was removed." in shell("purge", "all").out, "with nothing to do there is nothing to ask"


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["purge"], "Say which letters: a question such as 'status:completed age>30d', or all."),
        (["archive", " "], "Say which letters"),
        (["discard", "all"], "Missing option '--reason'"),
        (["purge", "all"], "This would remove 3 letters. Say --yes to do it without being asked."),
        (["discard", "all", "--reason", "x", "--json"], "This would discard 2 letters. Say --yes"),
        (["purge", "all", "--dryrun"], "No such option"),
        (["purge", "all", "--older-than", "30"], "'30' is not a duration"),
    ],
    ids=str,
)
def test_a_mistake_gets_one_clear_sentence_and_nothing_is_done(args: list[str], sentence: str, shell: Shell) -> None:
    filled(shell)
    assert sentence in shell.refused(*args)
    assert sum(statuses(shell).values()) == 3


def test_a_wrong_question_is_pointed_at(shell: Shell) -> None:
    done = shell("purge", "statsu:completed", "--yes", status=2)
    assert done.err.splitlines() == [
        "Error: there is no field 'statsu'; did you mean status? (column 1)",
        "  statsu:completed",
        "  ^^^^^^",
    ]


def test_a_person_is_asked_and_sees_how_far_it_is(shell: Shell) -> None:
    many(shell, 600)
    seen, status = seen_on_a_terminal(shell, "purge", "all", typed=b"n\n")
    assert "Remove 600 letters for good? [y/N]:" in seen
    assert (status, statuses(shell)) == (130, {"pending": 600})
    seen, status = seen_on_a_terminal(shell, "purge", "all", typed=b"y\n")
    assert status == 0
    assert "removing" in seen
    assert "600 of 600" in seen
    assert "Removed 600 letters." in seen
    assert "removing" not in shell("purge", "all", "--yes").err


def test_ctrl_c_says_how_far_it_came_and_the_same_goes_on(shell: Shell) -> None:
    many(shell)
    other = sqlite3.connect(shell.folder / "redrive.db", isolation_level=None)
    other.execute(SLOWLY)
    running = shell.start("purge", "all", "--yes")
    try:
        with closing(other):
            eventually(lambda: other.execute("SELECT count(*) FROM letters").fetchone()[0] < MANY)
            running.send_signal(signal.SIGINT)
            assert running.wait(PATIENCE) == 130
            other.execute("DROP TRIGGER slowly")
        assert running.stderr is not None
        said = re.fullmatch(
            r"Stopped after ([\d,]+) of 4,000 letters were removed; the same command goes on from there\.\n",
            running.stderr.read(),
        )
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
        running.communicate(timeout=PATIENCE)
    assert said is not None
    left = statuses(shell)["pending"]
    assert MANY - left == int(said[1].replace(",", ""))
    with shell.store() as dlq:
        assert dlq.desk.audit()[0].detail == f"cut short: {said[1]} removed"
    assert shell("purge", "all", "--yes", "--json").json["done"] == left


def test_large_bodies_go_along(shell: Shell) -> None:
    with shell.store() as dlq:
        dlq.capture(b"\xff" * 2_000_000, ValueError("bad"), source="s")
        kept = dlq.capture(b"\xfe" * 2_000_000, ValueError("bad"), source="t").letter
    shell("purge", "source:s", "--yes")
    assert len(list((shell.folder / "redrive.db.bodies").iterdir())) == 1
    assert shell("show", str(kept.id), "--body").raw == b"\xfe" * 2_000_000


def test_it_is_in_the_audit(shell: Shell) -> None:
    filled(shell)
    shell("archive", "status:pending", "--yes")
    with shell.store() as dlq:
        done, began, *_ = dlq.desk.audit()
    assert (began.detail, done.detail) == ("began: 2 matched", "done: 2 archived")
    assert done.subject == "namespace:default status:pending"


def test_every_status_is_named_somewhere(shell: Shell) -> None:
    with shell.store() as dlq:
        dlq.hold([letter(status.value, status=status) for status in Status if status is not Status.RETRYING])
    out = shell("purge", "all", "--dry-run").out
    assert "1 archived, 1 completed, 1 discarded, 1 exhausted, 1 pending, 2 of 2 more" in out
