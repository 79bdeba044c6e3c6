"""The guard around blocking handlers, and what works in the background."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from inspect import iscoroutinefunction
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar, overload

from redrive.engine.background import Background
from redrive.engine.bridge import Bridge
from redrive.engine.course import Handled
from redrive.engine.guard import Guard as AsyncGuard
from redrive.engine.guard import Trial
from redrive.model.errors import NotHeld
from redrive.model.policy import Verdict

P = ParamSpec("P")
R = TypeVar("R")


class Guard:
    """`redrive.engine.guard.Guard` whose batch form blocks."""

    def __init__(self, guard: AsyncGuard, bridge: Bridge) -> None:
        self._guard = guard
        self._bridge = bridge

    @overload
    def __call__(self, handler: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R | Verdict | None]]: ...
    @overload
    def __call__(self, handler: Callable[P, R]) -> Callable[P, R | Verdict | None]: ...
    def __call__(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        return self._guard(handler)

    def attempt(self, *args: Any, **kwargs: Any) -> Trial:
        return self._guard.attempt(*args, **kwargs)

    def each(
        self, messages: Iterable[Any], handler: Callable[..., Any], *, concurrency: int = 10
    ) -> list[Handled | Verdict | NotHeld]:
        run = self._bridge.run_on_loop if iscoroutinefunction(handler) else self._bridge.run
        return run(self._guard.each(messages, handler, concurrency=concurrency))


class _Background:
    """What works behind, for blocking code: on an event loop in a thread of its own."""

    def __init__(self, work: Background, bridge: Bridge) -> None:
        self._work = work
        self._run = bridge.run_on_loop

    @property
    def is_running(self) -> bool:
        return self._work.is_running

    def start(self) -> None:
        self._run(self._work.start())

    def stop(self) -> None:
        self._run(self._work.stop())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()


class RetryProcessor(_Background):
    """`redrive.engine.processor.RetryProcessor` for blocking code."""


class Housekeeper(_Background):
    """`redrive.engine.housekeeper.Housekeeper` for blocking code."""


class Dispatcher(_Background):
    """`redrive.engine.dispatcher.Dispatcher` for blocking code: it works on a loop of its own."""
