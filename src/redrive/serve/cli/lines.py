"""Letters as lines of JSON, whole and without loss: what `redrive export` writes, and how to read it back.

A line has the shape that `redrive show --json` prints, with `schema` first, and three things more, so that nothing is lost:
the body is there also when it lies in a file of its own, `forgotten_base64` holds the occurrences that a long history let
go, and `metadata_msgpack` (base64) the metadata when JSON cannot say it exactly. Nothing is redacted.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any

from msgspec import DecodeError, ValidationError, convert, json, msgpack

from redrive.model.errors import BadSettings
from redrive.model.letter import Letter
from redrive.serve.shape import SCHEMA, letter_shape

_DERIVED = ("schema", "attempts")
_BYTES = ("body", "key", "forgotten")


def line_of(letter: Letter) -> bytes:
    """The letter, which has its bodies inside, as one line."""
    shape = {"schema": SCHEMA, **letter_shape(letter)}
    if letter.forgotten:
        shape["forgotten_base64"] = b64encode(letter.forgotten).decode()
    if letter.metadata and not _is_plain(letter.metadata):
        shape["metadata_msgpack"] = b64encode(msgpack.encode(letter.metadata)).decode()
    return json.encode(shape) + b"\n"


def letter_of(line: bytes) -> Letter:
    """The letter in a line, with its bodies inside; `BadSettings` when it holds none."""
    try:
        shape = json.decode(line)
        if shape.get("schema") != SCHEMA:
            raise BadSettings(f"this line has schema {shape.get('schema')}, this redrive knows {SCHEMA}; upgrade redrive")
        exact = shape.pop("metadata_msgpack", None)
        for name in _DERIVED:
            shape.pop(name, None)
        _unpack(shape)
        if exact is not None:
            shape["metadata"] = msgpack.decode(b64decode(exact, validate=True))
        return convert(shape, Letter, builtin_types=(bytes,))
    except (DecodeError, ValidationError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadSettings(f"this line holds no letter: {error}") from error


def _unpack(shape: dict[str, Any]) -> None:
    """Turn texts and base64 into bytes, where bytes belong."""
    for name in _BYTES:
        _to_bytes(shape, name)
    shape["headers"] = _headers(shape["headers"])
    if (original := shape.get("original")) is not None:
        _to_bytes(original, "body")
        original["headers"] = _headers(original["headers"])


def _headers(shapes: list[dict[str, Any]]) -> list[tuple[str, bytes]]:
    for shape in shapes:
        _to_bytes(shape, "value")
    return [(shape["name"], shape["value"]) for shape in shapes]


def _to_bytes(shape: dict[str, Any], name: str) -> None:
    if (packed := shape.pop(f"{name}_base64", None)) is not None:
        shape[name] = b64decode(packed, validate=True)
    elif isinstance(text := shape.get(name), str):
        shape[name] = text.encode()


def _is_plain(metadata: dict[str, Any]) -> bool:
    """Does JSON say it exactly?"""
    return _is_same(json.decode(json.encode(metadata)), metadata)


def _is_same(read: Any, meant: Any) -> bool:
    if type(read) is not type(meant):
        return False
    if isinstance(meant, dict):
        return read.keys() == meant.keys() and all(_is_same(read[key], value) for key, value in meant.items())
    if isinstance(meant, list):
        return len(read) == len(meant) and all(map(_is_same, read, meant))
    return bool(read == meant)
