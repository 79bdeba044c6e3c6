"""What a message says counts where nothing else does; what varies in it does not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.engine.describe import describe, told
from redrive.model.fingerprint import normalised

SAME = [
    ("order 17 failed", "order 23455 failed"),
    ("took 3.5 s", "took 12.25 s"),
    ("<Foo object at 0x7fffabcd> is gone", "<Foo object at 0x7000abce> is gone"),
    ("7c9e6679-7425-40de-944b-e07fc1f90ae7 is gone", "00000000-0000-4000-8000-000000000000 is gone"),
    ("no key 'abc'", "no key 'it\\'s'"),
    ('no key "abc"', 'no key "x y z"'),
    ("can't open '/a' in it", "can't open '/b/c' in it"),
    ("/srv/a/b not found", "/home/c not found"),
    ("C:\\a\\b.txt not found", "D:\\c.txt not found"),
    ("shop/data/a.csv: empty", "shop/data/old/b.csv: empty"),
    ("GET https://a.example/x?y=1 failed", "GET http://b.example:8080/ failed"),
    ("no user a.b@example.org", "no user carol@example.com"),
    ("connect to 10.0.0.1:5432 failed", "connect to db-3.internal:6432 failed"),
    ("host fe80::1 is down", "host 2001:db8::ff00:42 is down"),
    ("since 2025-01-02T03:04:05.678Z", "since 2026-11-12 13:14:15"),
    ("since Mon, 03 Feb 2025", "since Thursday, 12 November 2026"),
    ("since Jan 3, 2025", "since March 12, 2026"),
    ("request V1StGXR8_Z5jdHi6B-myT failed", "request 01ARZ3NDEKTSV4RRFFQ69G5FAV failed"),
    ("digest deadbeef12345678 is wrong", "digest 0123456789abcdef is wrong"),
    ("missing 1, 2 and more", "missing 1, 2, 3, 4 and more"),
    ("bad value 'xxx" + "y" * 5_000, "bad value 'zz" + "w" * 9_000),
    ("bad  value\nhere", "bad value here"),
]
DIFFERENT = [
    ("disk is full", "disk is gone"),
    ("order 17 failed", "invoice 17 failed"),
    ("order-17 failed", "invoice-17 failed"),
    ("order17 failed", "invoice17 failed"),
    ("took 3 ms", "took 3 s"),
    ("no application/json", "no application/xml"),
    ("it's John's", "it's Mary's"),
    ("<Foo object at 0x7f> is gone", "<Bar object at 0x7f> is gone"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_what_varies_in_a_message_splits_no_group(one: str, other: str) -> None:
    assert normalised(one) == normalised(other)
    assert describe(RuntimeError(one)).fingerprint == describe(RuntimeError(other)).fingerprint
    assert told("shop.Gone", one).fingerprint == told("shop.Gone", other).fingerprint


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_what_a_message_says_splits_groups(one: str, other: str) -> None:
    assert normalised(one) != normalised(other)
    assert describe(RuntimeError(one)).fingerprint != describe(RuntimeError(other)).fingerprint


def test_the_type_counts_with_a_message_and_without() -> None:
    assert len({describe(kind(text)).fingerprint for kind in (RuntimeError, TypeError) for text in ("", "x")}) == 4
    assert describe(TypeError()).fingerprint_reason == "by its type"


@pytest.mark.parametrize(
    "part", ["a", "1", "'", "\\'", "a.", "a-", "a@", "/", "a:", "::", "1.", "* ", "a/", "Jan ", "0x", "_", "a1"]
)
def test_ten_megabytes_made_to_be_slow_are_not(part: str) -> None:
    text = part * (10_000_000 // len(part))
    assert len(normalised(text)) <= 1024
    assert describe(ValueError(text)).fingerprint


@given(st.text())
def test_any_message_can_be_normalised_and_then_stays_as_it_is_in_length(text: str) -> None:
    once = normalised(text)
    assert len(once) <= len(text)
    assert describe(RuntimeError(text)).fingerprint == describe(RuntimeError(text)).fingerprint
