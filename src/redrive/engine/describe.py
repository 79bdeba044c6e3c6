"""What went wrong, read off an exception: type, message, category, traceback, causes, fingerprint."""

from __future__ import annotations

import linecache
import sysconfig
from collections.abc import Iterator, Sequence
from functools import lru_cache
from types import TracebackType
from typing import Any

from redrive.model.category import classify
from redrive.model.fingerprint import VERSION, fingerprint
from redrive.model.letter import Cause, Failure

TRACEBACK_LIMIT = 65_536
MESSAGE_LIMIT = 8_192
_FRAMES_LIMIT = 100
_CAUSES_LIMIT = 20
_OWN_PACKAGE = __name__.rpartition(".")[0]


def describe(error: BaseException, *, traceback_limit: int = TRACEBACK_LIMIT) -> Failure:
    """The failure behind an exception. Never raises, whatever the exception's own methods do; cost is bounded.

    An exception that knows better says so itself, with a `Failure` as its attribute `redrive_failure`.
    """
    if isinstance(told := _peek(error, "redrive_failure"), Failure):
        return told
    chain = list(_chain(error))
    message = message_of(error)
    type_names = [qualified(base) for base in type(error).__mro__]
    frames = _frames(error.__traceback__)
    # Each place once: a recursion is the same failure however deep it went.
    places = dict.fromkeys(frame.place for frame in frames if frame.is_ours)
    return Failure(
        type=type_names[0],
        message=message,
        category=classify(type_names, message),
        traceback=shortened(_traceback(chain, frames), traceback_limit),
        causes=tuple(Cause(type=qualified(type(cause)), message=message_of(cause)) for cause in chain[1:]),
        fingerprint=fingerprint(type_names[0], message, list(places)),
        fingerprint_version=VERSION,
    )


def told(type: str, message: str, *, known_as: Sequence[str] = (), traceback: str = "") -> Failure:
    """A failure of which only words are known; `known_as` are names by which its type may be classified."""
    return Failure(
        type=type,
        message=message,
        category=classify(known_as, message),
        traceback=traceback,
        fingerprint=fingerprint(type, message, ()),
        fingerprint_version=VERSION,
    )


def in_short(error: BaseException) -> Failure:
    """Type and message alone: what an attempt's record keeps."""
    if isinstance(told := _peek(error, "redrive_failure"), Failure):
        return told
    return Failure(type=qualified(type(error)), message=message_of(error))


def qualified(kind: type) -> str:
    """`builtins.ValueError`, `httpx.ConnectTimeout`."""
    return clean(f"{kind.__module__}.{kind.__qualname__}")


def message_of(error: BaseException) -> str:
    """The error's text, notes included, as valid Unicode of a bounded length."""
    try:
        text = str(error)
    except Exception as broken:
        text = f"<no message: str() raised {type(broken).__name__}>"
    notes = _peek(error, "__notes__")
    told = [note for note in notes if isinstance(note, str)] if isinstance(notes, list) else []
    return shortened(clean("\n".join([text, *told])), MESSAGE_LIMIT)


def clean(text: str) -> str:
    """The text with lone surrogates, which no store can write, escaped."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode()
    return text


def shortened(text: str, limit: int) -> str:
    """The text within the limit, its middle cut out and the cut marked: both ends tell the most."""
    if len(text) <= limit:
        return text
    room = limit - len(_cut(len(text)))
    if room <= 0:
        return text[:limit]
    kept = room // 2
    return f"{text[:kept]}{_cut(len(text) - 2 * kept)}{text[len(text) - kept :]}"


def _cut(characters: int) -> str:
    return f"\n… {characters} characters cut …\n"


def _peek(error: BaseException, name: str) -> Any:
    """An attribute of the error; None when it is not there or does not let itself be read."""
    try:
        return getattr(error, name, None)
    except Exception:
        return None


class _Frame:
    __slots__ = ("file", "function", "line", "module")

    def __init__(self, step: TracebackType) -> None:
        code = step.tb_frame.f_code
        self.file = code.co_filename
        self.function = code.co_qualname if hasattr(code, "co_qualname") else code.co_name
        self.line = step.tb_lineno
        self.module = str(step.tb_frame.f_globals.get("__name__") or "")

    @property
    def is_ours(self) -> bool:
        """Is this the application's own code, not a library's or Python's?"""
        return not self.file.startswith(("<frozen", *_foreign_folders()))

    @property
    def place(self) -> str:
        """Where it was, the same on every machine and after unrelated edits of the file."""
        return f"{self.module}:{self.function}"

    def __str__(self) -> str:
        source = linecache.getline(self.file, self.line).strip()
        place = f'  File "{self.file}", line {self.line}, in {self.function}\n'
        return f"{place}    {source}\n" if source else place


def _frames(traceback: TracebackType | None) -> list[_Frame]:
    """The way to the failure, without the steps through the guard."""
    frames = []
    while traceback is not None:
        frame = _Frame(traceback)
        if not frame.module.startswith(_OWN_PACKAGE):
            frames.append(frame)
        if len(frames) > 2 * _FRAMES_LIMIT:
            # A runaway recursion: its start and its end tell all.
            del frames[_FRAMES_LIMIT // 2 : -_FRAMES_LIMIT // 2]
        traceback = traceback.tb_next
    return frames


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, then what it came from, nearest first; the members of a group follow it."""
    waiting, seen = [error], set[int]()
    while waiting and len(seen) < _CAUSES_LIMIT:
        current = waiting.pop(0)
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        members = _peek(current, "exceptions") if isinstance(current, BaseExceptionGroup) else ()
        behind = _peek(current, "__cause__")
        if behind is None and _peek(current, "__suppress_context__") is not True:
            behind = _peek(current, "__context__")
        waiting += [one for one in (*(members or ()), behind) if isinstance(one, BaseException)]


def _traceback(chain: list[BaseException], frames: list[_Frame]) -> str:
    """The chain as text; `frames` are those of its first error, which the caller has at hand."""
    parts = []
    for error in reversed(chain):
        steps = "".join(map(str, frames if error is chain[0] else _frames(error.__traceback__)))
        head = f"Traceback (most recent call last):\n{steps}" if steps else ""
        parts.append(f"{head}{qualified(type(error)).removeprefix('builtins.')}: {message_of(error)}\n")
    return clean("\nwhich led to:\n\n".join(parts))


@lru_cache(maxsize=1)
def _foreign_folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    return tuple({paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")})
