"""The guard around a consumer: its failures are judged, retried, and held as letters.

What the caller sees when a message is given up on, once its letter is held:
`swallow`  nothing: the call returns None, so the consumer acknowledges and goes on (the default);
`raise`    the last error, for consumers that must know;
`verdict`  the policy's `Bury`, for consumers that settle by verdict (the default when the source counts deliveries).
When the letter could not be held, `NotHeld` is raised whatever was chosen: the source must not be acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextvars import ContextVar
from inspect import iscoroutinefunction
from time import perf_counter
from types import TracebackType
from typing import Any, Literal, ParamSpec, Protocol, Self, TypeVar, assert_never, overload
from uuid import UUID

from msgspec import Struct

from redrive.engine.confirm import Confirm, confirming, takes_message
from redrive.engine.course import Call, Course, Ended, Handled, attempted, in_turns
from redrive.engine.once import under
from redrive.engine.wrap import wrapped
from redrive.model.arrival import Held
from redrive.model.errors import BadSettings, NotHeld
from redrive.model.letter import Letter
from redrive.model.message import Message
from redrive.model.policy import Retry, Verdict
from redrive.ports.inline import drive, is_inline

P = ParamSpec("P")
R = TypeVar("R")

After = Literal["swallow", "raise", "verdict"]

redelivering: ContextVar[bool] = ContextVar("redelivering", default=False)
"""Set while redrive itself calls a handler: then the guard lets errors through, for redrive records them."""


class Hold(Protocol):
    """Holds letters from async code, and from blocking code while it is driven inline."""

    async def __call__(self, letters: Sequence[Letter], to: str | None = None) -> list[Held]: ...


class _Raised(Struct, frozen=True):
    """The caller sees this error. It is raised outside of coroutines, which could not let a `StopIteration` through."""

    error: Exception


class Guard:
    """Wraps handlers as a decorator, blocks of code as a context manager, and whole batches with `each`."""

    def __init__(self, course: Course, hold: Hold, *, after: After | None = None, confirm: Confirm | None = None) -> None:
        """`confirm` is told of messages that redrive sent back and that have worked."""
        self._course = course
        self._hold = hold
        self._after = after
        self._confirm = confirm

    @overload
    def __call__(self, handler: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R | Verdict | None]]: ...
    @overload
    def __call__(self, handler: Callable[P, R]) -> Callable[P, R | Verdict | None]: ...
    def __call__(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        handler = under(handler, self._course.identity)
        if self._confirm is not None and takes_message(handler):
            handler = confirming(handler, self.told_of)
        return wrapped(handler, self._failed, self._failed_inline)

    def attempt(self, *args: Any, **kwargs: Any) -> Trial:
        """A context manager, sync or async, for one try at the message given; see `Trial`."""
        return Trial(self, Call(handler=None, args=args, kwargs=kwargs))

    async def each(
        self, messages: Iterable[Any], handler: Callable[..., Any], *, concurrency: int = 10
    ) -> list[Handled | Verdict | NotHeld]:
        """Work through a batch: one bad message does not fail the rest. All letters are held in one go, at the end.

        A message whose letter could not be held is answered with its `NotHeld`: do not acknowledge that one.

        A coroutine function works on `concurrency` messages at a time, a plain function on one after another.
        """
        if concurrency < 1:
            raise BadSettings(f"concurrency must be at least 1, got {concurrency}")

        async def work(message: Any) -> Handled | Ended:
            call, started = Call(handler=handler, args=(message,)), perf_counter()
            outcome = await attempted(call)
            return outcome if isinstance(outcome, Handled) else await self._course.run(call, outcome, started)

        given, handler = list(messages), under(handler, self._course.identity)
        if is_inline() or not iscoroutinefunction(handler):
            ends = [await work(message) for message in given]
        else:
            ends = await in_turns(work, given, concurrency)
        await self.told_of(one for one, end in zip(given, ends, strict=True) if isinstance(end, Handled))
        by_place: dict[str | None, list[Letter]] = {}
        for end in ends:
            if isinstance(end, Ended) and end.letter is not None:
                by_place.setdefault(end.to, []).append(end.letter)
        refused: dict[UUID, NotHeld] = {}
        for place, letters in by_place.items():
            refused |= await self._held(letters, place)
        return [_told(end, refused) for end in ends]

    async def told_of(self, worked: Iterable[Any]) -> int:
        """Confirm those that redrive sent back here; how many letters are done by that."""
        back = [one for one in worked if isinstance(one, Message) and one.headers and self._course.is_own(one)]
        if not back or self._confirm is None or redelivering.get():
            return 0
        return await self._confirm(back)

    async def finish(self, call: Call, error: Exception, started: float) -> Handled | Ended:
        """Take a failing message to its end, its letter held."""
        try:
            end = await self._course.run(call, error, started)
            if isinstance(end, Ended) and end.letter is not None:
                await self._hold([end.letter], end.to)
        except NotHeld:
            raise
        except Exception as unexpected:
            raise NotHeld(f"the message could not be held: {unexpected}; do not acknowledge the source") from unexpected
        if isinstance(end, Ended) and end.letter is not None and self._after == "raise":
            end.error.add_note(f"redrive: held as letter {end.letter.id}")
        return end

    async def _held(self, letters: list[Letter], to: str | None) -> dict[UUID, NotHeld]:
        """Hold letters together, or, when that fails, one by one; answer for those that could not be held."""
        refused: dict[UUID, NotHeld] = {}
        try:
            await self._hold(letters, to)
        except NotHeld:
            for letter in letters:
                try:
                    await self._hold([letter], to)
                except NotHeld as error:
                    refused[letter.id] = error
        return refused

    def is_raised(self, end: Ended) -> bool:
        """Does the caller see the error? Also when nothing was held: only the error makes the source deliver again."""
        match self._chosen(end):
            case "raise":
                return True
            case "swallow":
                return isinstance(end.verdict, Retry)
            case "verdict":
                return False
            case other:
                assert_never(other)

    def _chosen(self, end: Ended) -> After:
        return self._after or ("verdict" if end.is_counted else "swallow")

    async def _answer(self, call: Call, error: Exception, started: float) -> Any:
        """What the wrapped call returns after its first try failed, or what it raises."""
        if redelivering.get():
            return _Raised(error)
        end = await self.finish(call, error, started)
        if isinstance(end, Handled):
            return end.result
        if self.is_raised(end):
            return _Raised(end.error)
        return end.verdict if self._chosen(end) == "verdict" else None

    async def _failed(
        self, handler: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception, started: float
    ) -> Any:
        return _given(await self._answer(Call(handler=handler, args=args, kwargs=kwargs), error, started))

    def _failed_inline(
        self, handler: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception, started: float
    ) -> Any:
        return _given(drive(self._answer(Call(handler=handler, args=args, kwargs=kwargs), error, started)))


class Trial:
    """One try at a message as a context manager: `with guard.attempt(order):` or `async with guard.attempt(order):`.

    Without a delivery count there is only this one try, so a failure is held at once and swallowed. With one, a failure
    that the policy would retry is raised on, for the source to deliver again. `verdict` and `letter` tell afterwards.
    """

    verdict: Verdict | None = None
    letter: Letter | None = None

    def __init__(self, guard: Guard, call: Call) -> None:
        self._guard = guard
        self._call = call
        self._started = 0.0

    def __enter__(self) -> Self:
        self._started = perf_counter()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        if error is None and (back := self._sent_back()):
            drive(self._guard.told_of(back))
        return isinstance(error, Exception) and drive(self._is_dealt_with(error))

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        if error is None and (back := self._sent_back()):
            await self._guard.told_of(back)
        return isinstance(error, Exception) and await self._is_dealt_with(error)

    def _sent_back(self) -> list[Message]:
        """The message of this try, if redrive sent it."""
        given = (*self._call.args, *self._call.kwargs.values())
        return [one for one in given if isinstance(one, Message) and one.headers and one.generation]

    async def _is_dealt_with(self, error: Exception) -> bool:
        if redelivering.get():
            return False
        end = await self._guard.finish(self._call, error, self._started)
        assert isinstance(end, Ended)
        self.verdict, self.letter = end.verdict, end.letter
        return not isinstance(end.verdict, Retry) and not self._guard.is_raised(end)


def _told(end: Handled | Ended, refused: dict[UUID, NotHeld]) -> Handled | Verdict | NotHeld:
    if isinstance(end, Handled):
        return end
    return refused.get(end.letter.id, end.verdict) if end.letter is not None else end.verdict


def _given(answer: Any) -> Any:
    if not isinstance(answer, _Raised):
        return answer
    try:
        raise answer.error
    finally:
        # The error's traceback holds this frame: without this, the two would keep each other alive.
        del answer
