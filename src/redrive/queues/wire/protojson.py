"""JSON as protobuf has it.

What is written as most clients write it is read by msgspec, at once. All else comes here: names in camel case, nulls, numbers in
quotes, and what is wrong, which is told with its line and column in protobuf's own words.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from binascii import Error as NotBase64
from functools import cache
from math import isfinite
from typing import Any, TypeVar

import msgspec

from redrive.queues.wire import stamps
from redrive.queues.wire.messages import Message
from redrive.queues.wire.schema import STAMP, fields, wire_name

M = TypeVar("M", bound=Message)

_SPACE = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_TOKEN = re.compile(r'[{}\[\]:,]|[^\s{}\[\]:,"]+')
_KNOWN = re.compile(rf"[{{}}\[\]:,]|true|false|null|{_NUMBER.pattern}")
_NAMES = {str: "string", bytes: "bytes", bool: "bool", "int32": "int32", "double": "double"}
_SURROGATE = re.compile("[\ud800-\udfff]")
"""Half a character: JSON can escape one, no text can hold it."""
_INT32 = 2**31
_DEPTH = 100
_DIGITS = 400
_strings = json.JSONDecoder()


class NotProtojson(ValueError):
    """This is no such message; the text says where and why."""


@cache
def _decoder(kind: type[M]) -> msgspec.json.Decoder[M]:
    return msgspec.json.Decoder(kind)


def read(kind: type[M], body: bytes) -> M:
    try:
        message: M = _decoder(kind).decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return carefully(kind, body)
    return message


def carefully(kind: type[M], body: bytes) -> M:
    """Read by the letter of the rules, or tell what is wrong."""
    return _Reader(body).whole(kind)


def write(message: Message) -> bytes:
    return msgspec.json.encode(message)


class _Reader:
    """Reads with the rules at hand, slowly, and knows where it is."""

    def __init__(self, body: bytes) -> None:
        try:
            self._text = body.decode()
        except UnicodeDecodeError as error:
            self._text = body[: error.start].decode()
            raise NotProtojson(f"proto: syntax error {self._where(len(self._text))}: invalid UTF-8") from None
        self._at = 0

    def whole(self, kind: type[M]) -> M:
        made = self._message(kind, 0)
        self._skip()
        if self._at < len(self._text):
            raise self._unexpected()
        return made

    def _message(self, kind: type[M], depth: int) -> M:
        self._skip()
        if not self._text.startswith("{", self._at) or depth > _DEPTH:
            raise self._unexpected(is_start=not depth)
        self._at += 1
        by_name = {}
        for name in fields(kind):
            snake = wire_name(name)
            by_name[snake] = by_name[_camel(snake)] = name
        made: dict[str, Any] = {}
        seen: set[str] = set()
        while not self._closes("}", is_first=not seen):
            start = self._at
            if not self._text.startswith('"', start):
                raise self._unexpected()
            known = self._string()
            if known not in by_name:
                raise NotProtojson(f'proto: {self._where(start)}: unknown field "{known}"')
            name = by_name[known]
            if name in seen:
                raise NotProtojson(f'proto: {self._where(start)}: duplicate field "{known}"')
            seen.add(name)
            self._skip()
            if not self._text.startswith(":", self._at):
                raise self._unexpected()
            self._at += 1
            element, is_many = fields(kind)[name]
            value = self._many(element, depth) if is_many else self._one(element, depth)
            if value is not None:
                made[name] = value
        return kind(**made)

    def _closes(self, bracket: str, *, is_first: bool) -> bool:
        """Is this the end of what was opened? Else stands before the next of its parts."""
        self._skip()
        if self._text.startswith(bracket, self._at):
            self._at += 1
            return True
        if not is_first:
            if not self._text.startswith(",", self._at):
                raise self._unexpected()
            self._at += 1
            self._skip()
        return False

    def _many(self, element: Any, depth: int) -> list[Any] | None:
        self._skip()
        if self._is_null():
            return None
        if not self._text.startswith("[", self._at):
            raise self._unexpected()
        self._at += 1
        many: list[Any] = []
        while not self._closes("]", is_first=not many):
            self._skip()
            start = self._at
            one = self._one(element, depth)
            if one is None:
                self._at = start
                raise self._unexpected()
            many.append(one)
        return many

    def _one(self, element: Any, depth: int) -> Any:
        self._skip()
        if self._is_null():
            return None
        if isinstance(element, type) and issubclass(element, Message):
            return self._message(element, depth + 1)
        start = self._at
        if element == STAMP and not self._text.startswith('"', start):
            raise self._unexpected()
        if self._text.startswith(("{", "["), start):
            raise NotProtojson(f"proto: {self._where(start)}: invalid value for {_NAMES[element]} type: {self._text[start]}")
        value = self._scalar()
        raw = self._text[start : self._at]
        try:
            return _fitting(element, value)
        except (ValueError, OverflowError):
            if element == STAMP:
                raise NotProtojson(f"proto: {self._where(start)}: invalid google.protobuf.Timestamp value {raw}") from None
            raise NotProtojson(f"proto: {self._where(start)}: invalid value for {_NAMES[element]} type: {raw}") from None

    def _scalar(self) -> Any:
        rest = self._text[self._at : self._at + 1]
        if rest == '"':
            return self._string()
        token = _TOKEN.match(self._text, self._at)
        if token and not _KNOWN.fullmatch(token[0]):
            raise self._unexpected()
        for word, value in (("true", True), ("false", False)):
            if self._text.startswith(word, self._at):
                self._at += len(word)
                return value
        if match := _NUMBER.match(self._text, self._at):
            self._at = match.end()
            return _number(match[0])
        raise self._unexpected()

    def _string(self) -> str:
        start = self._at
        try:
            text, self._at = _strings.raw_decode(self._text, self._at)
        except json.JSONDecodeError:
            if '"' not in self._text[start + 1 :]:
                raise NotProtojson("proto: unexpected EOF") from None
            raise NotProtojson(f"proto: syntax error {self._where(start)}: invalid string") from None
        if _SURROGATE.search(text):
            raise NotProtojson(f"proto: syntax error {self._where(start)}: invalid string")
        return str(text)

    def _is_null(self) -> bool:
        if self._text.startswith("null", self._at):
            self._at += 4
            return True
        return False

    def _skip(self) -> None:
        match = _SPACE.match(self._text, self._at)
        assert match is not None  # it matches the empty text
        self._at = match.end()

    def _unexpected(self, *, is_start: bool = False) -> NotProtojson:
        if self._at >= len(self._text) and not is_start:
            return NotProtojson("proto: unexpected EOF")
        match = _TOKEN.match(self._text, self._at)
        found = match[0] if match else self._text[self._at : self._at + 1]
        if match and not _KNOWN.fullmatch(found):
            return NotProtojson(f"proto: syntax error {self._where(self._at)}: invalid value {found}")
        if found.startswith('"'):
            found = self._text[self._at : self._text.find('"', self._at + 1) + 1]
        return NotProtojson(f"proto: syntax error {self._where(self._at)}: unexpected token {found}")

    def _where(self, at: int) -> str:
        before = self._text[:at]
        return f"(line {before.count(chr(10)) + 1}:{at - before.rfind(chr(10))})"


def _fitting(element: Any, value: Any) -> Any:
    """The value as its field holds it; `ValueError` when it does not."""
    if element == STAMP and isinstance(value, str):
        return stamps.written(stamps.micros(value)) if value else _refuse()
    if element is str and isinstance(value, str):
        return value
    if element is bool and isinstance(value, bool):
        return value
    if element is bytes and isinstance(value, str):
        return _bytes(value)
    if element in ("int32", "double") and not isinstance(value, bool):
        if isinstance(value, str):
            value = _number(value) if _NUMBER.fullmatch(value) else _refuse()
        if element == "double":
            return float(value) if isfinite(value) else _refuse()
        if value == int(value) and -_INT32 <= value < _INT32:
            return int(value)
    return _refuse()


def _number(text: str) -> int | float:
    """A number that is no longer than numbers are; what is longer is as large, or as exact, as a float can be."""
    number: int | float = json.loads(text) if len(text) < _DIGITS else float(text)
    return number


def _bytes(text: str) -> bytes:
    padded = text + "=" * (-len(text) % 4 if "=" not in text else 0)
    try:
        return b64decode(padded, b"-_", validate=True) if "-" in text or "_" in text else b64decode(padded, validate=True)
    except NotBase64:
        raise ValueError(text) from None


def _refuse() -> Any:
    raise ValueError


def _camel(snake: str) -> str:
    first, *others = snake.split("_")
    return first + "".join(part.capitalize() for part in others)
