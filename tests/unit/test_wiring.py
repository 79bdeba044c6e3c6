"""From a URL to a store: what is wrong gets one clear sentence, and nothing on disk is changed."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import redrive
from redrive import (
    EVERYTHING,
    BadSettings,
    Held,
    RedriveError,
    SchemaTooNew,
    StoreCorrupt,
    StoreNotWritable,
    UnknownScheme,
    blocking,
)
from redrive.backends.sqlite.schema import APPLICATION_ID

BAD = ValueError("bad")

USES: dict[str, Callable[[blocking.DeadLetters], object]] = {
    "capture": lambda dlq: dlq.capture("x", BAD, source="orders"),
    "count": lambda dlq: dlq.letters.count(),
    "check": lambda dlq: dlq.letters.check(),
    "desk": lambda dlq: dlq.desk.operations(),
    "redrive": lambda dlq: dlq.redrive(print, query=EVERYTHING),
}


def refusal(url: str, use: str = "check") -> RedriveError:
    with pytest.raises(RedriveError) as refused, blocking.open(url) as dlq:
        USES[use](dlq)
    return refused.value


def is_one_sentence(error: RedriveError) -> bool:
    text = str(error)
    return bool(text) and "\n" not in text and "Traceback" not in text and not text.startswith("(")


def state(folder: Path) -> dict[str, str]:
    """Every file below the folder with a digest of its content."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("postgress://x", "no store answers to 'postgress:'; known are memory:, sqlite:"),
        (
            "sqlit:redrive.db",
            "no store answers to 'sqlit:'; known are memory:, sqlite:, postgres:, postgresql:, redis:, rediss:, opensearch:, opensearchs:; did you mean sqlite:?",
        ),
        ("memry:", "did you mean memory:?"),
        (
            "redrive.db",
            "'redrive.db' has no scheme; a store's URL begins with one of memory:, sqlite:, postgres:, postgresql:, redis:, rediss:, opensearch:, opensearchs:; did you mean sqlite:redrive.db?",
        ),
        (":", "no store answers to ':'"),
        (" sqlite:x", "no store answers to ' sqlite:'"),
    ],
)
def test_a_scheme_that_nobody_answers_to_names_the_nearest(url: str, sentence: str) -> None:
    with pytest.raises(UnknownScheme) as refused:
        redrive.open(url)
    assert sentence in str(refused.value)
    assert is_one_sentence(refused.value)


def test_a_url_without_a_path_says_how_one_looks() -> None:
    for url in ("sqlite:", "sqlite://"):
        with pytest.raises(BadSettings, match=r"sqlite: needs a path, e\.g\. sqlite:redrive\.db"):
            redrive.open(url)


def test_an_empty_url_is_a_mistake_not_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`redrive.open(os.environ.get("STORE", ""))`: the letters must not land where nobody looks."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadSettings):
        redrive.open("")


def test_the_ways_to_write_a_path_mean_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for url in (f"sqlite:{tmp_path}/a.db", f"sqlite://{tmp_path}/a.db", "sqlite:a.db", "sqlite:./a.db"):
        with blocking.open(url) as dlq:
            assert dlq.capture(redrive.Message(body=b"x", id="1"), BAD, source="orders").held in (Held.NEW, Held.ATTEMPT)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.db"]


@pytest.mark.parametrize("name", ["with space.db", "ünï.db", "100%.db", "a?b=c#d.db", "a;b.db", "'quoted\".db", "-dash.db"])
def test_a_path_may_have_any_sign(name: str, tmp_path: Path) -> None:
    with blocking.open(f"sqlite:{tmp_path}/{name}") as dlq:
        dlq.capture(b"x" * 2_000_000, BAD, source="orders")
        (letter,) = dlq.find()
        assert len(dlq.body(letter)) == 2_000_000
    assert {path.name for path in tmp_path.iterdir()} == {name, f"{name}.bodies"}


def test_a_database_in_memory_is_refused_or_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """People know `:memory:` from SQLite. Each connection would have a database of its own: letters go in, none come out."""
    monkeypatch.chdir(tmp_path)
    try:
        with blocking.open("sqlite::memory:") as dlq:
            dlq.capture("x", BAD, source="orders")
            assert dlq.letters.count() == 1
    except BadSettings as refused:
        assert "memory:" in str(refused)  # noqa: PT017 - either answer is a good one
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_no_file_can_have_is_refused_in_one_sentence(tmp_path: Path) -> None:
    for url in (f"sqlite:{tmp_path}/a\0b.db", f"sqlite:{tmp_path}/{'x' * 5_000}.db"):
        assert is_one_sentence(refusal(url))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("use", USES)
def test_a_folder_that_is_not_there_is_not_made(use: str, tmp_path: Path) -> None:
    error = refusal(f"sqlite:{tmp_path}/nowhere/redrive.db", use)
    assert "nowhere/redrive.db" in str(error)
    assert "does its folder exist, and may you write there?" in str(error)
    assert is_one_sentence(error)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_the_files_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "redrive.db").mkdir()
    error = refusal(f"sqlite:{tmp_path}/redrive.db")
    assert isinstance(error, StoreNotWritable)
    assert is_one_sentence(error)
    assert list((tmp_path / "redrive.db").iterdir()) == []


NOBODY = 65534

UNPRIVILEGED = """
import os, sys
from redrive import blocking, RedriveError
import redrive.backends.sqlite
url, user = sys.argv[1], int(sys.argv[2])
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
dlq = blocking.open(url)
for use in (dlq.letters.count, lambda: dlq.capture("x", ValueError("bad"), source="orders")):
    try:
        use()
        print("worked")
    except RedriveError as error:
        print(type(error).__name__, "|", error)
"""


def unprivileged(folder: Path, url: str) -> list[str]:
    """What one hears who has no rights of the superuser."""
    # The way to the folder must be open, so that its own rights decide.
    for parent in (folder, *folder.parents):
        if parent.stat().st_uid == os.geteuid() and parent.stat().st_mode & 0o005 != 0o005 and parent != folder:
            parent.chmod(parent.stat().st_mode | 0o005)
    done = subprocess.run(
        [sys.executable, "-c", UNPRIVILEGED, url, str(NOBODY)], cwd=folder, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.splitlines()


def test_a_folder_without_rights_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o755)
    folder.chmod(0o555)
    lines = unprivileged(folder, f"sqlite:{folder}/redrive.db")
    assert [line.split(" | ")[0] for line in lines] == ["StoreNotWritable", "NotHeld"]
    assert all("locked/redrive.db" in line for line in lines)
    assert list(folder.iterdir()) == []


def test_a_file_without_rights_is_named_and_stays_as_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    with blocking.open(f"sqlite:{folder}/redrive.db") as dlq:
        dlq.capture("x", BAD, source="orders")
    (folder / "redrive.db").chmod(0o444)
    folder.chmod(0o555)
    before = state(folder)
    lines = unprivileged(folder, f"sqlite:{folder}/redrive.db")
    folder.chmod(0o755)
    assert lines[-1].startswith("NotHeld | ")
    assert "shared/redrive.db" in lines[-1]
    assert state(folder) == before


@pytest.mark.parametrize(
    "content",
    [b"this is a text file, not a database\n" * 100, b"\0" * 8192, b"SQLite format 3\0" + b"\xff" * 8176],
    ids=["text", "zeros", "broken header"],
)
def test_a_file_that_is_no_database_is_refused_and_stays_as_it_is(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "redrive.db").write_bytes(content)
    for use in USES:
        error = refusal(f"sqlite:{tmp_path}/redrive.db", use)
        assert isinstance(error, StoreCorrupt) or isinstance(error.__cause__, StoreCorrupt), use
        assert "redrive.db" in str(error)
        assert is_one_sentence(error)
    assert (tmp_path / "redrive.db").read_bytes() == content
    assert [path.name for path in tmp_path.iterdir()] == ["redrive.db"]


def test_a_database_that_was_damaged_is_called_so(tmp_path: Path) -> None:
    path = tmp_path / "redrive.db"
    with blocking.open(f"sqlite:{path}") as dlq:
        for number in range(200):
            dlq.capture(b"x" * 500, BAD, source="orders", id=str(number))
    raw = bytearray(path.read_bytes())
    raw[8192:-4096] = b"\xa5" * (len(raw) - 12288)
    path.write_bytes(raw)
    errors = []
    for use in ("capture", "count"):
        errors.append(refusal(f"sqlite:{path}", use))
    with blocking.open(f"sqlite:{path}") as dlq, pytest.raises(RedriveError) as refused:
        list(dlq.find())
    for error in (*errors, refused.value):
        assert is_one_sentence(error)
        assert "redrive.db" in str(error)


def other_programs_database(path: Path, *, version: int = 0, application: int = 0) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            f"CREATE TABLE customers (name TEXT); INSERT INTO customers VALUES ('ann');"
            f"PRAGMA user_version = {version}; PRAGMA application_id = {application};"
        )


@pytest.mark.parametrize("version", [0, 1, 2, 3, 500])
def test_another_programs_database_is_refused_as_that_and_not_touched(version: int, tmp_path: Path) -> None:
    other_programs_database(tmp_path / "shop.db", version=version)
    before = state(tmp_path)
    for use in USES:
        error = refusal(f"sqlite:{tmp_path}/shop.db", use)
        assert "shop.db is another program's database; choose another path" in str(error), use
        assert is_one_sentence(error)
    assert state(tmp_path) == before


def test_a_schema_from_the_future_is_refused_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "redrive.db"
    with blocking.open(f"sqlite:{path}") as dlq:
        dlq.capture("x", BAD, source="orders")
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
        connection.execute("PRAGMA user_version = 99")
    before = state(tmp_path)
    for use in USES:
        error = refusal(f"sqlite:{path}", use)
        assert isinstance(error, SchemaTooNew) or isinstance(error.__cause__, SchemaTooNew)
        assert "redrive.db has schema 99, this redrive knows" in str(error)
        assert "upgrade redrive" in str(error)
        assert is_one_sentence(error)
    assert state(tmp_path) == before


def test_letters_of_a_form_from_the_future_are_refused_too(tmp_path: Path) -> None:
    path = tmp_path / "redrive.db"
    with blocking.open(f"sqlite:{path}") as dlq:
        dlq.capture("x", BAD, source="orders")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE contents SET data = CAST(x'63' || substr(data, 2) AS BLOB)")
        connection.commit()
    with blocking.open(f"sqlite:{path}") as dlq, pytest.raises(SchemaTooNew, match="stored form 99"):
        list(dlq.find())


def test_a_file_in_use_by_another_program_is_busy_not_broken(tmp_path: Path) -> None:
    path = tmp_path / "redrive.db"
    with blocking.open(f"sqlite:{path}") as dlq:
        dlq.capture("x", BAD, source="orders")
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert dlq.letters.count() == 1
            other.execute("ROLLBACK")
        assert dlq.capture("y", BAD, source="orders").held is Held.NEW


def test_the_environment_chooses_the_store_and_an_argument_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDRIVE_STORE", f"sqlite:{tmp_path}/environment.db")
    monkeypatch.setenv("REDRIVE_NAMESPACE", "shop")
    with blocking.open() as dlq:
        assert dlq.capture("x", BAD, source="orders").letter.namespace == "shop"
    with blocking.open(f"sqlite:{tmp_path}/argument.db") as dlq:
        dlq.capture("x", BAD, source="orders")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["argument.db", "environment.db"]


def test_looking_makes_no_store_where_there_is_none(tmp_path: Path) -> None:
    with blocking.open(f"sqlite:{tmp_path}/redrive.db") as dlq:
        assert (dlq.letters.count(), list(dlq.find()), dlq.desk.operations()) == (0, [], [])
        assert list(tmp_path.iterdir()) == []
        dlq.capture("x", BAD, source="orders")
        assert dlq.letters.count() == 1
    assert (tmp_path / "redrive.db").stat().st_mode & 0o777 == 0o600


def test_a_process_that_changes_its_folder_goes_on_with_the_same_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    with blocking.open("sqlite:redrive.db") as dlq:
        dlq.capture("x", BAD, source="orders")
        monkeypatch.chdir(tmp_path / "elsewhere")
        dlq.capture("y", BAD, source="orders")
        assert dlq.letters.count() == 2
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_two_stores_in_memory_are_two_stores() -> None:
    with blocking.open("memory:") as one, blocking.open("memory:") as two:
        one.capture("x", BAD, source="orders")
        assert (one.letters.count(), two.letters.count()) == (1, 0)
