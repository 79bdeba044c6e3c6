"""Redaction as a value and as rules: what is found, what stays as it was, and what can never happen."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from redrive import Attempt, BadSettings, Failure, Letter, Redaction
from redrive.engine.redact import Redactor
from redrive.model.letter import letter_id
from redrive.model.redaction_presets import finders
from redrive.model.redaction_rules import rules_of
from redrive.settings import load
from redrive.testing.kit import strategies

ALL = Redaction(
    presets=("cards", "emails", "tokens"),
    headers=("authorization", "x-*-secret"),
    paths=("customer.email", "items[*].card", "**.pin", "first[0]"),
    patterns=(r"ACME-\d+",),
)
JSON = "application/json"


def test_it_is_a_value_that_can_be_written_and_read_back() -> None:
    written = "\n".join(f"{name} = {json.dumps(value)}" for name, value in msgspec.to_builtins(ALL).items())
    assert msgspec.toml.decode(written, type=Redaction) == ALL
    assert Redaction.read(msgspec.to_builtins(ALL)) == ALL
    assert Redaction.read("cards, tokens") == Redaction.read(["cards", "tokens"]) == Redaction(presets=("cards", "tokens"))
    assert hash(ALL) == hash(replace(ALL))
    assert not Redaction()
    assert ALL


@pytest.mark.parametrize(
    ("rules", "sentence"),
    [
        ({"presets": ["card"]}, "there is no preset 'card' for redaction; did you mean cards?"),
        ({"presets": ["x"]}, "there is no preset 'x' for redaction; there are cards, emails, tokens"),
        ({"patterns": ["a("]}, "the pattern 'a(' is not a regular expression"),
        ({"patterns": ["a*"]}, "the pattern 'a*' matches nothing at all"),
        ({"patterns": [r"(\w+\s?)*x"]}, "repeats a repeat, which can take for ever"),
        ({"patterns": ["(a+)+"]}, "repeats a repeat, which can take for ever"),
        ({"paths": ["a."]}, "'a.' is not a path; write customer.email"),
        ({"paths": ["items[x]"]}, "'items[x]' is not a path"),
        ({"paths": ["**"]}, "'**' is not a path"),
        ({"headers": ["*"]}, "'*' is not a header's name"),
        ({"header": ["a"]}, "redact has no 'header'; did you mean headers?"),
        ({"presets": "card"}, "did you mean cards?"),
        ({"presets": [1]}, "presets of redact must be a list of texts"),
        ({"key": "k" * 65}, "the key for redaction is too long"),
        (7, "redact must be presets such as cards,tokens"),
    ],
)
def test_wrong_rules_are_refused_with_one_sentence(rules: object, sentence: str) -> None:
    with pytest.raises(BadSettings) as refused:
        Redaction.read(rules)
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


def test_settings_take_presets_from_the_environment_and_all_rules_from_a_file(tmp_path: Any) -> None:
    assert load(environ={"REDRIVE_REDACT": "cards,tokens"}, folder=tmp_path).settings.redact.presets == ("cards", "tokens")
    (tmp_path / "redrive.toml").write_text('[redact]\npresets = ["emails"]\nheaders = ["x-user"]\nkey = "hush-hush"\n')
    loaded = load(environ={}, folder=tmp_path)
    assert loaded.settings.redact == Redaction(presets=("emails",), headers=("x-user",), key="hush-hush")
    assert {entry.name: entry.value for entry in loaded.entries()}["redact"] == "presets=emails headers=x-user"
    assert "hush" not in repr(loaded.settings)
    with pytest.raises(BadSettings, match=r"redact \(environment REDRIVE_REDACT\): there is no preset 'crads'"):
        load(environ={"REDRIVE_REDACT": "crads"}, folder=tmp_path)


FOUND = [
    ("paid with 4111 1111 1111 1111 12/27", "paid with [redacted:cards] 12/27"),
    ("1234 5500-0000-0000-0004 x", "1234 [redacted:cards] x"),
    ("378282246310005", "[redacted:cards]"),
    ("mail bob@example.com.", "mail [redacted:emails]."),
    ("q=jürgen%40müller.example&x=1", "q=[redacted:emails]&x=1"),
    ("Bearer abcDEF123456", "Bearer [redacted:tokens]"),
    ("Authorization: Basic xyz", "Authorization: Basic [redacted:tokens]"),
    ("GET /?password=hunter2&x=1", "GET /?password=[redacted:tokens]&x=1"),
    ("{'db_password': 'two words', 'a': 1}", "{'db_password': '[redacted:tokens]', 'a': 1}"),
    ('    connect(api_key="k-1", host="h")', '    connect(api_key="[redacted:tokens]", host="h")'),
    ('    password: str = "hunter2"', '    password: str = "[redacted:tokens]"'),
    ("if (password := 'hunter2'):", "if (password := '[redacted:tokens]'):"),
    ("postgres://user:pw@host/db", "postgres://user:[redacted:tokens]@host/db"),
    ("psql --password hunter2 db", "psql --password [redacted:tokens] db"),
    ("jwt eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.SflKxwRJ", "jwt [redacted:tokens]"),
    ("AKIAIOSFODNN7EXAMPLE", "[redacted:tokens]"),
    ("ghp_" + "a1" * 18, "[redacted:tokens]"),
    ("-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----", "[redacted:tokens]"),
    ("order ACME-17", "order [redacted:pattern]"),
]


@pytest.mark.parametrize(("text", "told"), FOUND)
def test_what_is_secret_is_found_in_any_text(text: str, told: str) -> None:
    assert rules_of(ALL).text(text) == told


@pytest.mark.parametrize(
    "text",
    [
        "4111111111111112 fails the check",
        "52.4111111111111111 is a place",
        "1700000000000000000 is an instant",
        "550e8400-e29b-41d4-a716-446655440000",
        "Basic authentication is off",
        "unexpected token: }",
        "tokens: 512, keys: 7",
        "@decorator and a@b",
        "https://example.org:8080/a",
        "the password was wrong",
    ],
)
def test_what_only_looks_like_it_stays(text: str) -> None:
    assert rules_of(ALL).text(text) == text


BODIES = [
    (b'{"customer": {"email": "x"}, "n": 1.10}', b'{"customer": {"email": "[redacted:path]"}, "n": 1.10}'),
    (b'{"items":[{"card":1},{"card":null}]}', b'{"items":[{"card":"[redacted:path]"},{"card":null}]}'),
    (b'{"a":{"PIN":{"deep":["}",{}]}},"b":2}', b'{"a":{"PIN":"[redacted:path]"},"b":2}'),
    (b'{"first":["a","b"]}', b'{"first":["[redacted:path]","b"]}'),
    (b'{"card": 4111111111111111}', b'{"card": "[redacted:cards]"}'),
    (b'{"to":"bob\\u0040example.com\\n\\u00e9"}', b'{"to":"[redacted:emails]\\n\\u00e9"}'),
    (b'{"password":"hunter2","user":"bob"}', b'{"password":"[redacted:tokens]","user":"bob"}'),
    (b'["--password","hunter2","--quiet"]', b'["--password","[redacted:tokens]","--quiet"]'),
    (b'{"pin": 1}\n{"pin": 2}', b'{"pin": "[redacted:path]"}\n{"pin": "[redacted:path]"}'),
    # What breaks off, or has a bad byte, is a letter for just that reason.
    (b'{"x": 1, "pin": "12', b'{"x": 1, "pin": "[redacted:path]"'),
    (b'{"x": {"pin": {"a": [1', b'{"x": {"pin": "[redacted:path]"'),
    (b'{"\xff": 1, "pin": "1\xff"}', b'{"\xff": 1, "pin": "[redacted:path]"}'),
]


@pytest.mark.parametrize("content_type", [JSON, "application/octet-stream"])
@pytest.mark.parametrize(("body", "kept"), BODIES)
def test_a_value_in_json_is_replaced_and_all_the_rest_stays_byte_for_byte(body: bytes, kept: bytes, content_type: str) -> None:
    assert rules_of(ALL).body(body, content_type) == kept


def test_paths_lead_into_the_arguments_of_a_call() -> None:
    call = b'{"args":[{"customer":{"email":"x"}}],"kwargs":{"customer":{"email":"y"},"order":{"customer":{"email":"z"}}}}'
    kept = json.loads(rules_of(ALL).body(call, "application/vnd.redrive.call+json"))
    customer = {"customer": {"email": "[redacted:path]"}}
    assert kept == {"args": [customer], "kwargs": {**customer, "order": customer}}


def test_messagepack_is_redacted_as_json_is() -> None:
    value = {"raw": b"\xff\x00", "pin": 1, "to": "bob@example.com", "n": [1.5, None]}
    kept = msgspec.msgpack.decode(rules_of(ALL).body(msgspec.msgpack.encode(value), "application/msgpack"))
    assert kept == {"raw": b"\xff\x00", "pin": "[redacted:path]", "to": "[redacted:emails]", "n": [1.5, None]}


def test_text_in_another_charset_is_text() -> None:
    body = "an bob@example.com, grüße".encode("utf-16")
    assert rules_of(ALL).body(body, "text/plain; charset=utf-16").decode("utf-16") == "an [redacted:emails], grüße"


def test_binary_that_is_no_text_stays_as_it_is() -> None:
    body = b"\x00\x01\xff bob@example.com"
    assert rules_of(ALL).body(body, "application/octet-stream") == body


def test_names_of_an_object_stay_different_from_each_other() -> None:
    kept = rules_of(ALL).value({"a@x.org": 1, "b@x.org": 2})
    assert len(kept) == 2
    assert not any("x.org" in name for name in kept)


def test_a_redacted_id_stays_one_for_each_message_and_cannot_be_guessed_without_the_key() -> None:
    keyed, other = (rules_of(replace(ALL, key=key)).identity for key in ("one", "two"))
    ids = {
        keyed("bob@example.com"),
        keyed("ann@example.com"),
        other("bob@example.com"),
        rules_of(ALL).identity("bob@example.com"),
    }
    assert len(ids) == 4
    assert keyed("bob@example.com") == keyed(keyed("bob@example.com"))
    assert keyed("order-7") == "order-7"


def test_words_that_a_cut_tore_go_too() -> None:
    torn = "start bob@exam\n… 99 characters cut …\nple.com and so on"
    assert rules_of(ALL).prose(torn) == "start \n… 99 characters cut …\n and so on"


SIGNS = [
    "a",
    "@",
    "a@",
    "4",
    "4111 ",
    "4444-",
    "eyJ",
    "eyJaaaaaaaa.",
    "password=",
    'password="',
    "token:",
    "bearer ",
    "://a:",
    "key",
]
SIGNS += [
    "-----BEGIN PRIVATE KEY-----",
    "--password ",
    "sk-",
    "%40",
    "a@1.",
    '"',
    "\\",
    "[",
    '{"a":',
    "[redacted:emails] a@b.co ",
]


def seconds(text: str) -> float:
    """The least of three: what a busy machine adds is not the text's doing."""
    taken = []
    for _ in range(3):
        started = time.process_time()
        for find in finders().values():
            find(text)
        rules_of(ALL).body(text.encode(), JSON)
        taken.append(time.process_time() - started)
    return min(taken)


@pytest.mark.parametrize("sign", SIGNS)
def test_no_text_that_was_made_for_it_takes_more_than_linear_time(sign: str) -> None:
    """Eight times the text takes about eight times as long, not sixty-four times."""
    short, long = (seconds((sign * size)[:size]) for size in (10_000, 80_000))
    assert long < 30 * max(short, 0.001)


SOME = st.sampled_from(
    [told for pair in FOUND for told in pair]
    + [*SIGNS, "[redacted:", "[redacted:emails]", '"pin":', '"customer":{"email":', "}", ",", "\ud800"]
)
TEXTS = st.lists(SOME | st.text(max_size=5), max_size=8).map("".join)
RULES = st.sampled_from(
    [ALL, Redaction(presets=("emails",)), Redaction(paths=("**.a",)), Redaction(patterns=("[0-9]{2}", "redacted"))]
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(RULES, TEXTS)
def test_a_text_that_was_redacted_once_changes_no_more(rules: Redaction, text: str) -> None:
    once = rules_of(rules).text(text)
    assert rules_of(rules).text(once) == once
    id = rules_of(rules).identity(text)
    assert rules_of(rules).identity(id) == id


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    RULES,
    st.binary(max_size=60)
    | TEXTS.map(lambda text: text.encode("utf-8", "surrogatepass"))
    | strategies.metadata().map(msgspec.json.encode),
    st.sampled_from(["", JSON, "text/plain; charset=latin-1", "application/msgpack", "a/b; charset=nonsense", "\ud800"]),
)
def test_any_bytes_are_redacted_without_an_error_and_once_for_all(rules: Redaction, body: bytes, content_type: str) -> None:
    once = rules_of(rules).body(body, content_type)
    assert rules_of(rules).body(once, content_type) == once


@settings(max_examples=100, deadline=None, derandomize=True)
@given(strategies.letters())
def test_any_letter_is_redacted_once_for_all_and_one_without_secrets_not_at_all(letter: Letter) -> None:
    redactor = Redactor(ALL)
    once = redactor.letter(letter)
    assert redactor.letter(once) == once
    nothing = Redactor(Redaction(patterns=("never to be found",), headers=("never",), paths=("never.to.be.found",)))
    assert nothing.letter(letter) == letter


def test_metadata_of_any_kind_is_looked_into() -> None:
    class Person(msgspec.Struct):
        mail: str

    deep: Any = "bob@example.com"
    for _ in range(500):
        deep = [deep]
    now = datetime.now(UTC)
    kept = rules_of(ALL).value(
        {"p": Person("bob@example.com"), "t": ("bob@example.com",), "when": now, "n": 4111111111111111, "d": deep}
    )
    assert kept["p"] == {"mail": "[redacted:emails]"}
    assert (kept["t"], kept["when"], kept["n"]) == (("[redacted:emails]",), now, "[redacted:cards]")
    assert "bob" not in repr(kept)


def test_groups_that_were_read_off_a_message_do_not_tell_it() -> None:
    now = datetime.now(UTC)
    letters = [
        Letter(
            id=letter_id("default", "s", id),
            source="s",
            source_id=id,
            failure=Failure(type="x.Y", message="no such user"),
            first_received_at=now,
            dead_lettered_at=now,
            updated_at=now,
            history=(Attempt(at=now, occurrence=uuid4()),),
        )
        for id in ("bob@example.com", "ann@example.com", "7")
    ]
    kept = Redactor(ALL).letters(letters)
    assert len({letter.id for letter in kept}) == 3
    assert all(letter.id == letter_id("default", "s", letter.source_id) for letter in kept)
    assert kept[2] == letters[2]
