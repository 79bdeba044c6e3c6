"""Alter: what a letter's content is to become. By a JSON Patch, by a function, by hand, or as it came; and whether it is valid."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import typing
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import UNSET, Struct

from redrive.engine.named import imported
from redrive.model import plain
from redrive.model.amendment import Amendment
from redrive.model.errors import BadSettings, MissingExtra
from redrive.model.letter import Headers, Letter
from redrive.model.patch import Patch, spelled
from redrive.model.target import own

Change = Callable[[Letter, bytes], bytes | Amendment | None]
"""A letter's new body, or an amendment of its content; None: it stays as it is. `BadSettings` says why there can be none."""

Valid = Callable[[bytes], None]
"""Looks at a new body; `BadSettings` says what is wrong with it."""

_SHOWN = 100
_EXAMPLE = "names nothing; write module:name, e.g. shop.repairs:euros"


class Mending(Struct, frozen=True, kw_only=True):
    """One way to change letters, with the name that people and the audit know it by."""

    name: str
    change: Change
    mark: str = ""
    """The same for the same change: what has gone through it is known again, and does not go through it twice."""
    valid: Valid | None = None
    puts_back: bool = False
    """It brings back what was there before, so that no rule has a say in it."""
    target: str = ""
    """The target that it gives to every letter: whether that leads anywhere is seen before any letter is."""


def by_patch(patch: Patch, *, valid: Valid | None = None) -> Mending:
    """Change JSON bodies by a patch."""

    def change(letter: Letter, body: bytes) -> bytes | None:
        before = _value(letter, body)
        after = patch.applied(before)
        return None if _is_identical(before, after) else plain.written(after)

    mark = _digest(plain.written([[step.op, step.path, step.source, step.value] for step in patch.steps]))
    return Mending(name=f"patch {mark}", change=change, mark=mark, valid=valid)


def by_function(function: str | Callable[..., Any], *, valid: Valid | None = None) -> Mending:
    """Change bodies by a function, or by the one that `module:function` names.

    It gets the value that the JSON body holds, or the bytes themselves when its parameter is annotated so; with a second
    parameter also the letter. It returns the new value, new bytes, or an `Amendment`; None: what it was given, as it left it.
    """
    name = function if isinstance(function, str) else f"{function.__module__}:{getattr(function, '__qualname__', function)}"
    called = imported(function, what=_EXAMPLE) if isinstance(function, str) else function
    if inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called) or inspect.isgeneratorfunction(called):
        raise BadSettings(f"'{name}' must be a plain function that returns the new value, not a coroutine or a generator")
    wants_bytes, wants_letter = _wishes(called)

    def change(letter: Letter, body: bytes) -> bytes | Amendment | None:
        value = body if wants_bytes else _value(letter, body)
        before = body if wants_bytes else plain.written(value)
        try:
            result = called(value, letter) if wants_letter else called(value)
        except (Exception, SystemExit) as error:
            raise BadSettings(f"{name} raised {type(error).__name__}: {error}"[: 2 * _SHOWN]) from error
        if isinstance(result, bytes | Amendment) or (result is None and wants_bytes):
            return result
        if isinstance(result, str) and wants_bytes:
            return result.encode("utf-8", "surrogatepass")
        after = plain.written(value if result is None else result)
        return None if after == before else after

    return Mending(name=f"function {name}", change=change, mark=_digest(name.encode() + _source(called)), valid=valid)


def by_hand(
    *,
    body: bytes | None = None,
    content_type: str | None = None,
    headers: Sequence[tuple[str, bytes]] = (),
    without: Sequence[str] = (),
    target: str | None = None,
    valid: Valid | None = None,
) -> Mending:
    """Give letters a body, a content type, headers or a target. A header replaces all of its name; `without` takes headers away.

    The target is where they go instead of their source: a URL, or a source that [targets] names; `source` or an empty one takes
    it away.
    """

    def change(letter: Letter, before: bytes) -> Amendment:
        return Amendment(
            id=letter.id,
            body=UNSET if body is None else body,
            content_type=UNSET if content_type is None else content_type,
            headers=with_headers(letter.headers, headers, without) if headers or without else UNSET,
            target=UNSET if target is None else target,
        )

    return Mending(name="by hand", change=change, valid=valid, target=own(target or ""))


def with_headers(known: Headers, given: Sequence[tuple[str, bytes]], without: Sequence[str]) -> Headers:
    """The headers with those that are given in place of all of their names, and without some."""
    gone = {name.lower() for name in without}
    fresh = {name.lower() for name, _ in given}
    kept: list[tuple[str, bytes]] = []
    for name, value in known:
        if name.lower() in fresh:
            # The first of its name keeps the place, for some readers care about the order.
            kept += [one for one in given if one[0].lower() == name.lower()]
            fresh.discard(name.lower())
        elif name.lower() not in gone and name.lower() not in {one[0].lower() for one in given}:
            kept.append((name, value))
    return (*kept, *(one for one in given if one[0].lower() in fresh))


def _put_back(letter: Letter, body: bytes) -> Amendment | None:
    if (original := letter.original) is None:
        return None
    return Amendment(
        id=letter.id,
        body=original.body,
        body_ref=original.body_ref,
        content_type=original.content_type,
        headers=original.headers,
        target=original.target,
    )


UNDO = Mending(name="undo", change=_put_back, puts_back=True)
"""Puts back what came: body, content type, headers and target."""


def by_schema(schema: bytes | str | dict[str, Any] | bool) -> Valid:
    """Bodies must fit a JSON Schema; needs the extra `schema`."""
    known = plain.read(schema, "the JSON Schema") if isinstance(schema, bytes | str) else schema
    if not isinstance(known, dict | bool):
        raise BadSettings('a JSON Schema is an object, such as {"type": "object", "required": ["id"]}')
    try:
        library: Any = importlib.import_module("jsonschema")
    except ModuleNotFoundError as error:
        raise MissingExtra("a JSON Schema is checked by jsonschema; install it with: pip install 'redrive[schema]'") from error
    checker = library.validators.validator_for(known)
    try:
        checker.check_schema(known)
    except library.SchemaError as error:
        raise BadSettings(f"the JSON Schema is wrong at {_at(error.absolute_path)}: {error.message[:_SHOWN]}") from error
    validator = checker(known)

    def valid(body: bytes) -> None:
        worst = library.exceptions.best_match(validator.iter_errors(plain.read(body, "the new body")))
        if worst is not None:
            # Its own sentence would quote the value, which may be what nobody should see.
            rule = plain.written({worst.validator: worst.validator_value}).decode()
            raise BadSettings(f"the new body does not fit the schema at {_at(worst.absolute_path)}: {rule[:_SHOWN]}")

    return valid


def by_type(kind: str | type) -> Valid:
    """Bodies must be what a pydantic model, a msgspec type, a dataclass or a TypedDict allows, also one named `module:Type`."""
    wanted: Any = imported(kind, what=_EXAMPLE) if isinstance(kind, str) else kind
    name = kind if isinstance(kind, str) else kind.__qualname__
    if hasattr(wanted, "model_validate_json"):
        return _by_model(wanted, name)
    is_struct = isinstance(wanted, type) and issubclass(wanted, msgspec.Struct)
    if not (is_struct or dataclasses.is_dataclass(wanted) or typing.is_typeddict(wanted) or hasattr(wanted, "__origin__")):
        raise BadSettings(
            f"'{name}' is no type to check with; give a pydantic model, a msgspec Struct, a dataclass or a TypedDict"
        )
    decoder = msgspec.json.Decoder(wanted)

    def valid(body: bytes) -> None:
        try:
            decoder.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadSettings(f"the new body is no {name}: {error}") from error

    return valid


def _by_model(model: Any, name: str) -> Valid:
    def valid(body: bytes) -> None:
        try:
            model.model_validate_json(body)
        except ValueError as error:
            told: list[Any] = getattr(error, "errors", list)()
            first = f"{_at(told[0].get('loc', ()))}: {told[0].get('msg')}" if told else str(error)
            raise BadSettings(f"the new body is no {name}: {first}") from error

    return valid


def _at(path: Sequence[object]) -> str:
    return spelled(tuple(map(str, path))) or "the whole"


def _value(letter: Letter, body: bytes) -> Any:
    if "msgpack" in letter.content_type:
        raise BadSettings("its body is MessagePack, not JSON")
    return plain.read(body, "its body")


def _is_identical(before: Any, after: Any) -> bool:
    """Also 1 and 1.0 differ here: whoever changes one into the other wants that."""
    return plain.written(before) == plain.written(after)


def _wishes(function: Callable[..., Any]) -> tuple[bool, bool]:
    """Does a function want the bytes themselves, and does it want the letter too?"""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return False, False
    positional = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    needed = [one for one in positional if one.default is one.empty]
    wants_bytes = bool(positional) and positional[0].annotation in (bytes, "bytes")
    return wants_bytes, len(needed) > 1 or any(one.name == "letter" for one in positional[1:2])


def _source(function: Callable[..., Any]) -> bytes:
    """The text of a function and of its module, and what it holds: so that one which was mended since is another."""
    texts = [repr(getattr(function, "__defaults__", None))]
    for what in (function, inspect.getmodule(function)):
        with suppress(OSError, TypeError):
            texts.append(inspect.getsource(what) if what is not None else "")
    for cell in getattr(function, "__closure__", None) or ():
        with suppress(ValueError):
            texts.append(repr(cell.cell_contents))
    return "\0".join(texts).encode("utf-8", "surrogatepass")


def _digest(content: bytes) -> str:
    return sha256(content).hexdigest()[:12]
