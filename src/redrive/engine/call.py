"""A Python function as a transport: each message is a call, and what it returns or raises is the answer."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import threading
import typing
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, NoReturn

import msgspec

from redrive.engine.course import Call, Handled, attempted, in_turns
from redrive.engine.describe import describe
from redrive.engine.extract import REPR, decoded
from redrive.engine.guard import redelivering
from redrive.engine.named import imported
from redrive.model.errors import Unsupported
from redrive.model.message import Message
from redrive.model.operation import Delivered, Delivery, Refused
from redrive.ports.aside import aside, giving_way
from redrive.ports.transport import Parcel


class FunctionTransport:
    """Calls a handler as its consumer would: with the arguments it failed on, and with its guard standing aside.

    A coroutine function is called for `concurrency` messages at a time, a plain one in a thread, message by message.
    """

    def __init__(
        self,
        handler: Callable[..., Any],
        *,
        name: str | None = None,
        concurrency: int = 10,
        refusal: Callable[[Any], str | None] = lambda result: None,
    ) -> None:
        """`refusal` reads off what the handler returned why it has failed all the same; None: it has not."""
        self.name = name or f"py:{handler.__module__}:{getattr(handler, '__qualname__', type(handler).__qualname__)}"
        self.handler = handler
        self._types = _model_types(handler)
        self._takes_message = next(iter(self._types.values()), None) is Message
        self._converts = any(self._types.values())
        self._concurrency = concurrency
        self._refusal = refusal
        is_async_object = inspect.iscoroutinefunction(getattr(handler, "__call__", None))  # noqa: B004 - its kind matters
        self._is_async = inspect.iscoroutinefunction(handler) or is_async_object

    @classmethod
    def named(cls, name: str) -> FunctionTransport:
        """The function that `module:function` names; a clear sentence when there is none."""
        found = imported(name, what="does not name a function; write module:function, e.g. shop.orders:handle")
        return cls(found, name=f"py:{name}")

    async def send(self, messages: Sequence[Message]) -> list[Delivery]:
        token = redelivering.set(True)
        try:
            if not self._is_async:
                return await self._deliver_all(messages)
            if len(messages) == 1:
                return [await self._deliver(messages[0])]
            return await in_turns(self._deliver, messages, self._concurrency)
        finally:
            redelivering.reset(token)

    async def receive(self, *, limit: int = 10, lease: timedelta = timedelta(seconds=30)) -> list[Parcel]:
        self._cannot("received from")

    async def settle(self, handles: Sequence[str], *, done: bool) -> list[bool]:
        self._cannot("settled")

    async def peek(self, *, limit: int = 10) -> list[Message]:
        self._cannot("peeked into")

    async def _deliver(self, message: Message) -> Delivery:
        call = self._call(message)
        return call if isinstance(call, Refused) else self._delivered(await _awaited(call))

    async def _deliver_all(self, messages: Sequence[Message]) -> list[Delivery]:
        """Call a plain function for each message, in one thread for all of them."""
        calls = [self._call(message) for message in giving_way(messages)]
        outcomes = iter(await _in_a_thread([call for call in calls if isinstance(call, Call)]))
        deliveries: list[Delivery] = []
        for call in calls:
            if isinstance(call, Refused):
                deliveries.append(call)
                continue
            outcome = next(outcomes)
            if isinstance(outcome, Handled) and outcome.result is not None and inspect.isawaitable(outcome.result):
                outcome = await _awaited(Call(handler=partial(_same, outcome.result)))
            deliveries.append(self._delivered(outcome))
        return deliveries

    def _call(self, message: Message) -> Call | Refused:
        try:
            args, kwargs = self.arguments(message)
        except Exception as error:
            return Refused(failure=describe(error), was_reached=False)
        return Call(handler=self.handler, args=args, kwargs=kwargs)

    def _delivered(self, outcome: Handled | BaseException) -> Delivery:
        if not isinstance(outcome, Handled):
            return Refused(failure=describe(outcome))
        if (why := self._refusal(outcome.result)) is not None:
            return Refused(failure=describe(HandlerRefused(why)))
        return Delivered(confirmed=True, result=outcome.result)

    def arguments(self, message: Message) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What the handler is called with for this message; raises why it cannot be."""
        if self._takes_message:
            return (message,), {}
        if message.content_type == REPR:
            raise Unsupported(
                "only the repr of this message was kept, so it cannot be sent back as it was; repair its body first"
            )
        args, kwargs = decoded(message)
        if not self._converts:
            return args, kwargs
        named = dict(zip(self._types, args, strict=False))
        args = tuple(_converted(value, self._types[name]) for name, value in named.items()) + args[len(named) :]
        return args, {name: _converted(value, self._types.get(name)) for name, value in kwargs.items()}

    def _cannot(self, verb: str) -> NoReturn:
        raise Unsupported(f"a function can be sent to, but not {verb}: {self.name}")


class HandlerRefused(Exception):
    """A handler returned, but what it returned says that it failed."""


def refusal(result: Any) -> str | None:
    """Why a result says that the work has failed: `{"status": "failed"}` or `{"success": False}`; None: it does not."""
    if not isinstance(result, Mapping):
        return None
    if result.get("success", True) is not False and result.get("status") != "failed":
        return None
    told = result.get("error") or result.get("message") or result.get("errors")
    return str(told) if told else f"the handler returned {dict(result)!r}"


def _called(call: Call) -> Handled | BaseException:
    """Call a plain function; what it gives may still have to be awaited.

    An error comes back as a value: asyncio cannot carry a `StopIteration` from one thread to another.
    """
    assert call.handler is not None
    try:
        result = call.handler(*call.args, **call.kwargs)
    except (Exception, SystemExit) as error:
        return error
    if result is not None and (inspect.isgenerator(result) or inspect.isasyncgen(result)):
        return TypeError("a generator function does nothing when it is called; wrap it in a function that runs it")
    return Handled(result)


async def _awaited(call: Call) -> Handled | BaseException:
    try:
        return await attempted(call)
    except SystemExit as exited:
        return exited
    except asyncio.CancelledError as cancelled:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        # The handler cancelled itself: that is its answer, not our end.
        return cancelled


async def _in_a_thread(calls: Sequence[Call]) -> list[Handled | BaseException]:
    """In a thread of its own, since asyncio's few are for all to share. When cancelled it waits for the call that is under way:
    nobody may think that the handler is done before it is. Those that were not begun are not made then.
    """
    if not calls:
        return []
    is_over = threading.Event()

    def all_of_them() -> list[Handled | BaseException]:
        return [_called(call) for call in calls if not is_over.is_set()]

    running = asyncio.ensure_future(aside(all_of_them))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        is_over.set()
        await asyncio.wait([running])
        raise


def _same(result: Any) -> Any:
    return result


def _model_types(handler: Callable[..., Any]) -> dict[str, Any]:
    """Each parameter of the handler, with its type if that is one a message can be turned into, else None."""
    try:
        parameters = inspect.signature(handler).parameters
    except (TypeError, ValueError):
        return {}
    try:
        hints = typing.get_type_hints(handler)
    except Exception:
        hints = {}
    positional = [
        name for name, one in parameters.items() if one.kind is not one.VAR_POSITIONAL and one.kind is not one.VAR_KEYWORD
    ]
    return {name: hints.get(name) if _is_model(hints.get(name)) else None for name in positional}


def _is_model(kind: Any) -> bool:
    if not isinstance(kind, type):
        return False
    return issubclass(kind, msgspec.Struct) or dataclasses.is_dataclass(kind) or hasattr(kind, "model_validate")


def _converted(value: Any, wanted: Any) -> Any:
    if wanted is None or not isinstance(value, dict | list):
        return value
    if hasattr(wanted, "model_validate"):
        return wanted.model_validate(value)
    return msgspec.convert(value, wanted)
