"""From letters to alerts: one for each group, short enough for a phone, and nothing in it that need not leave the house."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec import json
from msgspec.structs import replace

from redrive.model.alert import (
    LETTERS_NAMED,
    MESSAGE_LIMIT,
    SUMMARY_LIMIT,
    AlertKind,
    Severity,
    alert_of,
    alerts_of,
    key_of,
    piles_of,
)
from redrive.testing.kit.samples import START, failure, letter


def test_letters_of_one_group_are_one_alert() -> None:
    letters = [letter(str(number)) for number in range(3)]
    (alert,) = alerts_of(letters, at=START)
    assert alert.summary == "3 letters of 'orders' are exhausted: TimeoutError: no answer"
    assert (alert.kind, alert.severity, alert.count, alert.at, alert.since) == (
        AlertKind.EXHAUSTED,
        Severity.ERROR,
        3,
        START,
        None,
    )
    assert alert.letters == tuple(one.id for one in letters)
    assert (alert.namespace, alert.source, alert.key) == ("default", "orders", key_of(letters[0]))
    assert (alert.failure.type, alert.failure.message) == ("builtins.TimeoutError", "no answer")
    assert alert.failure.fingerprint == letters[0].failure.fingerprint


def test_one_letter_is_told_of_in_the_singular_and_later_ones_as_more() -> None:
    one, two = letter("1"), letter("2")
    assert alerts_of([one], at=START)[0].summary == "1 letter of 'orders' is exhausted: TimeoutError: no answer"
    (later,) = alerts_of([one, two], at=START, since={key_of(one): START})
    assert later.summary == "2 more letters of 'orders' are exhausted: TimeoutError: no answer"
    assert later.since == START


@pytest.mark.parametrize(
    "other",
    [
        letter("1", namespace="shop"),
        letter("1", source="mails"),
        letter("1", failure=failure("builtins.KeyError")),
        # Names that only look alike when they are put side by side.
        letter("1", namespace="defaulto", source="rders"),
    ],
)
def test_another_namespace_source_or_failure_is_another_incident(other: object) -> None:
    assert len(alerts_of([letter("1"), other], at=START)) == 2  # type: ignore[list-item]


def test_the_key_is_the_same_in_every_process_and_release() -> None:
    assert key_of(letter("1")) == key_of(letter("2")) == "1b1ba9f69db387e5adb9f231c60c3ebe"


def test_an_alert_has_one_id_and_another_alert_another() -> None:
    (first,) = alerts_of([letter("1")], at=START)
    (same,) = alerts_of([letter("1")], at=START)
    (later,) = alerts_of([letter("1")], at=START + timedelta(seconds=1))
    (more,) = alerts_of([letter("1"), letter("2")], at=START)
    assert first.id == same.id
    assert len({first.id, later.id, more.id}) == 3
    assert len({first.key, later.key, more.key}) == 1


def test_only_the_first_letters_are_named_but_all_are_counted() -> None:
    (alert,) = alerts_of([letter(str(number)) for number in range(500)], at=START)
    assert (alert.count, len(alert.letters)) == (500, LETTERS_NAMED)
    assert alert.summary.startswith("500 letters of ")


def test_piles_join_and_stay_small() -> None:
    (one,) = piles_of([letter(str(number)) for number in range(7)]).values()
    (two,) = piles_of([letter(str(number)) for number in range(5, 12)]).values()
    joined = one.joined(two)
    assert (joined.count, len(joined.letters), len(set(joined.letters))) == (14, LETTERS_NAMED, LETTERS_NAMED)


def test_what_an_alert_does_not_tell_is_not_kept_for_it() -> None:
    large = letter("1", body=b"x" * 1_000_000, headers=(("authorization", b"hush"),), metadata={"a": 1}, key=b"hush")
    (pile,) = piles_of([large]).values()
    assert (pile.letter.body, pile.letter.headers, pile.letter.metadata, pile.letter.key) == (b"", (), {}, None)
    assert (pile.letter.history, pile.letter.failure.traceback) == ((), "")
    assert b"hush" not in json.encode(alert_of(pile, at=START))


def test_a_long_message_is_cut() -> None:
    (alert,) = alerts_of([letter("1", failure=failure(message="no answer " * 1000))], at=START)
    assert len(alert.summary) == SUMMARY_LIMIT
    assert len(alert.failure.message) == MESSAGE_LIMIT
    assert alert.summary.endswith("…")
    assert alert.failure.message.endswith("…")


def test_any_text_becomes_one_line_and_valid_json() -> None:
    odd = failure("shop.Odd", "a\x1b[31m\n\ttab \ud800 ü")
    (alert,) = alerts_of([replace(letter("1", failure=odd), source="or\udfffders")], at=START)
    assert alert.summary == "1 letter of 'or\\udfffders' is exhausted: Odd: a\\x1b[31m tab \\ud800 ü"
    assert json.decode(json.encode(alert))["failure"]["message"] == "a\x1b[31m\n\ttab \\ud800 ü"


def test_an_error_without_words_is_told_by_its_name() -> None:
    (alert,) = alerts_of([letter("1", failure=failure(message=""))], at=START)
    assert alert.summary == "1 letter of 'orders' is exhausted: TimeoutError"


def test_no_letters_call_for_no_alert() -> None:
    assert alerts_of([], at=START) == []
