"""What kind of failure it was: the words and types that tell."""

from __future__ import annotations

import json
import socket
import ssl

import msgspec
import pytest

from redrive import Category
from redrive.engine.describe import describe
from redrive.model.category import classify

WORDS = {
    Category.TRANSIENT: (
        "rate limit", "throttle", "throttled", "throttling", "temporary", "busy", "unavailable", "offline", "retryable",
    ),
    Category.NETWORK: ("connection", "timeout", "network", "socket", "ssl", "certificate", "handshake"),
    Category.RESOURCE: ("memory", "disk", "quota", "capacity", "oom", "out of", "exceeded", "space"),
    Category.PERMISSION: ("permission", "denied", "forbidden", "unauthorized", "access", "auth", "credential"),
    Category.VALIDATION: ("invalid", "malformed", "validation", "format", "schema", "assertion"),
}  # fmt: skip


@pytest.mark.parametrize(("category", "word"), [(category, word) for category, words in WORDS.items() for word in words])
def test_a_word_of_the_document_tells_the_category(category: Category, word: str) -> None:
    for message in (
        word,
        word.upper(),
        word.title(),
        f"the thing: {word}!",
        f"x-{word}/y",
        f"no_{word}_here",
        f"({word})",
        f"a\n{word}\tb",
    ):
        assert classify((), message) is category, message


@pytest.mark.parametrize(
    "message",
    [
        "author", "information", "the authors of this formation", "accessory", "diskette", "roomy", "bloom", "memorystick",
        "spaceship", "schematic", "inaccessible?", "network2", "invalidate", "busybody", "offlined", "handshaken", "", " ",
        "\ud800", "日本語の問題", "çauthé",
    ],
)  # fmt: skip
def test_only_whole_words_count_and_the_rest_is_permanent(message: str) -> None:
    assert classify((), message) is Category.PERMANENT


def test_the_first_category_that_matches_wins() -> None:
    assert classify((), "access denied: invalid connection, temporary") is Category.TRANSIENT
    assert classify((), "invalid certificate, access denied, out of memory") is Category.NETWORK
    assert classify((), "invalid credential, quota") is Category.RESOURCE
    assert classify((), "invalid credential") is Category.PERMISSION


class MyTimeout(TimeoutError):
    pass


class Refusing(ConnectionRefusedError):
    pass


@pytest.mark.parametrize(
    ("error", "category"),
    [
        (TimeoutError(), Category.NETWORK),
        (MyTimeout("invalid"), Category.NETWORK),
        (Refusing(), Category.NETWORK),
        (BrokenPipeError(), Category.NETWORK),
        (socket.gaierror(8, "no such host"), Category.NETWORK),
        (ssl.SSLError("x"), Category.NETWORK),
        (BlockingIOError(), Category.TRANSIENT),
        (MemoryError(), Category.RESOURCE),
        (PermissionError(), Category.PERMISSION),
        (KeyError("id"), Category.VALIDATION),
        (AssertionError(), Category.VALIDATION),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "connection"), Category.VALIDATION),
        (json.JSONDecodeError("x", "y", 0), Category.VALIDATION),
        (msgspec.ValidationError("x"), Category.VALIDATION),
        (OSError(28, "No space left on device"), Category.RESOURCE),
        (RuntimeError("service unavailable"), Category.TRANSIENT),
        (RuntimeError("who knows"), Category.PERMANENT),
    ],
)
def test_the_type_and_its_bases_come_before_the_words(error: Exception, category: Category) -> None:
    assert describe(error).category is category


def test_a_message_without_an_end_is_read_only_at_its_start() -> None:
    assert classify((), "x" * 10_000_000 + " timeout") is Category.PERMANENT
    assert classify((), "timeout " + "x" * 10_000_000) is Category.NETWORK
