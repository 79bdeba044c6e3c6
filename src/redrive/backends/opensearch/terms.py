"""Texts as terms of an index: what is too long for one keeps its beginning, and a digest of the whole stands behind it.

So whether two texts are the same is always answered exactly; which of two comes first, as long as they differ in their first
8,000 bytes.
"""

from __future__ import annotations

from hashlib import sha256

from redrive.model.errors import BadSettings
from redrive.model.words import words

_MOST_BYTES = 8000
_MOST_CHARACTERS = _MOST_BYTES // 4
"""A text of so many is never too long."""
_BEHIND = "\U0010ffff"


def term(text: str) -> str:
    """The text as it is indexed and looked for."""
    if len(text) <= _MOST_CHARACTERS and text.isascii():
        return text
    try:
        raw = text.encode()
    except UnicodeEncodeError as error:
        raise BadSettings(f"the question holds text that is no valid Unicode: {text[:50]!r}") from error
    if len(raw) <= _MOST_BYTES:
        return text
    return raw[:_MOST_BYTES].decode(errors="ignore") + _BEHIND + sha256(raw).hexdigest()


def is_cut(term: str) -> bool:
    """Is this the term of a text that was too long?"""
    return len(term) > _MOST_CHARACTERS and len(term.encode()) > _MOST_BYTES


def phrase(text: str) -> str | None:
    """The words of a text, one after another, as the analyser takes them apart again; None: it has none."""
    return " ".join(map(term, words(text))) or None
