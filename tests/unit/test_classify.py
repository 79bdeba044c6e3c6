"""What kind of failure it was, and why: the order of decision, the words, the rules, and that nothing can break it."""

from __future__ import annotations

import time

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redrive import Category
from redrive.model.classify import Classified, Evidence, Rule, classify
from redrive.model.evidence import read
from redrive.model.known_codes import GRPC, HTTP, by_code, by_http

WORDS = {
    Category.TRANSIENT: (
        "rate limit", "rate limited", "throttle", "throttled", "throttling", "temporary", "temporarily", "busy", "unavailable",
        "offline", "retryable", "deadlock", "too many requests", "database is locked",
    ),
    Category.NETWORK: (
        "connection", "timeout", "timed out", "time-out", "network", "socket", "ssl", "certificate", "handshake", "deadline exceeded",
    ),
    Category.RESOURCE: ("memory", "disk", "quota", "capacity", "oom", "out of", "exceeded", "space", "too many connections"),
    Category.PERMISSION: (
        "permission", "denied", "forbidden", "unauthorized", "access", "auth", "credential", "authentication failed",
    ),
    Category.VALIDATION: ("invalid", "malformed", "validation", "format", "schema", "assertion", "out of range"),
}  # fmt: skip


def said(message: str) -> Category:
    return classify(Evidence(message=message)).category


@pytest.mark.parametrize(("category", "word"), [(category, word) for category, words in WORDS.items() for word in words])
def test_a_word_tells_the_category(category: Category, word: str) -> None:
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
        assert said(message) is category, message


@pytest.mark.parametrize(
    "message",
    [
        "author", "information", "the authors of this formation", "accessory", "diskette", "roomy", "bloom", "memorystick",
        "spaceship", "schematic", "inaccessible?", "network2", "invalidate", "busybody", "offlined", "handshaken", "", " ",
        "\ud800", "日本語の問題", "çauthé", "out", "rate", "limit rate", "timed", "rate the limit",
    ],
)  # fmt: skip
def test_only_whole_words_count_and_the_rest_is_permanent(message: str) -> None:
    assert classify(Evidence(message=message)) == Classified(Category.PERMANENT, "nothing says otherwise")


def test_the_first_category_that_matches_wins() -> None:
    assert said("access denied: invalid connection, temporary") is Category.TRANSIENT
    assert said("invalid certificate, access denied, out of memory") is Category.NETWORK
    assert said("invalid credential, quota") is Category.RESOURCE
    assert said("invalid credential") is Category.PERMISSION


def test_a_telling_phrase_counts_for_more_than_the_words_beside_it() -> None:
    assert said("connection failed: password authentication failed") is Category.PERMISSION
    assert said("connection failed: too many connections") is Category.RESOURCE
    assert said("index out of range") is Category.VALIDATION
    assert said('connection failed: database "x" does not exist') is Category.PERMANENT
    assert said("out of memory, then out of range") is Category.VALIDATION


def test_a_message_without_an_end_is_read_only_at_its_start() -> None:
    assert said("x" * 10_000_000 + " timeout") is Category.PERMANENT
    assert said("timeout " + "x" * 10_000_000) is Category.NETWORK


def test_a_word_cut_off_where_reading_ends_is_no_word() -> None:
    assert said(" " * 4090 + "accessory") is Category.PERMANENT
    assert said(" " * 4090 + "access to it") is Category.PERMISSION
    assert said(" " * 4090 + "access") is Category.PERMISSION


@pytest.mark.parametrize("piece", ["a ", "out ", "rate ", "too many ", "_", "x", "İ", "\ud800", "timed ", "é" * 9 + " "])
def test_ten_megabytes_of_anything_cost_no_more_than_the_start_of_it(piece: str) -> None:
    evidence = Evidence(message=piece * (10_000_000 // len(piece)))
    rules = [Rule(category=Category.NETWORK, message="rate out too zebra")] * 3
    began = time.thread_time()
    classify(evidence, rules)
    # Reading it all would take a second of computing, whoever else has a turn meanwhile.
    assert time.thread_time() - began < 0.2


ORDER = Evidence(
    names=("shop.Lost", "builtins.RuntimeError"),
    message="invalid",
    http_status=503,
    code="AccessDenied",
    grpc_status="NOT_FOUND",
    errno=28,
    cause=Evidence(names=("builtins.ConnectionResetError", "builtins.ConnectionError")),
)


def without(evidence: Evidence, *fields: str) -> Evidence:
    return msgspec.structs.replace(evidence, **dict.fromkeys(fields))


def test_the_order_of_decision_and_what_each_says() -> None:
    rule = Rule(category=Category.RESOURCE, error="Lost")
    typed = msgspec.structs.replace(ORDER, names=("shop.Away", "builtins.ConnectionError"))
    assert classify(typed, [rule]).why == "type shop.Away is a builtins.ConnectionError"
    assert classify(ORDER, [rule]) == Classified(Category.RESOURCE, "rule 1: error 'Lost'")
    assert classify(ORDER) == Classified(Category.PERMISSION, "code AccessDenied")
    assert classify(without(ORDER, "code")) == Classified(Category.TRANSIENT, "HTTP status 503")
    numbers = without(ORDER, "code", "http_status")
    assert classify(numbers) == Classified(Category.PERMANENT, "gRPC status NOT_FOUND")
    assert classify(without(numbers, "grpc_status")) == Classified(Category.RESOURCE, "system error ENOSPC")
    bare = without(numbers, "grpc_status", "errno")
    assert classify(bare) == Classified(
        Category.NETWORK, "its cause: type builtins.ConnectionResetError is a builtins.ConnectionError"
    )
    assert classify(without(bare, "cause")) == Classified(Category.VALIDATION, "the word 'invalid' in the message")
    vague = msgspec.structs.replace(without(bare, "cause"), names=("requests.exceptions.RequestException",))
    assert classify(vague) == Classified(Category.NETWORK, "type requests.exceptions.RequestException")
    assert classify(Evidence(message="rate limited")).why == "the words 'rate limited' in the message"


def test_a_plain_type_decides_for_itself_but_as_a_cause_only_after_the_words() -> None:
    key = Evidence(names=("builtins.KeyError", "builtins.LookupError"), message="timeout")
    reset = Evidence(names=("builtins.ConnectionError",))
    assert classify(key).category is Category.VALIDATION
    assert classify(msgspec.structs.replace(key, cause=reset)).category is Category.VALIDATION
    assert classify(msgspec.structs.replace(key, http_status=503)).category is Category.TRANSIENT
    assert classify(Evidence(message="busy", cause=key)).category is Category.TRANSIENT
    assert classify(Evidence(message="what?", cause=key)).why == "its cause: type builtins.KeyError is a builtins.LookupError"
    assert classify(Evidence(message="what?", cause=Evidence(message="busy"))).why == "its cause: the word 'busy' in the message"


def test_a_chain_is_asked_only_so_far() -> None:
    def chained(depth: int) -> Evidence:
        evidence = Evidence(names=("builtins.ConnectionError",))
        for _ in range(depth):
            evidence = Evidence(names=("builtins.RuntimeError",), cause=evidence)
        return evidence

    assert classify(chained(9)).category is Category.NETWORK
    assert classify(chained(10)).category is Category.PERMANENT
    assert classify(chained(5_000)).category is Category.PERMANENT


def test_a_status_that_nobody_lists_goes_with_its_hundred() -> None:
    assert (by_http(599), by_http(555), by_http(477)) == (Category.NETWORK, Category.TRANSIENT, Category.PERMANENT)
    assert {by_http(status) for status in (-1, 0, 100, 200, 302, 399, 600)} == {None}
    assert classify(Evidence(http_status=302, message="busy")).why == "the word 'busy' in the message"
    assert all(400 <= status <= 599 for status in HTTP)
    assert len(GRPC) == 15


def test_a_number_means_something_only_with_its_library() -> None:
    assert by_code("112", "pymongo.errors.OperationFailure") is Category.TRANSIENT
    assert by_code("112", "shop.Error") is None
    assert by_code("11000", "pymongo.errors.DuplicateKeyError") is Category.VALIDATION
    assert by_code("40001", "shop.Error") is Category.TRANSIENT
    assert by_code("40001", "pymongo.errors.OperationFailure") is None
    assert by_code("SQLITE_BUSY_SNAPSHOT", "") is Category.TRANSIENT
    assert {by_code(code, "") for code in ("", "x", "4000", "400011", "zz999", "SQLITE_", "\ud800")} == {None}


names = st.lists(st.text(max_size=20) | st.sampled_from(["builtins.OSError", "pymongo.x", "smtplib.y"]), max_size=4).map(tuple)
evidence = st.recursive(
    st.none(),
    lambda inner: st.builds(
        Evidence,
        names=names,
        message=st.text(max_size=60),
        http_status=st.none() | st.integers(),
        grpc_status=st.none() | st.text(max_size=10),
        errno=st.none() | st.integers(),
        code=st.none() | st.text(max_size=10) | st.from_regex(r"[0-9A-Z]{5}"),
        cause=inner,
    ),
    max_leaves=5,
).filter(lambda one: one is not None)
rules = st.builds(
    Rule,
    category=st.sampled_from(Category),
    error=st.none() | st.sampled_from(["OSError", "x.y"]),
    message=st.none() | st.sampled_from(["a b", "é"]),
    http_status=st.integers(),
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(evidence, st.lists(rules, max_size=3))
def test_whatever_the_evidence_there_is_a_category_and_a_reason(given: Evidence, asked: list[Rule]) -> None:
    found = classify(given, asked)
    assert isinstance(found.category, Category)
    assert found.why
    assert classify(given, asked) == found


def test_what_is_read_and_classified_is_the_same_whether_first_or_again() -> None:
    assert len({classify(read(TimeoutError())) for _ in range(3)}) == 1
