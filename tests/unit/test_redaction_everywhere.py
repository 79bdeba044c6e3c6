"""Secrets in every part of a letter, through every way in: none of them is in any file, log or output afterwards."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from redrive import (
    Amendment,
    Attempt,
    BadSettings,
    Claim,
    Failed,
    Failure,
    Held,
    Letter,
    Message,
    Origin,
    Policy,
    Redaction,
    blocking,
)
from redrive.backends.memory.desk import MemoryDesk
from redrive.engine.dead_letters import DeadLetters, Limits
from redrive.engine.journal import Journal
from redrive.model.letter import Cause, letter_id
from redrive.model.operation import Entry
from redrive.model.query import EVERYTHING
from redrive.testing import letter as plain_letter
from tests.unit.journals import Store
from tests.unit.shell import Shell

CARD, MAIL, TOKEN, WORD, PIN = (
    "4111111111111111",
    "bob.secret@example.com",
    "sk-live-0123456789abcdefXYZ",
    "hunter2-of-bob",
    "PIN-77-99",
)
SECRETS = (CARD, MAIL, TOKEN, WORD, PIN)
RULES = Redaction(presets=("cards", "emails", "tokens"), headers=("x-user",), paths=("**.pin",), key="k")
TOML = '[redact]\npresets = ["cards", "emails", "tokens"]\nheaders = ["x-user"]\npaths = ["**.pin"]\nkey = "k"\n'
BODY = {"mail": MAIL, "card": int(CARD), "db": f"postgres://u:{WORD}@h/db", "nested": [{"pin": PIN, "password": WORD}], "ok": 1}
TEXT = f"{MAIL} paid with {CARD}, Bearer {TOKEN}, password={WORD}"
HEADERS = {"x-user": PIN, "Authorization": f"Bearer {TOKEN}", "note": MAIL, "plain": "kept"}


def found_in(folder: Path) -> list[str]:
    """Every secret that a file of the folder holds, with the file's name."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")]
    assert files
    return [f"{secret} in {path.name}" for path in files for secret in SECRETS if secret.encode() in path.read_bytes()]


@pytest.fixture(autouse=True)
def nothing_is_logged_or_printed(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    caplog.set_level(logging.DEBUG)
    yield
    formatter = logging.Formatter()
    records = [record for when in ("setup", "call") for record in caplog.get_records(when)]
    told = "".join(formatter.format(record) + repr(vars(record)) for record in records) + "".join(capfd.readouterr())
    assert [secret for secret in SECRETS if secret in told] == []


def broken(order: Any) -> None:
    """Fails with secrets in its message, its cause, a note and a line of its source."""
    try:
        raise KeyError(TEXT)
    except KeyError as cause:
        error = ValueError(f"cannot ship {TEXT}")
        error.add_note(f"asked by {MAIL}")
        raise error from (cause if (password := "hunter2-of-bob") else None)  # noqa: F841 - the traceback tells this line


def failure() -> Exception:
    try:
        broken(None)
    except ValueError as error:
        return error
    raise AssertionError


def message(body: bytes | None = None, id: str | None = MAIL) -> Message:
    import json

    return Message(
        body=body if body is not None else json.dumps(BODY).encode(),
        content_type="application/json",
        id=id,
        headers=tuple((name, value.encode()) for name, value in HEADERS.items()),
        key=MAIL.encode(),
        kind=f"order of {MAIL}",
        reference=f"s3://bucket/{MAIL}",
        origin=Origin(reply_to=MAIL, request_id=TOKEN, topic="orders"),
    )


LABELS: dict[str, Any] = {"tags": ["vip", MAIL], "metadata": {"by": MAIL, "deep": [{"pin": PIN}], MAIL: {"token": WORD}}}
ONCE = Policy(max_attempts=1)


def by_guard(dlq: blocking.DeadLetters) -> None:
    dlq.guard(source="orders", policy=Policy(max_attempts=2), **LABELS)(broken)(message())


def by_a_guard_of_plain_arguments(dlq: blocking.DeadLetters) -> None:
    def handle(order: Any, *, text: str) -> None:
        broken(order)

    dlq.guard(source="orders", policy=ONCE, **LABELS)(handle)(BODY, text=TEXT)


def by_a_guard_whose_extractor_and_policy_break(dlq: blocking.DeadLetters) -> None:
    class Broken(Policy, frozen=True):
        def judge(self, *_: Any, **__: Any) -> Any:
            raise RuntimeError(TEXT)

    def extract(order: Any) -> Message:
        raise RuntimeError(TEXT)

    dlq.guard(source="orders", policy=Broken(), extract=extract, **LABELS)(broken)(BODY)


def by_a_block(dlq: blocking.DeadLetters) -> None:
    with dlq.guard(source="orders", **LABELS).attempt(message()) as trial:
        broken(None)
    assert trial.letter is not None
    assert dlq.get(trial.letter.id).source_id == trial.letter.source_id


def by_a_batch(dlq: blocking.DeadLetters) -> None:
    dlq.guard(source="orders", policy=ONCE, **LABELS).each([message(), TEXT, TEXT.encode() + b"\xff"], broken)


def by_capture(dlq: blocking.DeadLetters) -> None:
    captured = dlq.capture(message(), failure(), source="orders", headers={"x-api-key": TOKEN}, **LABELS)
    assert dlq.get(captured.letter.id).source_id == captured.letter.source_id


def by_hold(dlq: blocking.DeadLetters) -> None:
    letter = replace(
        plain_letter(MAIL),
        body=TEXT.encode(),
        failure=Failure(type="x.Y", message=TEXT, traceback=TEXT, causes=(Cause(type="a", message=TEXT),)),
        depends_on=(MAIL,),
        metadata={"note": TEXT},
    )
    history = tuple(replace(attempt, message=TEXT) for attempt in letter.history)
    dlq.hold([replace(letter, history=history)])


WAYS = [
    by_guard,
    by_a_guard_of_plain_arguments,
    by_a_guard_whose_extractor_and_policy_break,
    by_a_block,
    by_a_batch,
    by_capture,
    by_hold,
]


@pytest.mark.parametrize("body_limit", [1_048_576, 16], ids=["in the letter", "in a file"])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_no_secret_reaches_a_file(
    way: Callable[[blocking.DeadLetters], None], body_limit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDRIVE_BODY_LIMIT", str(body_limit))
    with blocking.open(f"sqlite:{tmp_path}/redrive.db", redact=RULES) as dlq:
        way(dlq)
        assert found_in(tmp_path) == []
        letters = list(dlq.find())
        assert letters
        assert all("[redacted:" in repr(letter) for letter in letters)
        for letter in letters:
            assert [secret for secret in SECRETS if secret in repr(letter) or secret.encode() in dlq.body(letter)] == []
    assert found_in(tmp_path) == []


def test_without_rules_every_secret_would_be_found(tmp_path: Path) -> None:
    with blocking.open(f"sqlite:{tmp_path}/redrive.db") as dlq:
        by_capture(dlq)
        assert {one.partition(" in ")[0] for one in found_in(tmp_path)} == set(SECRETS)


@pytest.mark.parametrize("way", [by_guard, by_a_batch, by_hold], ids=lambda way: way.__name__)
def test_no_secret_reaches_the_journal_while_the_store_is_down(
    way: Callable[[blocking.DeadLetters], None], tmp_path: Path
) -> None:
    store = Store()
    store.puts_left = 0
    journal = Journal(tmp_path / "journal", "store")
    with blocking.DeadLetters(DeadLetters(store, MemoryDesk(), journal=journal, limits=Limits(), redaction=RULES)) as dlq:
        way(dlq)
        assert found_in(tmp_path) == []
        assert journal.waiting


def test_no_secret_reaches_a_file_from_the_shell(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell.environment["REDRIVE_REDACT_FILE"] = "rules"
    (tmp_path / "rules").write_text("cards,emails,tokens")
    captured = ["capture", "--source", "s", "--source-id", MAIL, "--error", f"E {MAIL}", "--message", TEXT, "--tag", MAIL]
    told = shell(*captured, "--header", f"x-token={TOKEN}", stdin=TEXT.encode())
    id = told.out.split()[0]
    assert shell("show", id, "--json").json["letter"]["redacted"] == ["body", "headers.x-token"]
    program = f"import sys; sys.stdin.read(); sys.stderr.write({TEXT[:40]!r}); sys.exit(3)"
    ran = shell.ended("run", "--source", "job", "--", sys.executable, "-c", program, "--password", WORD, stdin=TEXT.encode())
    assert ran.status == 3
    kept = ran.err.partition("kept as letter ")[2].partition(";")[0]
    assert "body" in shell("show", kept, "--json").json["letter"]["redacted"]
    outputs = [shell(*args) for args in (["ls"], ["ls", "--json"], ["show", kept], ["show", id], ["show", id, "--body"])]
    assert [secret for secret in SECRETS for done in (told, *outputs) if secret in done.out + done.err] == []
    refused = shell("replay", kept, status=1)
    assert "was redacted at capture; repair it first" in refused.out
    assert found_in(tmp_path) == []


def held(dlq: blocking.DeadLetters, **changes: Any) -> Letter:
    return dlq.capture(replace(message(id="7"), **{"key": None, **changes}), ValueError("x"), source="orders").letter


def test_a_letter_whose_body_was_redacted_is_refused_until_it_is_repaired(tmp_path: Path) -> None:
    with blocking.open("memory:", redact=RULES) as dlq:
        letter = held(dlq)
        sent: list[Message] = []

        def handle(order: Message) -> None:
            sent.append(order)

        report = dlq.redrive(handle, query=EVERYTHING)
        assert (report.entries, sent) == ({Entry.FAILED: 1}, [])
        details = [row.detail for row in dlq.desk.ledger(report.operation) if row.detail]
        assert details == [
            "its body was redacted at capture; repair it first: dlq.amend(Amendment(id=…, body=…)) with what is to be sent"
        ]
        assert dlq.get(letter.id).attempts == 1
        half = dlq.amend(Amendment(id=letter.id, body=dlq.get(letter.id).body.replace(b'"ok"', b'"fine"')))
        assert "body" in half.redacted
        with pytest.raises(BadSettings, match=r"the new body of letter .* would be redacted"):
            dlq.amend(Amendment(id=letter.id, body=TEXT.encode()))
        mended = dlq.amend(
            Amendment(id=letter.id, body=TEXT.encode(), reason=f"told by {MAIL}", metadata={"by": MAIL}), as_given=True
        )
        assert ("body" in mended.redacted, mended.metadata) == (False, {"by": "[redacted:emails]"})
        assert MAIL not in repr(dlq.shown(mended))
        assert dlq.redrive(handle, query=EVERYTHING).entries == {Entry.CONFIRMED: 1}
        assert sent[0].body == TEXT.encode()


def test_other_redacted_parts_are_left_out_of_what_is_sent() -> None:
    with blocking.open("memory:", redact=RULES) as dlq:
        letter = held(dlq, body=b"{}")
        assert letter.redacted == (
            *("kind", "reference", "headers.x-user", "headers.authorization", "headers.note"),
            *("origin.reply_to", "origin.request_id"),
        )
        sent: list[Message] = []

        def handle(order: Message) -> None:
            sent.append(order)

        assert dlq.redrive(handle, query=EVERYTHING).entries == {Entry.CONFIRMED: 1}
        assert [name for name, _ in sent[0].headers if not name.startswith("redrive-")] == ["plain"]
        assert (sent[0].kind, sent[0].reference, sent[0].origin) == (None, None, Origin(topic="orders"))
        assert [secret for secret in SECRETS if secret in repr(sent)] == []


def test_a_redacted_key_is_refused_until_it_is_repaired() -> None:
    with blocking.open("memory:", redact=RULES) as dlq:
        letter = held(dlq, body=b"{}", key=MAIL.encode())
        assert dlq.redrive(lambda order: None, query=EVERYTHING).entries == {Entry.FAILED: 1}
        assert dlq.amend(Amendment(id=letter.id, key=b"customer-7")).key == b"customer-7"
        assert dlq.redrive(lambda order: None, query=EVERYTHING).entries == {Entry.CONFIRMED: 1}


def test_what_a_target_says_when_it_fails_again_is_redacted_too(tmp_path: Path) -> None:
    with blocking.open(f"sqlite:{tmp_path}/redrive.db", redact=RULES) as dlq:
        first = dlq.capture({"ok": 1}, ValueError("x"), source="orders").letter
        dlq.redrive(broken, query=EVERYTHING)
        (claimed,) = dlq.letters.claim(Claim(owner="me", lease=timedelta(seconds=60), what=(first.id,), limit=1))
        attempt = Attempt(at=first.dead_lettered_at, occurrence=first.id, message=TEXT)
        dlq.settle(claimed, Failed(attempt=attempt, failure=Failure(type="x", message=TEXT)))
        assert dlq.get(first.id).attempts == 3
        assert found_in(tmp_path) == []
    assert found_in(tmp_path) == []


def test_the_same_message_is_the_same_letter_also_when_its_id_is_redacted() -> None:
    with blocking.open("memory:", redact=RULES) as dlq:
        first, again = (dlq.capture(message(b"{}"), ValueError("x"), source="orders") for _ in range(2))
        other = dlq.capture(message(b"{}", id="ann@example.com"), ValueError("x"), source="orders")
        assert (first.held, again.held, other.held) == (Held.NEW, Held.ATTEMPT, Held.NEW)
        assert first.letter.id == letter_id("default", "orders", first.letter.source_id)
        dlq.amend(Amendment(id=first.letter.id, key=b"k"))
        sent: list[Message] = []

        def handle(order: Message) -> None:
            sent.append(order)

        dlq.redrive(handle, ids=[first.letter.id])
        assert dlq.capture(sent[0], ValueError("x"), source="orders").held is Held.REOPENED
        assert dlq.get(first.letter.id).generation == 2


def test_a_letter_that_was_captured_before_the_rules_is_shown_by_them(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    with shell.store() as dlq:
        dlq.capture(message(), failure(), source="orders", **LABELS)
        (before,) = dlq.find()
        assert MAIL in repr(before)
        assert before.redacted == ()
    (tmp_path / "redrive.toml").write_text(TOML)
    id = str(before.id)
    for args in (["ls"], ["ls", "--json"], ["show", id], ["show", id, "--json"], ["show", id, "--body"]):
        out = shell(*args).out
        assert [secret for secret in SECRETS if secret in out] == [], args
        assert "[redacted:" in out, args
    shown = shell("show", id, "--json").json["letter"]
    assert (shown["id"], shown["redacted"]) == (id, [])


def test_headers_that_are_always_secret_are_never_shown(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    with shell.store() as dlq:
        headers = {"Authorization": "Basic eHl6", "cookie": "a=b", "X-Api-Key": "k1", "plain": "kept"}
        id = str(dlq.capture("x", ValueError(MAIL), source="s", headers=headers).letter.id)
    shown = {one["name"]: one["value"] for one in shell("show", id, "--json").json["letter"]["headers"]}
    hidden = "[redacted:header]"
    assert shown == {"Authorization": hidden, "cookie": hidden, "X-Api-Key": hidden, "plain": "kept"}
    assert "eHl6" not in shell("show", id).out


def test_a_letter_that_waits_for_repair_is_not_retried_by_itself() -> None:
    from redrive import RetryPlan

    with blocking.open("memory:", redact=RULES) as dlq:
        plan = RetryPlan(policy="exponential", max_retries=3)
        waiting = dlq.capture(TEXT, ValueError("x"), source="s", retry=plan).letter
        fine = dlq.capture("fine", ValueError("x"), source="s", retry=plan).letter
        assert (waiting.retry.next_retry_at, fine.retry.next_retry_at is None) == (None, False)


def test_a_letter_that_cannot_be_redacted_is_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    from redrive import NotHeld
    from redrive.engine.redact import Redactor

    def fail(self: Redactor, letter: Letter) -> Letter:
        raise RuntimeError(TEXT)

    monkeypatch.setattr(Redactor, "letter", fail)
    with blocking.open("memory:", redact=RULES) as dlq:
        ways: Sequence[Callable[[], Any]] = [lambda: by_capture(dlq), lambda: by_guard(dlq), lambda: by_hold(dlq)]
        for way in ways:
            with pytest.raises(NotHeld) as refused:
                way()
            assert MAIL not in str(refused.value)
            assert refused.value.__cause__ is None
        assert dlq.count() == 0


def test_async_code_is_redacted_alike(tmp_path: Path) -> None:
    import redrive

    async def main() -> None:
        async with redrive.open(f"sqlite:{tmp_path}/redrive.db", redact=RULES) as dlq:

            @dlq.guard(source="orders", policy=ONCE, **LABELS)
            async def handle(order: Any) -> None:
                broken(order)

            await handle(BODY)

    asyncio.run(main())
    assert found_in(tmp_path) == []
