"""Wrapping a handler so that its success costs next to nothing.

A wrapper with the handler's exact parameters is a third as expensive to pass through as one with `*args, **kwargs`, so for
the plain case (every parameter positional and required) one is compiled, as `dataclasses` does for `__init__`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import lru_cache, update_wrapper
from inspect import Parameter, isasyncgenfunction, iscoroutinefunction, isgeneratorfunction, signature
from time import perf_counter
from types import CoroutineType
from typing import Any

from redrive.model.errors import BadSettings

Failed = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any], Exception, float], Any]
"""What to answer with after the handler failed: handler, arguments, error, and when the call began."""

_PLAIN = """
def make(handler, failed, awaited, coroutine, clock):
    def guarded({parameters}):
        started = clock()
        try:
            result = handler({arguments})
        except Exception as error:
            failure = error
        else:
            if result.__class__ is coroutine:
                return awaited(handler, ({positional}), {keywords}, result, started)
            return result
        try:
            return failed(handler, ({positional}), {keywords}, failure, started)
        finally:
            del failure
    return guarded
"""

_ASYNC = """
def make(handler, failed, awaited, coroutine, clock):
    async def guarded({parameters}):
        started = clock()
        try:
            return await handler({arguments})
        except Exception as error:
            failure = error
        try:
            return await failed(handler, ({positional}), {keywords}, failure, started)
        finally:
            del failure
    return guarded
"""
# `failed` is called outside of the `except`: the error of a next try did not come from this one. And the failure is let go
# of, because its traceback holds this frame: the two would keep each other alive, and the message with them.

_OWN_NAMES = frozenset({"handler", "failed", "awaited", "coroutine", "clock", "started", "error", "failure", "result"})


def wrapped(handler: Callable[..., Any], failed: Failed, failed_inline: Failed) -> Callable[..., Any]:
    """The handler, with `failed` (a coroutine function) or, for a plain handler, `failed_inline` standing behind it."""
    if isgeneratorfunction(handler) or isasyncgenfunction(handler):
        raise BadSettings(
            f"'{handler.__name__}' is a generator: it fails while it is read, where no guard stands; guard what reads it"
        )
    is_async = iscoroutinefunction(handler) or iscoroutinefunction(getattr(handler, "__call__", None))  # noqa: B004 - its kind matters

    async def awaited(
        handler: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], result: Awaitable[Any], started: float
    ) -> Any:
        """A plain callable gave a coroutine: guard that too."""
        try:
            return await result
        except Exception as error:
            failure = error
        try:
            return await failed(handler, args, kwargs, failure, started)
        finally:
            del failure

    make = _maker(is_async, _plain_names(handler))
    return update_wrapper(make(handler, failed if is_async else failed_inline, awaited, CoroutineType, perf_counter), handler)


def _plain_names(handler: Callable[..., Any]) -> tuple[str, ...] | None:
    """The names of the handler's parameters, if all of them are positional and required."""
    try:
        parameters = signature(handler).parameters.values()
    except (TypeError, ValueError):
        return None
    are_plain = all(one.kind is Parameter.POSITIONAL_OR_KEYWORD and one.default is Parameter.empty for one in parameters)
    names = tuple(one.name for one in parameters)
    return names if are_plain and not _OWN_NAMES & {*names} else None


@lru_cache(maxsize=256)
def _maker(is_async: bool, names: tuple[str, ...] | None) -> Callable[..., Callable[..., Any]]:
    if names is None:
        parts = {"parameters": "*args, **kwargs", "arguments": "*args, **kwargs", "positional": "*args,", "keywords": "kwargs"}
    else:
        listed = ", ".join(names)
        parts = {"parameters": listed, "arguments": listed, "positional": f"{listed}," if names else "", "keywords": "{}"}
    scope: dict[str, Any] = {}
    exec((_ASYNC if is_async else _PLAIN).format(**parts), scope)  # noqa: S102 - made of constants and of parameter names
    made: Callable[..., Any] = scope["make"]
    return made
