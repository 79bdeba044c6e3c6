"""Letters as JSON for people and programs: the same shape from the command line and over HTTP."""

from __future__ import annotations

import base64
from typing import Any

from msgspec import json, to_builtins

from redrive.model.letter import Letter

SCHEMA = 1
"""Raised when a field changes its meaning or goes; new fields may appear without."""


def letter_shape(letter: Letter) -> dict[str, Any]:
    """Every field, defaults included. Bytes are text where they are UTF-8, else base64 under `…_base64`.

    What may be shown is for `DeadLetters.shown` to say: give this a letter that went through it.
    """
    shape: dict[str, Any] = {name: getattr(letter, name) for name in Letter.__struct_fields__}
    shape = to_builtins({name: _full(value) for name, value in shape.items() if not isinstance(value, bytes)})
    shape |= _bytes("body", letter.body) | (_bytes("key", letter.key) if letter.key is not None else {"key": None})
    shape["headers"] = [{"name": name} | _bytes("value", value) for name, value in letter.headers]
    if letter.original is not None:
        del shape["original"]["body"]
        shape["original"] |= _bytes("body", letter.original.body)
        shape["original"]["headers"] = [{"name": name} | _bytes("value", value) for name, value in letter.original.headers]
    shape["attempts"] = letter.attempts
    return shape


def as_json(shape: dict[str, Any]) -> str:
    """One line of JSON with its schema number first."""
    return json.encode({"schema": SCHEMA, **shape}).decode()


def _full(value: Any) -> Any:
    """Nested values with their defaults, which the stored form leaves out."""
    if isinstance(value, tuple):
        return [_full(item) for item in value]
    if (fields := getattr(value, "__struct_fields__", None)) is not None:
        return {name: _full(getattr(value, name)) for name in fields}
    return value


def _bytes(name: str, value: bytes) -> dict[str, str]:
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}
