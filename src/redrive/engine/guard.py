"""The guard around a consumer: its failures are judged, retried, and held as letters.

What the caller sees when a message is given up on, once its letter is held:
`swallow`  nothing: the call returns None, so the consumer acknowledges and goes on (the default);
`raise`    the last error, for consumers that must know;
`verdict`  the policy's `Bury`, for consumers that settle by verdict (the default when the source counts deliveries).
When the letter could not be held, `NotHeld` is raised whatever was chosen: the source must not be acknowledged.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from functools import wraps
from inspect import iscoroutinefunction
from time import perf_counter
from types import TracebackType
from typing import Any, Literal, ParamSpec, Protocol, Self, TypeVar, assert_never, cast, overload

from msgspec import Struct

from redrive.engine.capture import Labels, Try, captured
from redrive.engine.describe import describe
from redrive.engine.extract import Extractor, arguments
from redrive.model.arrival import Held
from redrive.model.letter import Letter
from redrive.model.message import Message
from redrive.model.policy import Bury, Discard, Policy, Retry, Verdict
from redrive.ports.inline import drive, is_inline

log = logging.getLogger("redrive.guard")

P = ParamSpec("P")
R = TypeVar("R")

After = Literal["swallow", "raise", "verdict"]

redelivering: ContextVar[bool] = ContextVar("redelivering", default=False)
"""Set while redrive itself calls a handler: then the guard lets errors through, for redrive records them."""


class Handled(Struct, frozen=True):
    """The handler worked; this is what it returned."""

    result: Any


class _End(Struct, frozen=True):
    """How the course of a failing message ended."""

    verdict: Verdict
    error: Exception
    letter: Letter | None = None


class Hold(Protocol):
    """Holds letters from async code, and from blocking code while it is driven inline."""

    async def __call__(self, letters: Sequence[Letter]) -> list[Held]: ...


class Guard:
    """Wraps handlers as a decorator, blocks of code as a context manager, and whole batches with `each`."""

    def __init__(
        self,
        labels: Labels,
        hold: Hold,
        *,
        policy: Policy,
        extract: Extractor = arguments,
        after: After | None = None,
        traceback_limit: int,
    ) -> None:
        self._labels = labels
        self._hold = hold
        self._policy = policy
        self._extract = extract
        self._after = after
        self._traceback_limit = traceback_limit

    @overload
    def __call__(self, handler: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R | Verdict | None]]: ...
    @overload
    def __call__(self, handler: Callable[P, R]) -> Callable[P, R | Verdict | None]: ...
    def __call__(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        if iscoroutinefunction(handler):

            @wraps(handler)
            async def guarded(*args: Any, **kwargs: Any) -> Any:
                started = perf_counter()
                try:
                    return await handler(*args, **kwargs)
                except Exception as error:
                    failure = error
                # Outside the `except`: the next try's error did not come from this one.
                return await self._failed(handler, args, kwargs, failure, started)

        else:

            @wraps(handler)
            def guarded(*args: Any, **kwargs: Any) -> Any:
                started = perf_counter()
                try:
                    return handler(*args, **kwargs)
                except Exception as error:
                    failure = error
                return drive(self._failed(handler, args, kwargs, failure, started))

        return guarded

    def attempt(self, *args: Any, **kwargs: Any) -> Trial:
        """A context manager, sync or async, for one try at the message given; see `Trial`."""
        return Trial(self, args, kwargs)

    async def each(
        self, messages: Iterable[Any], handler: Callable[..., Any], *, concurrency: int = 10
    ) -> list[Handled | Verdict]:
        """Work through a batch: one bad message does not fail the rest. All letters are held in one go, at the end.

        A coroutine function works on `concurrency` messages at a time, a plain function on one after another.
        """
        turns = asyncio.Semaphore(concurrency) if iscoroutinefunction(handler) and not is_inline() else None

        async def work(message: Any) -> Handled | _End:
            started = perf_counter()
            try:
                return Handled(await _called(handler, (message,), {}))
            except Exception as error:
                return await self._course(handler, (message,), {}, error, started)

        async def take_turn(turns: asyncio.Semaphore, message: Any) -> Handled | _End:
            async with turns:
                return await work(message)

        if turns is None:
            ends = [await work(message) for message in messages]
        else:
            ends = await asyncio.gather(*(take_turn(turns, message) for message in messages))
        await self._hold([end.letter for end in ends if isinstance(end, _End) and end.letter is not None])
        return [end.verdict if isinstance(end, _End) else end for end in ends]

    async def _failed(
        self, handler: Callable[..., Any] | None, args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception, started: float
    ) -> Any:
        """What the wrapped call answers after its first try failed."""
        if redelivering.get():
            raise error
        end = await self._course(handler, args, kwargs, error, started)
        if isinstance(end, Handled):
            return end.result
        return await self._ended(end, self._message(args, kwargs).delivery_count is not None)

    async def _ended(self, end: _End, is_counted: bool) -> Verdict | None:
        if end.letter is not None:
            await self._hold([end.letter])
        match self._after or ("verdict" if is_counted else "swallow"):
            case "verdict":
                return end.verdict
            case "raise":
                if end.letter is not None:
                    end.error.add_note(f"redrive: held as letter {end.letter.id}")
                raise end.error
            case "swallow":
                if isinstance(end.verdict, Retry):
                    # Nothing was held: the source must deliver it again, and only the error tells it so.
                    raise end.error
                return None
            case other:
                assert_never(other)

    async def _course(
        self, handler: Callable[..., Any] | None, args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception, started: float
    ) -> Handled | _End:
        """From the first failure to the end: retry as the policy says, then say what became of the message.

        With a handler and no delivery count the retries happen here; otherwise there is one try, and the source decides.
        """
        message = self._message(args, kwargs)
        tries = [self._tried(error, started)]
        while True:
            attempts = message.delivery_count if message.delivery_count is not None else len(tries)
            verdict = self._policy.judge(error, attempts, roll=random.random())  # noqa: S311 - jitter needs no secrecy
            if isinstance(verdict, Retry) and message.delivery_count is None:
                if handler is None:
                    verdict = Bury()
                else:
                    await _sleep(verdict.after)
                    started = perf_counter()
                    try:
                        return Handled(await _called(handler, args, kwargs))
                    except Exception as again:
                        error = again
                        tries.append(self._tried(error, started))
                        continue
            match verdict:
                case Retry():
                    return _End(verdict, error)
                case Bury():
                    return _End(verdict, error, captured(message, tries, self._labels, now=datetime.now(UTC)))
                case Discard(reason=reason):
                    log.warning("message discarded", extra={"source": self._labels.source, "reason": reason})
                    return _End(verdict, error)
                case _:
                    assert_never(verdict)

    def _message(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Message:
        try:
            return self._extract(*args, **kwargs)
        except Exception:
            # A broken extractor must not cost the message: keep the arguments as they came.
            log.exception("extractor failed", extra={"source": self._labels.source})
            return arguments(*args, **kwargs)

    def _tried(self, error: Exception, started: float) -> Try:
        took = timedelta(seconds=perf_counter() - started)
        return Try(at=datetime.now(UTC), failure=describe(error, traceback_limit=self._traceback_limit), took=took)


class Trial:
    """One try at a message as a context manager: `with guard.attempt(order):` or `async with guard.attempt(order):`.

    Without a delivery count there is only this one try, so a failure is held at once and swallowed. With one, a failure
    that the policy would retry is raised on, for the source to deliver again. `verdict` and `letter` tell afterwards.
    """

    verdict: Verdict | None = None
    letter: Letter | None = None

    def __init__(self, guard: Guard, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._guard = guard
        self._args = args
        self._kwargs = kwargs
        self._started = 0.0

    def __enter__(self) -> Self:
        self._started = perf_counter()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        return isinstance(error, Exception) and drive(self._finish(error))

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        return isinstance(error, Exception) and await self._finish(error)

    async def _finish(self, error: Exception) -> bool:
        """Is the error dealt with?"""
        if redelivering.get():
            return False
        end = cast("_End", await self._guard._course(None, self._args, self._kwargs, error, self._started))  # noqa: SLF001 - a guard and its trials are one
        self.verdict, self.letter = end.verdict, end.letter
        if end.letter is not None:
            await self._guard._hold([end.letter])  # noqa: SLF001 - a guard and its trials are one
        return self._guard._after != "raise" and not isinstance(end.verdict, Retry)  # noqa: SLF001 - a guard and its trials are one


async def _called(handler: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    result = handler(*args, **kwargs)
    return await result if iscoroutinefunction(handler) else result


async def _sleep(delay: timedelta) -> None:
    if is_inline():
        time.sleep(delay.total_seconds())  # noqa: ASYNC251 - driven from blocking code: there is no loop to wait on
    else:
        await asyncio.sleep(delay.total_seconds())
