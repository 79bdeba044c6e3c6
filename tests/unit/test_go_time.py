"""Durations are read and written as Go does it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redrive.queues.go_time import NotADuration, parsed, written

SETTINGS = settings(max_examples=200, deadline=None, derandomize=True, database=None)
MOST_US = (2**63 - 1) // 1000
"""Go counts nanoseconds in 63 bits: some 292 years."""

durations = st.one_of(st.integers(-MOST_US, MOST_US), st.integers(-(10**7), 10**7)).map(lambda us: timedelta(microseconds=us))


@SETTINGS
@given(duration=durations)
def test_a_duration_comes_back_from_its_text(duration: timedelta) -> None:
    assert parsed(written(duration)) == duration


@SETTINGS
@given(text=st.text(st.sampled_from("0123456789.+-hmsnuµμ x"), max_size=12) | st.text(max_size=12))
def test_any_text_is_a_duration_or_refused(text: str) -> None:
    try:
        duration = parsed(text)
    except NotADuration as error:
        sentence = str(error)
    else:
        assert abs(duration) <= timedelta(microseconds=MOST_US)
        return
    assert sentence.startswith("time: ")
    assert sentence.isascii(), "as Go quotes it"


@pytest.mark.parametrize(
    ("text", "normal", "microseconds"),
    [
        ("0", "0s", 0),
        ("-0", "0s", 0),
        ("0s", "0s", 0),
        ("1ns", "0s", 0),
        ("1us", "1µs", 1),
        ("1µs", "1µs", 1),
        ("1μs", "1µs", 1),
        ("1500us", "1.5ms", 1_500),
        ("10ms", "10ms", 10_000),
        ("900ms", "900ms", 900_000),
        (".5s", "500ms", 500_000),
        ("1.s", "1s", 1_000_000),
        ("1.000001s", "1.000001s", 1_000_001),
        ("90s", "1m30s", 90_000_000),
        ("1.5h", "1h30m0s", 5_400_000_000),
        ("5m", "5m0s", 300_000_000),
        ("24h", "24h0m0s", 86_400_000_000),
        ("1h1s1h", "2h0m1s", 7_201_000_000),
        ("-1m", "-1m0s", -60_000_000),
        ("+1m", "1m0s", 60_000_000),
        ("0000000000000000000000001s", "1s", 1_000_000),
        ("1.00000000000000000000000000001s", "1s", 1_000_000),
        (f"1.{'0' * 10_000}s", "1s", 1_000_000),
        ("2562047h47m16.854775807s", "2562047h47m16.854775s", MOST_US),
    ],
)
def test_a_text_means_a_duration_and_has_a_normal_form(text: str, normal: str, microseconds: int) -> None:
    assert parsed(text) == timedelta(microseconds=microseconds)
    assert written(parsed(text)) == normal


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", 'time: invalid duration ""'),
        ("-", 'time: invalid duration "-"'),
        ("abc", 'time: invalid duration "abc"'),
        (".s", 'time: invalid duration ".s"'),
        ("1m.", 'time: invalid duration "1m."'),
        ("5", 'time: missing unit in duration "5"'),
        ("1m5", 'time: missing unit in duration "1m5"'),
        ("1d", 'time: unknown unit "d" in duration "1d"'),
        ("1 m", 'time: unknown unit " m" in duration "1 m"'),
        ("--1m", 'time: invalid duration "--1m"'),
        ("2562048h", 'time: invalid duration "2562048h"'),
        ("2562047h48m", 'time: invalid duration "2562047h48m"'),
        ("٣m", r'time: invalid duration "\xd9\xa3m"'),
        ('1"', r'time: unknown unit "\"" in duration "1\""'),
        ("1\n", r'time: unknown unit "\x0a" in duration "1\x0a"'),
    ],
)
def test_any_other_text_is_refused_in_gos_words(text: str, sentence: str) -> None:
    with pytest.raises(NotADuration) as caught:
        parsed(text)
    assert str(caught.value) == sentence


@pytest.mark.parametrize("text", ["9" * 10_000 + "h", "0s" * 100_000 + "?", "1" + "0" * 10_000])
def test_a_text_without_end_is_refused_soon(text: str) -> None:
    with pytest.raises(NotADuration):
        parsed(text)
