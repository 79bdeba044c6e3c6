"""What went wrong, read off an exception: type, message, category, traceback, causes, fingerprint."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from msgspec.structs import replace

from redrive.engine.bounded import clean as clean
from redrive.engine.bounded import shortened as shortened
from redrive.engine.frames import Stack, stack_of
from redrive.model.classify import Evidence, Rule, classify
from redrive.model.evidence import read
from redrive.model.fingerprint import MESSAGE_READ, VERSION, Fingerprint, Trace, fingerprint_of
from redrive.model.letter import Cause, Failure
from redrive.model.told import failure

log = logging.getLogger("redrive.describe")

TRACEBACK_LIMIT = 65_536
MESSAGE_LIMIT = 8_192
_CAUSES_LIMIT = 20
_TRACED_LIMIT = 50
"""Errors behind a failure, members of groups included, that count for its fingerprint."""
_DEPTH_LIMIT = 10
_PARTS_LIMIT = 16

# An exception's class may hide these behind properties of its own; these are the slots themselves.
_traceback_of = BaseException.__dict__["__traceback__"].__get__
_cause_of = BaseException.__dict__["__cause__"].__get__
_context_of = BaseException.__dict__["__context__"].__get__
_is_context_hidden = BaseException.__dict__["__suppress_context__"].__get__
_members_of = BaseExceptionGroup.__dict__["exceptions"].__get__


def describe(error: BaseException, *, traceback_limit: int = TRACEBACK_LIMIT, rules: Sequence[Rule] = ()) -> Failure:
    """The failure behind an exception, its category by these rules before all others.

    Never raises, whatever the exception's own methods do; cost is bounded.

    An exception that knows better says so itself, with a `Failure` as its attribute `redrive_failure`; one that only knows
    its group, with `redrive_fingerprint`, a text or several.
    """
    try:
        return _described(error, traceback_limit, rules)
    except Exception as broken:
        # Whatever we did not think of must not cost the message. What it was is not told: it may quote one.
        log.error("failure not described", extra={"error": qualified(type(error)), "reason": type(broken).__name__})
        return told(qualified(type(error)), "")


def _described(error: BaseException, traceback_limit: int, rules: Sequence[Rule]) -> Failure:
    own = _peek(error, "redrive_failure")
    if own is not None and issubclass(type(own), Failure):
        failure: Failure = own
        return failure
    type_name, text = qualified(type(error)), _text_of(error)
    message = _with_notes(error, text)
    stack = stack_of(_traceback_of(error))
    behind = _behind(error)
    if behind:
        chain = list(_chain(error))
        traceback = "\nwhich led to:\n\n".join(_told_whole(one) for one in reversed(chain))
        causes = tuple(Cause(type=qualified(type(one)), message=message_of(one)) for one in chain[1:])
    else:
        traceback, causes = _ending(stack, type_name, message), ()
    found = _fingerprint(error, type_name, text, stack, has_more=bool(behind))
    return Failure(
        type=type_name,
        message=message,
        category=classify(read(error), rules).category,
        traceback=shortened(traceback, traceback_limit),
        causes=causes,
        fingerprint=found.digest,
        fingerprint_version=VERSION,
        fingerprint_reason=found.reason,
    )


def told(type: str, message: str, *, known_as: Sequence[str] = (), traceback: str = "") -> Failure:
    """A failure of which only words are known; `known_as` are names by which its type may be classified."""
    category = classify(Evidence(names=tuple(known_as), message=message)).category
    return failure(type, message, category, traceback=traceback)


def in_short(error: BaseException) -> Failure:
    """Type and message alone: what an attempt's record keeps."""
    own = _peek(error, "redrive_failure")
    if own is not None and issubclass(type(own), Failure):
        failure: Failure = own
        return failure
    return Failure(type=qualified(type(error)), message=message_of(error))


def qualified(kind: type) -> str:
    """`builtins.ValueError`, `httpx.ConnectTimeout`."""
    try:
        return _name_of(kind)
    except Exception:
        # A metaclass of its own can refuse even to be hashed.
        return "builtins.BaseException"


@lru_cache(maxsize=512)
def _name_of(kind: type) -> str:
    return clean(f"{kind.__module__}.{kind.__qualname__}")


def message_of(error: BaseException) -> str:
    """The error's text, notes included, as valid Unicode of a bounded length."""
    return _with_notes(error, _text_of(error))


def _text_of(error: BaseException) -> str:
    try:
        text = str(error)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as broken:
        text = f"<no message: str() raised {qualified(type(broken)).rpartition('.')[2]}>"
    # A subclass of str would answer every later question in its own way.
    return text if type(text) is str else str.__str__(text)


def _with_notes(error: BaseException, text: str) -> str:
    notes = _peek(error, "__notes__")
    if type(notes) is list:
        said = [shortened(str.__str__(note), MESSAGE_LIMIT) for note in notes[:_PARTS_LIMIT] if issubclass(type(note), str)]
        text = "\n".join([text, *said])
    # Cut before it is cleaned, so that what is cut costs nothing; and after, for an escape is longer than what it stands for.
    text = shortened(text, MESSAGE_LIMIT)
    return text if text.isascii() else shortened(clean(text), MESSAGE_LIMIT)


def _peek(error: BaseException, name: str) -> Any:
    """An attribute of the error; None when it is not there or does not let itself be read."""
    try:
        return getattr(error, name, None)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:
        return None


def _behind(error: BaseException) -> list[BaseException]:
    """What an error stands for or came from: the members of a group, then its cause."""
    cause = _came_from(error)
    members = _members_of(error)[:_TRACED_LIMIT] if issubclass(type(error), BaseExceptionGroup) else ()
    return [*members] if cause is None else [*members, cause]


def _came_from(error: BaseException) -> BaseException | None:
    cause: BaseException | None = _cause_of(error)
    if cause is None and (context := _context_of(error)) is not None and not _is_context_hidden(error):
        cause = context
    return cause


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, then what it came from, nearest first; the members of a group follow it."""
    waiting, seen = [error], set[int]()
    while waiting and len(seen) < _CAUSES_LIMIT:
        current = waiting.pop(0)
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        waiting += _behind(current)


def _told_whole(error: BaseException) -> str:
    return _ending(stack_of(_traceback_of(error)), qualified(type(error)), message_of(error))


def _ending(stack: Stack, type_name: str, message: str) -> str:
    return f"{stack.text}{type_name.removeprefix('builtins.')}: {message}\n"


def _fingerprint(error: BaseException, type_name: str, text: str, stack: Stack, *, has_more: bool) -> Fingerprint:
    if has_more or not stack.places or _peek(error, "redrive_fingerprint") is not None:
        return fingerprint_of(_Tracing().whole(error, text))
    made = stack.prints.get(type_name)
    if made is None:
        made = fingerprint_of(Trace(type=type_name, places=_places(error, stack), where=stack.where))
        stack.keep(type_name, made)
    return made


def _places(error: BaseException, stack: Stack) -> tuple[str, ...]:
    # Where exactly a recursion reached its limit is chance; what runs in circles is not.
    return stack.loop if stack.loop and issubclass(type(error), RecursionError) else stack.places


class _Tracing:
    """Reads errors for their fingerprint: none twice, and not without end."""

    def __init__(self) -> None:
        self._seen: set[int] = set()

    def whole(self, error: BaseException, text: str, depth: int = 0) -> Trace:
        """The error with all it came from."""
        trace = self._one(error, text, depth)
        causes: list[Trace] = []
        cause = _came_from(error)
        while cause is not None and len(causes) < _DEPTH_LIMIT and self._may_read(cause):
            causes.append(self._one(cause, "", depth))
            cause = _came_from(cause)
        return replace(trace, causes=tuple(causes)) if causes else trace

    def _one(self, error: BaseException, text: str, depth: int) -> Trace:
        self._seen.add(id(error))
        stack = stack_of(_traceback_of(error))
        is_group = issubclass(type(error), BaseExceptionGroup)
        return Trace(
            type=qualified(type(error)),
            custom=_custom(error),
            places=_places(error, stack),
            where=stack.where,
            message=clean(text[:MESSAGE_READ]),
            is_group=is_group,
            members=self._members(error, depth + 1) if is_group and depth < _DEPTH_LIMIT else (),
        )

    def _members(self, error: BaseException, depth: int) -> tuple[Trace, ...]:
        members = _members_of(error)[:_TRACED_LIMIT]
        return tuple(self.whole(one, _text_of(one), depth) for one in members if self._may_read(one))

    def _may_read(self, error: BaseException) -> bool:
        return id(error) not in self._seen and len(self._seen) < _TRACED_LIMIT


def _custom(error: BaseException) -> tuple[str, ...]:
    """The application's own word for the group; what is neither text nor texts counts for nothing."""
    given = _peek(error, "redrive_fingerprint")
    parts = given[:_PARTS_LIMIT] if type(given) in (tuple, list) else (given,)
    texts = [str.__str__(part)[:MESSAGE_LIMIT] for part in parts if issubclass(type(part), str)]
    return tuple(clean(text) for text in texts if text)
