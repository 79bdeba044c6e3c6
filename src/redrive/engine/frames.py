"""The way to a failure: its frames as text, and the places of the application among them. A way that was seen is known again."""

from __future__ import annotations

import linecache
import sys
import sysconfig
from collections.abc import Sequence
from functools import lru_cache
from importlib.machinery import ModuleSpec
from pathlib import Path
from time import monotonic
from types import CodeType, TracebackType
from typing import Any

from redrive.engine.bounded import clean
from redrive.model.fingerprint import Fingerprint

FRAMES_LIMIT = 100
"""Frames kept of a way, half at each end: the start and the end of a runaway recursion tell all."""

_WALKED = range(10_000)
_HALF = FRAMES_LIMIT // 2
_STACKS_LIMIT = 256
_PRINTS_LIMIT = 16
_LINE_LIMIT = 200
_ALIKE_LOOKED_AT = 500
_FILES_LIMIT = 1024
_STALE_SECONDS = 1.0
_GUARD, _OURS = "redrive.engine.", "redrive."
_INLINED = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>"})
"""Frames that Python has no more from 3.12 on."""


class Stack:
    """A way to a failure, read once."""

    __slots__ = ("codes", "loop", "places", "prints", "text", "where")

    def __init__(self, text: str, places: list[str], where: str, codes: list[CodeType]) -> None:
        self.text = text
        """As Python tells it, up to the error's own line; without the guard's frames."""
        self.places = tuple(dict.fromkeys(places))
        """The application's places, each once: a recursion is the same failure however deep it went."""
        self.loop = () if len(self.places) == len(places) else tuple(one for one in self.places if places.count(one) > 1)
        """Those that were passed more than once."""
        self.where = where
        self.codes = codes
        """Kept alive, so that none of their ids is given to other code while this stack is known by them."""
        self.prints: dict[str, Fingerprint] = {}
        """Of errors that came here and have no causes, by their type."""

    def keep(self, type_name: str, made: Fingerprint) -> None:
        if len(self.prints) < _PRINTS_LIMIT:
            self.prints[type_name] = made


class _Known:
    """The stacks seen last, without a lock.

    Two dictionaries: a new one is begun when the younger is full, and the older is let go. Every step on them is atomic; what
    two threads can do to each other is to read a stack twice or to let go of one too early, never to mix two up.
    """

    __slots__ = ("older", "younger")

    def __init__(self) -> None:
        self.younger: dict[tuple[int, ...], Stack] = {}
        self.older: dict[tuple[int, ...], Stack] = {}

    def add(self, key: tuple[int, ...], stack: Stack) -> None:
        if len(self.younger) >= _STACKS_LIMIT:
            self.older, self.younger = self.younger, {}
        self.younger[key] = stack


_known = _Known()
_looked_at: dict[str, float] = {}
"""When it was last asked whether a source file is still what it was: that costs more than all else about a frame."""
_NOWHERE = Stack("", [], "", [])


def stack_of(traceback: TracebackType | None) -> Stack:
    """The way that a traceback tells. What it costs does not grow with a runaway recursion."""
    if traceback is None:
        return _NOWHERE
    # Ids and positions, because hashing a code object means hashing its whole content.
    marks: list[int] = []
    mark = marks.append
    step: TracebackType | None = traceback
    for _ in _WALKED:
        mark(id(step.tb_frame.f_code))  # type: ignore[union-attr]  # the loop ends where there is no next
        mark(step.tb_lasti)  # type: ignore[union-attr]  # as above
        step = step.tb_next  # type: ignore[union-attr]  # as above
        if step is None:
            break
    total = len(marks) // 2
    if total > FRAMES_LIMIT:
        marks[2 * _HALF : -2 * _HALF] = [total]
    key = tuple(marks)
    if (stack := _known.younger.get(key)) is not None:
        return stack
    if (stack := _known.older.get(key)) is None:
        stack = _read(traceback, total)
    _known.add(key, stack)
    return stack


def _read(traceback: TracebackType, total: int) -> Stack:
    texts = ["Traceback (most recent call last):\n"]
    places: list[str] = []
    codes: list[CodeType] = []
    homes: dict[tuple[int, str], _Home] = {}
    home = _NO_HOME
    where = ("", "")
    for number, step in enumerate(_kept(traceback, total)):
        if number == _HALF and total > FRAMES_LIMIT:
            texts.append(f"  … {total - FRAMES_LIMIT} frames cut …\n")
        frame = step.tb_frame
        code, namespace = frame.f_code, frame.f_globals
        codes.append(code)
        file = code.co_filename
        if namespace is not home.namespace or file is not home.file:
            # Most often the next frame lies where the last one did.
            key = (id(namespace), file)
            home = homes.get(key) or homes.setdefault(key, _Home(file, namespace))
        if home.is_guard:
            continue
        function, line, lines = code.co_qualname, step.tb_lineno or 0, home.lines
        raw = lines[line - 1] if 0 < line <= len(lines) else ""
        source = raw.strip()[:_LINE_LIMIT]
        if source:
            texts.append(f'  File "{file}", line {line}, in {function}\n    {source}\n')
        else:
            texts.append(f'  File "{file}", line {line}, in {function}\n')
        if home.is_own and code.co_name not in _INLINED:
            where = (home.module, function)
            first = code.co_firstlineno - 1
            if not source:
                places.append(f"{home.module}:{function}:+{line - first}")
                continue
            # No number of a line, which any edit above would change: its text, and which of several such lines it is.
            if not 0 <= first < line < first + _ALIKE_LOOKED_AT:
                first = max(line - _ALIKE_LOOKED_AT, 0)
            before = 0 if lines.index(raw, first) == line - 1 else lines[first : line - 1].count(raw)
            places.append(f"{home.module}:{function}:{source}:{before}")
    text = clean("".join(texts)) if len(texts) > 1 else ""
    return Stack(text, places, clean(":".join(where)), codes)


def _kept(traceback: TracebackType, total: int) -> list[TracebackType]:
    """The frames at both ends."""
    steps: list[TracebackType] = []
    step: TracebackType | None = traceback
    while step is not None and len(steps) < total:
        steps.append(step)
        step = step.tb_next
    if total > FRAMES_LIMIT:
        del steps[_HALF:-_HALF]
    return steps


class _Home:
    """What a file's frames have in common."""

    __slots__ = ("file", "is_guard", "is_own", "lines", "module", "namespace")

    def __init__(self, file: str, namespace: dict[str, Any]) -> None:
        self.file = file
        self.namespace = namespace
        self.module = _module(namespace)
        package = f"{self.module}."
        self.is_guard = package.startswith(_GUARD)
        self.is_own = not package.startswith((_OURS, ".")) and not _is_foreign(file, dict.get(namespace, "__file__"))
        self.lines: Sequence[str] = () if self.is_guard else _lines(file, namespace)


def _module(namespace: dict[str, Any]) -> str:
    """The module by the name it is imported by, also when it was started as a program; "": made at run time."""
    name = _exact(dict.get(namespace, "__name__"))
    if name == "__main__" and type(spec := dict.get(namespace, "__spec__")) is ModuleSpec:
        return spec.name
    return name


def _lines(file: str, namespace: dict[str, Any]) -> Sequence[str]:
    now = monotonic()
    try:
        if now - _looked_at.get(file, 0.0) > _STALE_SECONDS:
            if len(_looked_at) >= _FILES_LIMIT:
                _looked_at.clear()
            _looked_at[file] = now
            linecache.checkcache(file)
        return linecache.getlines(file, namespace)
    except Exception:
        # A file name that is none, a loader of somebody's own: then the source is not there.
        return ()


def _is_foreign(file: str, module_file: object) -> bool:
    """Is this a library's code or Python's, not the application's own?"""
    return _lies_abroad(file, _exact(module_file))


@lru_cache(maxsize=_FILES_LIMIT)
def _lies_abroad(file: str, module_file: str) -> bool:
    # What dataclasses or Cython made has no file of its own: it belongs to the module that it runs in.
    path = (file if Path(file).is_absolute() else module_file or file).replace("\\", "/")
    return path.startswith(_python_folders()) or "/site-packages/" in path or "/dist-packages/" in path


@lru_cache(maxsize=1)
def _python_folders() -> tuple[str, ...]:
    paths = {sysconfig.get_paths()[name].replace("\\", "/") for name in ("stdlib", "platstdlib")}
    zipped = f"/python{sys.version_info.major}{sys.version_info.minor}.zip/"
    return ("<frozen ", *(f"{path}/" for path in paths), *(path.rpartition("/")[0] + zipped for path in paths))


def _exact(value: object) -> str:
    return value if type(value) is str else ""


_NO_HOME = _Home("<frozen >", {})
