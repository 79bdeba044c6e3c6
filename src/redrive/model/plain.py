"""JSON read in such a way that writing it again loses nothing: what Python would change in silence is refused."""

from __future__ import annotations

import json
from decimal import Decimal, InvalidOperation
from typing import Any, NoReturn

from redrive.model.errors import BadSettings


def read(text: bytes | str, what: str = "it") -> Any:
    """The value that the text holds; `BadSettings` says of `what` why it cannot be read, or not without a loss."""
    try:
        # A mark at the beginning says nothing in UTF-8, and some editors leave one.
        text = (text.decode("utf-8") if isinstance(text, bytes) else text).removeprefix("\ufeff")
        return json.loads(text, object_pairs_hook=_object, parse_float=_float, parse_constant=_constant)
    except json.JSONDecodeError as error:
        raise BadSettings(f"{what} is not JSON: {error.msg} (line {error.lineno}, column {error.colno})") from error
    except UnicodeDecodeError as error:
        raise BadSettings(f"{what} is not JSON: it is no text in UTF-8") from error
    except RecursionError as error:
        raise BadSettings(f"{what} is nested too deeply") from error
    except _Lossy as error:
        raise BadSettings(f"{what} {error}") from error
    except ValueError as error:
        raise BadSettings(f"{what} has a number that is too long") from error


def written(value: Any, *, indent: int | None = None) -> bytes:
    """The value as JSON, without spaces unless it is indented; `BadSettings` when it is no plain value."""
    separators = (",", ":") if indent is None else None
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=separators, indent=indent)
        try:
            return text.encode()
        except UnicodeEncodeError:
            # Half of a pair can only be written as an escape.
            return json.dumps(value, allow_nan=False, separators=separators, indent=indent).encode()
    except (TypeError, ValueError) as error:
        raise BadSettings(f"what it would be is not JSON: {error}") from error
    except RecursionError as error:
        raise BadSettings("what it would be is nested too deeply") from error


def is_same(one: Any, other: Any) -> bool:
    """Are these the same JSON values? Numbers are compared as numbers; true is not 1."""
    match one, other:
        case dict(), dict():
            return one.keys() == other.keys() and all(is_same(value, other[name]) for name, value in one.items())
        case list() | tuple(), list() | tuple():
            return len(one) == len(other) and all(map(is_same, one, other))
        case bool(), _:
            return one is other
        case _, bool():
            return False
        case _:
            return bool(one == other)


class _Lossy(Exception):
    """Python would not give this back as it was."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        raise _Lossy(f"has {next(name for name in names if names.count(name) > 1)!r} twice in one object")
    return made


def _float(text: str) -> float:
    number = float(text)
    try:
        is_exact = Decimal(text) == Decimal(repr(number))
    except InvalidOperation:
        is_exact = False
    if not is_exact:
        # Without the number: it may be what nobody should see, and the same sentence is for many letters.
        raise _Lossy("has a number that would lose digits")
    return number


def _constant(name: str) -> NoReturn:
    raise _Lossy(f"is not JSON: it has {name}")
