"""What makes two failures the same failure, and why that is thought.

What counts first: your own word for it (`redrive_fingerprint`); the places in the application that it went through; without
those, its message, with what varies from one occurrence to the next taken out. Its type counts, and what it came from.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

VERSION = 2
"""Goes up whenever the same failure gets another fingerprint. Letters keep the version theirs was made with."""

MESSAGE_READ = 1024
_REASON_LIMIT = 200
_NAMED = 3
"""Causes and members that a reason names."""

BY_MESSAGE = "by its message: "
"""How a reason begins that quotes the message."""


class Trace(Struct, frozen=True, kw_only=True, gc=False):
    """An error, as far as it matters for its group."""

    type: str
    custom: tuple[str, ...] = ()
    """The application's own word for it; then nothing else counts."""
    places: tuple[str, ...] = ()
    """Where it passed through the application, outermost first, each place once: the same on every machine."""
    where: str = ""
    """The innermost of them, for people."""
    message: str = ""
    is_group: bool = False
    members: tuple[Trace, ...] = ()
    causes: tuple[Trace, ...] = ()
    """What it came from, nearest first."""


class Fingerprint(Struct, frozen=True, gc=False):
    """The group's name, and why a failure belongs to it."""

    digest: str
    reason: str


def fingerprint_of(trace: Trace) -> Fingerprint:
    """The group that a failure belongs to. Equal for equal traces, in every process and on every machine."""
    if trace.custom:
        return Fingerprint(_digest(("custom", *trace.custom)), _reason(f"custom: {', '.join(trace.custom)}"))
    if trace.places:
        parts, reason = [trace.type, *trace.places], f"in {trace.where}"
    elif trace.is_group:
        parts, reason = [trace.type], "by its members"
    else:
        told = normalised(trace.message)
        parts, reason = [trace.type, told], f"{BY_MESSAGE}{told}" if told else "by its type"
    if trace.members:
        # In no order: tasks that run side by side fail in any.
        parts += ["members", *sorted({fingerprint_of(one).digest for one in trace.members})]
        reason += f", a group of {_named(sorted({one.type for one in trace.members}))}"
    if trace.causes:
        # Each once: how often something was tried before it failed for good says nothing about what it is.
        parts += ["causes", *dict.fromkeys(map(_cause, trace.causes))]
        reason += f", caused by {_named(dict.fromkeys(one.type for one in trace.causes))}"
    return Fingerprint(_digest(parts), _reason(reason))


def fingerprint(error_type: str, message: str, frames: Sequence[str] = ()) -> str:
    """The digest alone, of an error that came from nothing else."""
    return fingerprint_of(Trace(type=error_type, message=message, places=tuple(frames))).digest


def _cause(cause: Trace) -> str:
    """A cause counts by its type and place. Its message does not: it is a library's, mostly, and changes with its version."""
    if cause.custom or cause.places or cause.members:
        return fingerprint_of(cause).digest
    return cause.type


def _digest(parts: Iterable[str]) -> str:
    whole = "\0".join(parts).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(whole, digest_size=8).hexdigest()


def _named(types: Iterable[str]) -> str:
    names = [name.removeprefix("builtins.") for name in types]
    return ", ".join(names[:_NAMED]) + (" …" if len(names) > _NAMED else "")


def _reason(text: str) -> str:
    return text if len(text) <= _REASON_LIMIT else f"{text[: _REASON_LIMIT - 1]}…"


_LETTER, _ALNUM, _HEX = r"[^\W\d_]", r"[^\W_]", "[0-9a-fA-F]"
_MONTH = "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}"
_DAY = "(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]{0,6}"
_PLAIN_WORDS = rf"(?<!{_LETTER})(?:(?!{_MONTH}|{_DAY})[A-Za-z]+(?:'[a-z]+)?[:;,.!?)]?(?: |\Z))+"

# Each alternative that begins with a run of characters begins only where such a run begins (the look-behinds) or has a bound:
# otherwise a long run would be read again from each of its characters. The first and the last are kept: they stand there so
# that most of a message is passed in few steps.
_VARYING = re.compile(
    "|".join(
        (
            f"({_PLAIN_WORDS})",
            r"(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]{1,15}://[^\s'\"<>()\[\]{}]+",  # URL
            r"(?<![\w.+-])[\w.+-]{1,64}@[\w.-]+",  # e-mail
            r"(?<!\w)'(?:[^'\\]|\\.)*(?:'|\\?\Z)",  # quoted; an apostrophe inside a word is none
            r"\"(?:[^\"\\]|\\.)*(?:\"|\\?\Z)",
            r"`[^`]*(?:`|\Z)|“[^”]*(?:”|\Z)|‘[^’]*(?:’|\Z)|«[^»]*(?:»|\Z)",
            r"(?<!\w)(?:[A-Za-z]:\\|\\\\)[^\s'\"<>|,;()]+",  # path on Windows
            r"(?<![\w./~-])(?:~|\.{1,2})?/[^\s'\"<>|,;:()\[\]{}]+",  # path
            r"(?<![\w./~-])[\w.-]+/[\w.-]+/[^\s'\"<>|,;:()\[\]{}]+",  # relative path of two folders or more
            r"(?<![\w.-])(?:localhost|(?:[\w-]+\.)+[\w-]+):\d+",  # host and port
            rf"(?<![\w:])(?:{_HEX}{{0,4}}:){{2,7}}{_HEX}{{0,4}}(?![\w:])",  # IPv6
            rf"(?<!\w)(?:{_DAY},? )?(?:{_MONTH}\.? \d+(?!\w)|\d+ {_MONTH}(?!\w))",  # date
            rf"(?<![\w-]){_HEX}{{8}}-(?:{_HEX}{{4}}-){{3}}{_HEX}{{12}}(?![\w-])",  # UUID
            r"(?<![\w-])(?=[^\W\d]*(?:-[^\W\d]*)*\d)[\w-]{16,}",  # a long id
            rf"(?<!{_ALNUM}){_HEX}{{8,}}(?!{_ALNUM})",  # a digest
            rf"(?<!{_ALNUM}){_LETTER}*\d+{_LETTER}{_ALNUM}*",  # letters after digits: 0x7f…, 7c9e, 10MB
            rf"[-+]?\d[\d.,:_]*(?:[eE][-+]?\d+)?(?!{_ALNUM})",  # a number, a time, an IP; order17 stays an order
            f"({_LETTER}+)",
        )
    ),
    re.DOTALL,
)
_SEVERAL = re.compile(r"\*(?:[^\w*]{0,3}\*)+")
"""A list of things that vary: how many there are varies too."""


def normalised(message: str) -> str:
    """The start of a message without what varies: numbers, ids, quotes, paths, URLs, addresses, dates and times become `*`."""
    return " ".join(_SEVERAL.sub("*", _VARYING.sub(_kept, message[:MESSAGE_READ])).split())


def _kept(found: re.Match[str]) -> str:
    return found[found.lastindex] if found.lastindex else "*"
