"""The differences between two contents of a letter, as lines that people can read."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import unified_diff
from hashlib import sha256

from redrive.model import plain
from redrive.model.errors import BadSettings
from redrive.model.letter import Headers, Original
from redrive.model.target import SOURCE

_MOST_LINES = 5_000
"""Comparing more would take longer than anybody waits."""
_HEX_SHOWN = 16


def difference(before: Original, after: Original) -> list[str]:
    """What differs, part by part, as unified lines: `-` was, `+` will be. None where both are the same."""
    types = _unified("content type", [before.content_type], [after.content_type])
    heads = _unified("headers", _lines_of(before.headers), _lines_of(after.headers))
    targets = _unified("target", [before.target or SOURCE], [after.target or SOURCE])
    return targets + types + heads + bodies(before.body, after.body)


def bodies(before: bytes, after: bytes) -> list[str]:
    """What differs between two bodies: lines of pretty JSON or of text; of other bytes only their sizes and beginnings."""
    if before == after:
        return []
    was, becomes = _pretty(before), _pretty(after)
    if was is not None and was == becomes:
        return ["--- body", "+++ body", "  only its spacing differs"]
    if was is None or becomes is None:
        was, becomes = _text(before), _text(after)
    if was is None or becomes is None or max(len(was), len(becomes)) > _MOST_LINES:
        return ["--- body", "+++ body", f"-{_note(before)}", f"+{_note(after)}"]
    return _unified("body", was, becomes)


def _unified(name: str, before: Sequence[str], after: Sequence[str]) -> list[str]:
    return list(unified_diff(before, after, name, name, lineterm=""))


def _lines_of(headers: Headers) -> list[str]:
    return [f"{name}: {value.decode('utf-8', 'backslashreplace')}" for name, value in headers]


def _pretty(body: bytes) -> list[str] | None:
    try:
        return plain.written(plain.read(body), indent=2).decode().split("\n")
    except BadSettings:
        return None


def _text(body: bytes) -> list[str] | None:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text.split("\n")


def _note(body: bytes) -> str:
    start = body[:_HEX_SHOWN].hex(" ")
    return f"{len(body):,} bytes, {start}{' …' if len(body) > _HEX_SHOWN else ''} (sha256 {sha256(body).hexdigest()[:12]})"
