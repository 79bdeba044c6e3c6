"""Texts of a bounded length that every store can write."""

from __future__ import annotations


def clean(text: str) -> str:
    """The text with lone surrogates, which no store can write, escaped."""
    if text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode()


def shortened(text: str, limit: int) -> str:
    """The text within the limit, its middle cut out and the cut marked: both ends tell the most."""
    if len(text) <= limit:
        return text
    room = limit - len(_cut(len(text)))
    if room <= 0:
        return text[:limit]
    kept = room // 2
    return f"{text[:kept]}{_cut(len(text) - 2 * kept)}{text[len(text) - kept :]}"


def _cut(characters: int) -> str:
    return f"\n… {characters} characters cut …\n"
