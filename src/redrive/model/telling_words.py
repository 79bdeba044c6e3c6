"""The words of a message that tell what a failure was: whole words only, in any case."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from redrive.model.category import Category

WORDS_READ = 4096
"""Characters of a message that are read: what matters stands at its start, and cost stays bounded."""

_WORD = re.compile(r"[^\W_]+")

_WORDS: Mapping[Category, str] = {
    Category.TRANSIENT: """
        ratelimit ratelimited throttle throttles throttled throttling temporary temporarily busy unavailable offline retryable
        deadlock overloaded
        """,
    Category.NETWORK: """
        connection connections timeout timeouts network socket sockets ssl tls dns certificate certificates handshake unreachable
        """,
    Category.RESOURCE: "memory disk quota quotas capacity oom exceeded space",
    Category.PERMISSION: """
        permission permissions denied forbidden unauthorized unauthorised unauthenticated access auth authentication
        authorization credential credentials
        """,
    Category.VALIDATION: "invalid malformed validation format schema assertion",
}

_PHRASES: Mapping[Category, Sequence[str]] = {
    Category.TRANSIENT: ("rate limit", "rate limits", "rate limited", "rate limiting"),
    Category.NETWORK: ("timed out", "time out", "time outs"),
    Category.RESOURCE: ("out of",),
}
"""Tell as much as a single word does."""

_TELLING: Mapping[Category, Sequence[str]] = {
    Category.TRANSIENT: ("too many requests", "database is locked", "starting up", "shutting down"),
    Category.NETWORK: ("deadline exceeded",),
    Category.RESOURCE: ("too many connections", "too many clients"),
    Category.PERMISSION: ("authentication failed",),
    Category.VALIDATION: ("out of range", "out of bounds"),
    Category.PERMANENT: ("does not exist",),
}
"""Tell more than any single word beside them: "connection failed: password authentication failed" is no network."""


def words_of(message: str) -> list[str]:
    """The words at the start of a message, in small letters. An underscore parts words, as a hyphen does."""
    words = _WORD.findall(message[:WORDS_READ].lower())
    if len(message) > WORDS_READ and words and message[WORDS_READ - 1 : WORDS_READ + 1].isalnum():
        # Cut through its middle, a word may look like another one.
        words.pop()
    return words


@lru_cache(maxsize=256)
def words_of_rule(text: str) -> tuple[str, ...]:
    """The words a rule asks for; few rules are asked often, so they are kept."""
    return tuple(words_of(text))


class _Sign:
    """One thing that tells, in order of what counts first."""

    __slots__ = ("category", "rank", "rest", "text")

    def __init__(self, rank: int, category: Category, text: str) -> None:
        self.rank = rank
        self.category = category
        self.text = text
        self.rest = text.split()[1:]


def _signs() -> Iterator[_Sign]:
    singles = {category: (*_WORDS[category].split(), *_PHRASES.get(category, ())) for category in _WORDS}
    for rank, (category, texts) in enumerate((*_TELLING.items(), *singles.items())):
        for text in texts:
            yield _Sign(rank, category, text)


def _by_first_word() -> dict[str, list[_Sign]]:
    table: dict[str, list[_Sign]] = {}
    for sign in _signs():
        table.setdefault(sign.text.split()[0], []).append(sign)
    return table


_SIGNS = _by_first_word()


def by_words(message: str) -> tuple[Category, str] | None:
    """What the words tell, and which did. Phrases tell most; then transient before network, resource, permission, validation."""
    words = words_of(message)
    best: _Sign | None = None
    for at, word in enumerate(words):
        if word in _SIGNS:
            for sign in _SIGNS[word]:
                if (best is None or sign.rank < best.rank) and sign.rest == words[at + 1 : at + 1 + len(sign.rest)]:
                    best = sign
    return None if best is None else (best.category, best.text)
