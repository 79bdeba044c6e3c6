"""What kind of failure it was: by the exception's type and its bases, then by the words of its message."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum


class Category(StrEnum):
    TRANSIENT = "transient"
    NETWORK = "network"
    RESOURCE = "resource"
    PERMISSION = "permission"
    VALIDATION = "validation"
    PERMANENT = "permanent"


_BY_TYPE: dict[str, Category] = {
    "builtins.ConnectionError": Category.NETWORK,
    "builtins.TimeoutError": Category.NETWORK,
    "asyncio.exceptions.TimeoutError": Category.NETWORK,
    "socket.gaierror": Category.NETWORK,
    "socket.herror": Category.NETWORK,
    "ssl.SSLError": Category.NETWORK,
    "urllib.error.URLError": Category.NETWORK,
    "builtins.BlockingIOError": Category.TRANSIENT,
    "builtins.InterruptedError": Category.TRANSIENT,
    "builtins.MemoryError": Category.RESOURCE,
    "builtins.PermissionError": Category.PERMISSION,
    "builtins.AssertionError": Category.VALIDATION,
    "builtins.LookupError": Category.VALIDATION,
    "builtins.TypeError": Category.VALIDATION,
    "builtins.ValueError": Category.VALIDATION,
    "msgspec.ValidationError": Category.VALIDATION,
}

_BY_WORD: tuple[tuple[Category, re.Pattern[str]], ...] = tuple(
    (category, re.compile(rf"(?<![^\W_])(?:{words})(?![^\W_])", re.IGNORECASE))
    for category, words in (
        (
            Category.TRANSIENT,
            r"rate limit(?:s|ed|ing)?|throttl(?:e|es|ed|ing)|temporar(?:y|ily)|busy|unavailable|offline|retryable",
        ),
        (Category.NETWORK, r"connections?|time-?outs?|timed out|network|sockets?|ssl|certificates?|handshake"),
        (Category.RESOURCE, r"memory|disk|quotas?|capacity|oom|out of|exceeded|space"),
        (Category.PERMISSION, r"permissions?|denied|forbidden|unauthorized|access|auth|credentials?"),
        (Category.VALIDATION, r"invalid|malformed|validation|format|schema|assertion"),
    )
)

_WORDS_READ = 4096
"""Characters of a message that are searched: what matters stands at its start, and cost stays bounded."""


def classify(type_names: Iterable[str], message: str) -> Category:
    """The category of an error, given the qualified names of its type and bases (nearest first) and its message."""
    for name in type_names:
        if (known := _BY_TYPE.get(name)) is not None:
            return known
    start = message[:_WORDS_READ]
    for category, pattern in _BY_WORD:
        if pattern.search(start):
            return category
    return Category.PERMANENT
