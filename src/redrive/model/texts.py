"""Where words are looked for in a letter, and how near to them it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from functools import lru_cache
from typing import Any

from msgspec import DecodeError, json

from redrive.model.letter import Letter
from redrive.model.words import READ, haystack


class Where(StrEnum):
    """Texts of a letter."""

    MESSAGE = "message"
    """The failure's type and message: what a bare word is looked for in, at once after the letter is held."""
    TRACEBACK = "traceback"
    """The end of the traceback. Like the body, some stores index it a little later."""
    BODY = "body"
    """The beginning of the body: of JSON its names and values. A body in a file of its own is not searched."""
    ANYWHERE = "anywhere"
    """Any of these."""


_cached_haystack = lru_cache(maxsize=512)(haystack)  # an outage says the same thing again and again


def message_words(letter: Letter) -> str:
    """The failure's type and message, as words."""
    return _cached_haystack(f"{letter.failure.type} {letter.failure.message}")


def traceback_words(letter: Letter) -> str:
    """The end of the traceback, as words: there it says what happened."""
    return haystack(letter.failure.traceback[-READ:])


def body_words(letter: Letter) -> str:
    """The body, as words."""
    body = letter.body
    if body[:1] in (b"{", b"[", b'"'):
        try:
            return haystack(" ".join(_first(_leaves(json.decode(body)))))
        except (DecodeError, RecursionError):
            pass
    # A character takes four bytes at most; one that is cut in two is no word.
    return haystack(body[: 4 * READ].decode("utf-8", "replace"))


def _first(texts: Iterable[str]) -> Iterator[str]:
    """As many of the texts as are searched."""
    length = 0
    for text in texts:
        yield text
        if (length := length + len(text)) > READ:
            return


def _leaves(document: Any) -> Iterator[str]:
    """Names and values in a document, in their order."""
    match document:
        case dict():
            for name, value in document.items():
                yield name
                yield from _leaves(value)
        case list():
            for value in document:
                yield from _leaves(value)
        case str():
            yield document
        case bool() | None:
            pass
        case _:
            yield str(document)


def reads_otherwise(before: Letter, after: Letter) -> bool:
    """Is there something else to be read in the traceback or the body?"""
    return before.failure.traceback != after.failure.traceback or before.body != after.body


def found_in(needle: str, where: Where, letter: Letter) -> bool:
    """Is this `redrive.model.words.needle` in that text of the letter?"""
    match where:
        case Where.MESSAGE:
            return needle in message_words(letter)
        case Where.TRACEBACK:
            return needle in traceback_words(letter)
        case Where.BODY:
            return needle in body_words(letter)
        case Where.ANYWHERE:
            return any(found_in(needle, one, letter) for one in (Where.MESSAGE, Where.TRACEBACK, Where.BODY))


IN_TRACEBACK, IN_BODY, NOWHERE = 100_000, 200_000, 300_000
"""Distances. What is found in a message is nearer the shorter the message is: with one phrase that rarely comes twice in a
message, this is the order that BM25 gives too, but a letter's place does not change when others come and go."""


def distance(needle: str, where: Where, letter: Letter) -> int:
    """How far a letter is from a phrase: the characters of the words it was found among, or where else it was found."""
    if where in (Where.MESSAGE, Where.ANYWHERE) and needle in (told := message_words(letter)):
        return len(told)
    if where in (Where.TRACEBACK, Where.ANYWHERE) and needle in traceback_words(letter):
        return IN_TRACEBACK
    if where in (Where.BODY, Where.ANYWHERE) and needle in body_words(letter):
        return IN_BODY
    return NOWHERE
