"""JSON Patch (RFC 6902): steps that change a JSON value at places that JSON Pointers (RFC 6901) name.

Pure. Every mistake is a `BadSettings` with one sentence that names the step and its place.
"""

from __future__ import annotations

import re
from copy import deepcopy
from typing import Any, NoReturn

from msgspec import Struct

from redrive.model import plain
from redrive.model.errors import BadSettings
from redrive.model.hint import hint

OPS = ("add", "remove", "replace", "move", "copy", "test")
_WITH_VALUE = ("add", "replace", "test")
_WITH_SOURCE = ("move", "copy")
_INDEX = re.compile(r"0|[1-9][0-9]{0,17}")
_STRAY_TILDE = re.compile(r"~(?![01])")
_EXAMPLE = '[{"op": "replace", "path": "/currency", "value": "EUR"}]'

Pointer = tuple[str, ...]
"""The names and numbers that lead to a place, from the outside in; none of them is the whole."""


class Step(Struct, frozen=True, kw_only=True):
    """One change, or one condition."""

    op: str
    path: Pointer
    source: Pointer = ()
    """Where `move` and `copy` take from."""
    value: Any = None


class Patch(Struct, frozen=True):
    """Steps that are done one after another: all of them, or none."""

    steps: tuple[Step, ...]

    @classmethod
    def read(cls, given: bytes | str | list[Any]) -> Patch:
        """A patch from its JSON, or from what that holds."""
        steps = plain.read(given, "the patch") if isinstance(given, bytes | str) else given
        if not isinstance(steps, list):
            raise BadSettings(f"a patch is a list of steps, such as {_EXAMPLE}")
        return cls(tuple(_step(number, step) for number, step in enumerate(steps, 1)))

    def applied(self, value: Any) -> Any:
        """The value after all steps; the one given stays as it is."""
        try:
            root = {"": deepcopy(value)}
            for number, step in enumerate(self.steps, 1):
                self._do(_Place(root, f"step {number} of the patch ({step.op} {spelled(step.path) or 'the whole'})"), step)
        except RecursionError as error:
            raise BadSettings("what the patch is for is nested too deeply") from error
        return root[""]

    @staticmethod
    def _do(place: _Place, step: Step) -> None:
        match step.op:
            case "add":
                place.add(step.path, deepcopy(step.value))
            case "remove":
                place.remove(step.path)
            case "replace":
                place.replace(step.path, deepcopy(step.value))
            case "move":
                if step.path[: len(step.source)] == step.source and step.path != step.source:
                    place.fail(f"{spelled(step.source) or 'the whole'} cannot be moved into itself")
                taken = place.found(step.source)
                if step.path != step.source:
                    place.remove(step.source)
                    place.add(step.path, taken)
            case "copy":
                place.add(step.path, deepcopy(place.found(step.source)))
            case _:
                if not plain.is_same(place.found(step.path), step.value):
                    place.fail("the value there is another")


class _Place:
    """The value that a step changes, and how its mistakes are told. The whole hangs under an empty name."""

    def __init__(self, root: dict[str, Any], step: str) -> None:
        self._root = root
        self._step = step

    def fail(self, why: str) -> NoReturn:
        raise BadSettings(f"{self._step}: {why}")

    def found(self, path: Pointer) -> Any:
        value = self._root[""]
        for depth, name in enumerate(path, 1):
            match value:
                case dict() if name in value:
                    value = value[name]
                case list():
                    value = value[self._index(value, path[:depth], len(value) - 1)]
                case _:
                    self.fail(f"there is no {spelled(path[:depth])}")
        return value

    def add(self, path: Pointer, value: Any) -> None:
        match self._parent(path):
            case dict() as parent:
                parent[path[-1] if path else ""] = value
            case list() as parent:
                parent.insert(len(parent) if path[-1] == "-" else self._index(parent, path, len(parent)), value)
            case _:
                self.fail(f"{spelled(path[:-1]) or 'the whole'} is neither an object nor a list")

    def remove(self, path: Pointer) -> None:
        if not path:
            self.fail("the whole cannot be removed; replace it")
        self.found(path)
        parent = self._parent(path)
        del parent[int(path[-1]) if isinstance(parent, list) else path[-1]]

    def replace(self, path: Pointer, value: Any) -> None:
        self.found(path)
        parent = self._parent(path)
        name = path[-1] if path else ""
        parent[int(name) if isinstance(parent, list) else name] = value

    def _parent(self, path: Pointer) -> Any:
        return self.found(path[:-1]) if path else self._root

    def _index(self, items: list[Any], path: Pointer, last: int) -> int:
        if _INDEX.fullmatch(path[-1]) is None:
            self.fail(f"{spelled(path[:-1]) or 'the whole'} is a list, and '{path[-1]}' is no place in it")
        if int(path[-1]) > last:
            self.fail(f"there is no {spelled(path)}; the list has {len(items)}")
        return int(path[-1])


def pointer(text: object, called: str) -> Pointer:
    """The place that a JSON Pointer names."""
    if not isinstance(text, str):
        raise BadSettings(f"{called} must be a text such as /items/0/price")
    if text and not text.startswith("/"):
        raise BadSettings(f"{called} '{text}' must begin with /, as in /items/0/price; only the whole is ''")
    if _STRAY_TILDE.search(text):
        raise BadSettings(f"{called} '{text}' has a ~ of its own; write ~0 for ~ and ~1 for /")
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:])


def spelled(path: Pointer) -> str:
    """The JSON Pointer of a place."""
    return "".join("/" + name.replace("~", "~0").replace("/", "~1") for name in path)


def _step(number: int, given: object) -> Step:
    where = f"step {number} of the patch"
    if not isinstance(given, dict):
        raise BadSettings(f"{where} is not an object such as {_EXAMPLE[1:-1]}")
    op = given.get("op")
    if op is None:
        raise BadSettings(f"{where} has no 'op'; there are {', '.join(OPS)}")
    if not isinstance(op, str) or op not in OPS:
        raise BadSettings(f"{where}: there is no op {op!r}; {hint(str(op), OPS)}")
    needed = ["path", *(["value"] if op in _WITH_VALUE else []), *(["from"] if op in _WITH_SOURCE else [])]
    for name in needed:
        if name not in given:
            raise BadSettings(f"{where} ({op}) has no '{name}'")
    return Step(
        op=op,
        path=pointer(given["path"], f"{where} ({op}): path"),
        source=pointer(given["from"], f"{where} ({op}): from") if op in _WITH_SOURCE else (),
        value=given.get("value"),
    )
