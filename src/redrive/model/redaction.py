"""What must not be kept of a message: named headers, paths into JSON, patterns, and presets for what is secret everywhere.

Each redacted value leaves a mark that people can see and that says which rule took it: `[redacted:emails]`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

from redrive.model.errors import BadSettings
from redrive.model.hint import hint

PRESETS = ("cards", "emails", "tokens")
SECRET_HEADERS = ("authorization", "proxy-authorization", "cookie", "set-cookie", "x-api-key")
"""Never shown, whatever the rules are."""

MARK = re.compile(r"\[redacted:[a-z]+(?::[0-9a-f]{24})?\]")

_PATH_STEP = re.compile(r"""\*\*|\*|\[\*\]|\[\d{1,9}\]|\["[^"]+"\]|[^.\[\]*"\s][^.\[\]*"]*""")
_ESCAPES_AND_CLASSES = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
_REPEATED_REPEAT = re.compile(r"(?:[*+?]|\{\d*,\d*\})\??\)(?:[*+]|\{\d+,\d*\}|\{,\d+\})(?!\+)")


class Redaction(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Which values are replaced by a mark before anything is written. Wrong rules are refused when it is made."""

    headers: tuple[str, ...] = ()
    """Names, in any case; `*` stands for any part of a name: `authorization`, `x-*-token`."""
    paths: tuple[str, ...] = ()
    """Into JSON bodies and metadata, in any case: `customer.email`, `items[*].card`, `**.password`."""
    patterns: tuple[str, ...] = ()
    """Regular expressions; what they match in any text is redacted."""
    presets: tuple[str, ...] = ()
    """`cards`, `emails`, `tokens`."""
    key: str = ""
    """A secret that digests of redacted message ids are made with, so that nobody can find the id by trying."""

    def __post_init__(self) -> None:
        for name in self.headers:
            if not name.strip("* ") or name != name.strip():
                raise BadSettings(f"'{name}' is not a header's name; write authorization or x-*-token")
        for path in self.paths:
            steps_of(path)
        for pattern in self.patterns:
            _ensure_sound(pattern)
        for preset in self.presets:
            if preset not in PRESETS:
                raise BadSettings(f"there is no preset '{preset}' for redaction; {hint(preset, PRESETS)}")
        if len(self.key.encode("utf-8", "surrogatepass")) > 64:
            raise BadSettings("the key for redaction is too long; it may have 64 bytes")

    def __bool__(self) -> bool:
        """Is there anything to redact?"""
        return bool(self.headers or self.paths or self.patterns or self.presets)

    def __str__(self) -> str:
        """The rules on one line, without the key."""
        if not (self.headers or self.paths or self.patterns):
            return ",".join(self.presets)
        named = ((name, getattr(self, name)) for name in ("presets", "headers", "paths", "patterns"))
        return " ".join(f"{name}={','.join(values)}" for name, values in named if values)

    def __repr__(self) -> str:
        return f"Redaction({self})"

    @classmethod
    def read(cls, given: object) -> Redaction:
        """From what settings say: presets as `cards,tokens` or as a list, or a table with all the rules."""
        match given:
            case Redaction():
                return given
            case str():
                return cls(presets=tuple(part.strip() for part in given.split(",") if part.strip()))
            case list():
                return cls(presets=_strings("presets", given))
            case dict():
                rules = {name: _strings(name, value) for name, value in _known(given).items() if name != "key"}
                return msgspec.structs.replace(cls(key=given.get("key", "")), **rules)
            case _:
                raise BadSettings(f"redact must be {ALLOWED}")

    def with_headers(self, names: Iterable[str]) -> Redaction:
        """These rules, and these headers too."""
        return msgspec.structs.replace(self, headers=tuple(dict.fromkeys((*self.headers, *names))))


ALLOWED = "presets such as cards,tokens, or a table with headers, paths, patterns and presets"


def mark(rule: str, digest: str = "") -> str:
    """What stands in place of a redacted value."""
    return f"[redacted:{rule}:{digest}]" if digest else f"[redacted:{rule}]"


def is_marked(content: bytes) -> bool:
    """Does a mark stand somewhere in it?"""
    return b"[redacted:" in content and MARK.search(content.decode("latin-1")) is not None


def is_mark(text: str) -> bool:
    return MARK.fullmatch(text) is not None


def steps_of(path: str) -> tuple[str | int, ...]:
    """The steps of a path: names in lower case, numbers, `*` (any name), `[*]` (any place in a list), `**` (any depth)."""
    rest = path.removeprefix("$").replace("..", ".**.").removeprefix(".")
    steps: list[str | int] = []
    position = 0
    while position < len(rest):
        found = _PATH_STEP.match(rest, position)
        if found is None:
            break
        step = found[0]
        steps.append(int(step[1:-1]) if step[1:-1].isdecimal() and step[0] == "[" else step.strip('[]"').casefold() or step)
        if step in ("[*]", "*", "**"):
            steps[-1] = step
        position = found.end()
        if rest[position : position + 1] == "." and position + 1 < len(rest):
            position += 1
        elif rest[position : position + 1] != "[":
            break
    if not steps or position < len(rest) or steps == ["**"]:
        raise BadSettings(f"'{path}' is not a path; write customer.email, items[*].card or **.password")
    return tuple(steps)


def _ensure_sound(pattern: str) -> None:
    try:
        compiled = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise BadSettings(f"the pattern '{pattern}' is not a regular expression: {error}") from error
    if compiled.match("") is not None:
        raise BadSettings(
            f"the pattern '{pattern}' matches nothing at all, so it would be found everywhere; ask for one sign at least"
        )
    # The common way to a search that does not end. It is one look at the text of the pattern, and finds not every such way.
    if _REPEATED_REPEAT.search(_ESCAPES_AND_CLASSES.sub("x", pattern)):
        raise BadSettings(f"the pattern '{pattern}' repeats a repeat, which can take for ever; write (?>…)+ instead of (…)+")


def _known(table: dict[Any, Any]) -> dict[str, Any]:
    for name in table:
        if name not in Redaction.__struct_fields__:
            raise BadSettings(f"redact has no '{name}'; {hint(str(name), Redaction.__struct_fields__)}")
    if not isinstance(table.get("key", ""), str):
        raise BadSettings("key of redact must be a text")
    return table


def _strings(name: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise BadSettings(f"{name} of redact must be a list of texts")
    return tuple(value)
