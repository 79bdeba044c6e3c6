"""Once: a handler with receipts, so that a second delivery of the same message is not worked again.

There are two ways to keep a receipt: `redrive.engine.exact` writes it in the handler's own transaction, `redrive.engine.apart`
on the desk, before and after. Here is what both have in common: which delivery it is, and the wrapping of the handler.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import wraps
from inspect import (
    Parameter,
    Signature,
    isasyncgenfunction,
    isawaitable,
    iscoroutine,
    iscoroutinefunction,
    isgeneratorfunction,
    signature,
)
from typing import Any, Protocol, TypeVar

from redrive.engine.course import Call
from redrive.engine.extract import look
from redrive.model.errors import BadSettings
from redrive.model.message import Message

T = TypeVar("T")

KEEP = timedelta(days=30)
"""How long a receipt is kept: as long as the same delivery may still come again."""
_LONGEST = 500

Key = str | Callable[..., Any]
"""What identifies a delivery: a path in the handler's first argument, or a function that is called as the handler is."""

Identify = Callable[[Call], str | None]
"""What all deliveries of the same message have in common; None: nothing."""


class Work(Protocol):
    """One handler's work on one delivery. `done` or `failed` follows each `begin` that answered True."""

    @property
    def given(self) -> Mapping[str, Any]:
        """What the handler is given besides its message, once the work has begun."""
        ...

    async def begin(self) -> bool:
        """May the work begin? False: it is done already."""
        ...

    async def done(self) -> None:
        """The handler has worked."""
        ...

    async def failed(self, error: BaseException) -> None:
        """The handler raised. Never raises itself."""
        ...


class Way(Protocol):
    """Where receipts are kept."""

    def prepared(self, handler: Callable[..., Any], is_async: bool) -> Callable[[str, str], Work]:
        """What makes the work of this handler, by its name and a delivery's key; `BadSettings` when it does not fit here."""
        ...

    def shown(self, own: Signature) -> Signature:
        """What whoever calls the handler has to give of what it takes."""
        ...

    def run(self, verb: Coroutine[Any, Any, T]) -> T:
        """Run a step from blocking code."""
        ...


def with_receipts(
    handler: Callable[..., Any], way: Way, *, name: str | None, key: Key | None, identify: Identify | None = None
) -> Callable[..., Any]:
    """The handler, called once for each delivery; what was worked on already answers None."""
    if isgeneratorfunction(handler) or isasyncgenfunction(handler):
        raise BadSettings(
            f"'{handler.__name__}' is a generator: it works while it is read, where no receipt follows; let what reads it work once"
        )
    is_async = iscoroutinefunction(handler) or iscoroutinefunction(getattr(handler, "__call__", None))  # noqa: B004 - its kind matters
    known = _name(handler, name)
    work_on = way.prepared(handler, is_async)
    identified = _identified(key, identify or _own, known)

    async def worked_async(*args: Any, **kwargs: Any) -> Any:
        work = work_on(known, identified(Call(handler=handler, args=args, kwargs=kwargs)))
        if not await work.begin():
            return None
        try:
            result = await handler(*args, **kwargs, **work.given)
        except BaseException as error:
            await work.failed(error)
            raise
        await work.done()
        return result

    def worked(*args: Any, **kwargs: Any) -> Any:
        work = work_on(known, identified(Call(handler=handler, args=args, kwargs=kwargs)))
        if not way.run(work.begin()):
            return None
        try:
            result = handler(*args, **kwargs, **work.given)
            _ensure_worked(result, known)
        except BaseException as error:
            way.run(work.failed(error))
            raise
        way.run(work.done())
        return result

    made: Any = wraps(handler)(worked_async if is_async else worked)
    with suppress(TypeError, ValueError):  # somebody's callable that does not tell what it takes
        made.__signature__ = way.shown(signature(handler))

    def again(identify: Identify) -> Callable[..., Any]:
        return with_receipts(handler, way, name=name, key=key, identify=identify)

    made.__once__ = (made, again)
    return made  # type: ignore[no-any-return]  # a function that has attributes of its own


def under(handler: Callable[..., Any], identify: Identify) -> Callable[..., Any]:
    """The handler as it is under a guard: if it works once, the guard's word counts on which delivery it is."""
    made, again = getattr(handler, "__once__", (None, None))
    # Another decorator in between hands the attribute on; what it does must not be passed over.
    return again(identify) if again is not None and made is handler else handler


def last_parameter(handler: Callable[..., Any]) -> str:
    """The name of the handler's last parameter, which is to be the connection; `BadSettings` when it cannot be."""
    try:
        parameters = list(signature(handler).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    named = [one for one in parameters if one.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)]
    told = named[-1].annotation if named else None
    is_message = told is Message or (isinstance(told, str) and told.rpartition(".")[2] == "Message")
    if len(parameters) < 2 or not named or is_message:
        label = getattr(handler, "__name__", type(handler).__name__)
        raise BadSettings(f"'{label}' must take the connection as its last parameter: def {label}(message, connection)")
    return named[-1].name


def _ensure_worked(result: Any, name: str) -> None:
    if isawaitable(result):
        if iscoroutine(result):
            result.close()
        raise BadSettings(
            f"'{name}' is a plain function that gives a coroutine, whose work no receipt can follow; make it an async def"
        )


def _name(handler: Callable[..., Any], given: str | None) -> str:
    name = given
    if name is None:
        module = getattr(handler, "__module__", "")
        name = f"{module}.{getattr(handler, '__qualname__', type(handler).__qualname__)}"
    if not name or not name.isprintable() or len(name) > _LONGEST:
        raise BadSettings(f"a handler's name for its receipts must be a line of text, at most {_LONGEST} long, got {name!r}")
    return name


def _identified(key: Key | None, identify: Identify, name: str) -> Callable[[Call], str]:
    def identified(call: Call) -> str:
        if key is None:
            found = identify(call)
            if found is None:
                raise BadSettings(
                    f"'{name}' works once, but nothing identifies this delivery; let it take a redrive.Message that has an id,"
                    " or say with key= what does, e.g. key=lambda order: order['id']"
                )
            return _text(found)
        given = key(*call.args, **call.kwargs) if callable(key) else look(_first(call), key)
        if given is None or given == "":
            raise BadSettings(f"'{name}' works once, but key= gave {given!r} for this delivery; let it give what identifies it")
        return _text(given)

    return identified


def _own(call: Call) -> str | None:
    """Without a guard: the message's own id; else what it carries since redrive sent it back."""
    message = next((one for one in (*call.args, *call.kwargs.values()) if isinstance(one, Message)), None)
    if message is None:
        return None
    sent = message.redrive_id
    return message.id or message.redrive_source_id or (str(sent) if sent else None)


def _first(call: Call) -> Any:
    args = call.args[1:] if call.is_method else call.args
    return args[0] if args else next(iter(call.kwargs.values()), None)


def _text(found: Any) -> str:
    """A key as every database can keep it and find it by."""
    text = found.decode("utf-8", "backslashreplace") if isinstance(found, bytes) else str(found)
    if len(text) <= _LONGEST and text.isprintable():
        return text
    return f"sha256:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"
