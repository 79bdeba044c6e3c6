"""What a word is, for every search in every store: the same cutting on both sides, so that engines only compare bytes."""

from __future__ import annotations

import re

_WORD = re.compile(r"[^\W_]+")
_NOWHERE = "\x1f"
"""A sign that is no part of any word."""

READ = 8192
"""Characters of a text that are searched; a failure's message is no longer than that."""


def words(text: str) -> list[str]:
    """The words of a text: runs of letters and digits in any script, without regard to case."""
    return _WORD.findall(text[:READ].casefold())


def haystack(text: str) -> str:
    """A text as stores keep it for searching: its words with one space before, between and behind them."""
    return f" {' '.join(words(text))} "


def needle(phrase: str) -> str:
    """What to look for in a haystack: these words, one after another and whole. What has no word is in no haystack."""
    found = words(phrase)
    return f" {' '.join(found)} " if found else _NOWHERE
