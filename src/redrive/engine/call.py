"""A Python function as a transport: each message is a call, and what it returns or raises is the answer."""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
import inspect
import typing
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, NoReturn

import msgspec

from redrive.engine.describe import describe
from redrive.engine.extract import REPR, decoded
from redrive.engine.guard import redelivering
from redrive.model.errors import BadSettings, Unsupported
from redrive.model.message import Message
from redrive.model.operation import Delivered, Delivery, Refused
from redrive.ports.transport import Parcel


class FunctionTransport:
    """Calls a handler as its consumer would: with the arguments it failed on, and with its guard standing aside."""

    def __init__(self, handler: Callable[..., Any], *, name: str | None = None, concurrency: int = 10) -> None:
        self.name = name or f"py:{handler.__module__}:{handler.__qualname__}"
        self._handler = handler
        self._wants = _wanted_type(handler)
        self._concurrency = concurrency

    @classmethod
    def named(cls, name: str) -> FunctionTransport:
        """The function that `module:function` names; a clear sentence when there is none."""
        module_name, _, path = name.partition(":")
        if not module_name or not path:
            raise BadSettings(f"'{name}' does not name a function; write module:function, e.g. shop.orders:handle")
        try:
            found: Any = importlib.import_module(module_name)
            for step in path.split("."):
                found = getattr(found, step)
        except ImportError as error:
            raise BadSettings(f"cannot import '{module_name}': {error}; is it on the path (PYTHONPATH)?") from error
        except AttributeError as error:
            raise BadSettings(f"'{module_name}' has no '{path}'") from error
        if not callable(found):
            raise BadSettings(f"'{name}' is a {type(found).__name__}, not a function")
        return cls(found, name=f"py:{name}")

    async def send(self, messages: Sequence[Message]) -> list[Delivery]:
        if not inspect.iscoroutinefunction(self._handler):
            return [await asyncio.to_thread(self._call, message) for message in messages]
        turns = asyncio.Semaphore(self._concurrency)

        async def in_turn(message: Message) -> Delivery:
            async with turns:
                return await self._call_async(message)

        return list(await asyncio.gather(*map(in_turn, messages)))

    async def receive(self, *, limit: int = 10, lease: timedelta = timedelta(seconds=30)) -> list[Parcel]:
        self._cannot("receive")

    async def settle(self, handles: Sequence[str], *, done: bool) -> list[bool]:
        self._cannot("settle")

    async def peek(self, *, limit: int = 10) -> list[Message]:
        self._cannot("peek")

    def _call(self, message: Message) -> Delivery:
        try:
            args, kwargs = self._arguments(message)
            token = redelivering.set(True)
            try:
                self._handler(*args, **kwargs)
            finally:
                redelivering.reset(token)
        except Exception as error:
            return Refused(failure=describe(error))
        return Delivered(confirmed=True)

    async def _call_async(self, message: Message) -> Delivery:
        try:
            args, kwargs = self._arguments(message)
            token = redelivering.set(True)
            try:
                await self._handler(*args, **kwargs)
            finally:
                redelivering.reset(token)
        except Exception as error:
            return Refused(failure=describe(error))
        return Delivered(confirmed=True)

    def _arguments(self, message: Message) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if self._wants is Message:
            return (message,), {}
        if message.content_type == REPR:
            raise Unsupported(
                "only the repr of this message was kept, so it cannot be sent back as it was; repair its body first"
            )
        args, kwargs = decoded(message)
        if self._wants is not None and args and isinstance(args[0], dict | list):
            args = (_converted(args[0], self._wants), *args[1:])
        return args, kwargs

    def _cannot(self, verb: str) -> NoReturn:
        raise Unsupported(f"a function can be sent to, but not {verb}: {self.name}")


def _wanted_type(handler: Callable[..., Any]) -> Any:
    """The type of the handler's first parameter, if it is one that a message can be turned into."""
    try:
        hints = typing.get_type_hints(handler)
        first = next(iter(inspect.signature(handler).parameters))
    except (NameError, TypeError, ValueError, StopIteration):
        return None
    wanted = hints.get(first)
    if not isinstance(wanted, type):
        return None
    is_model = issubclass(wanted, msgspec.Struct) or dataclasses.is_dataclass(wanted) or hasattr(wanted, "model_validate")
    return wanted if is_model else None


def _converted(value: Any, wanted: Any) -> Any:
    if hasattr(wanted, "model_validate"):
        return wanted.model_validate(value)
    return msgspec.convert(value, wanted)
