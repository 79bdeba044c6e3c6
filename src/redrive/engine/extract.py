"""Reading a message off what a handler was called with, and making such arguments from a message again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from math import isfinite
from typing import Any

import msgspec
from msgspec.structs import replace

from redrive.model.letter import headers as as_headers
from redrive.model.message import REDRIVE_GENERATION, REDRIVE_ID, Message

BYTES = "application/octet-stream"
TEXT = "text/plain; charset=utf-8"
JSON = "application/json"
MSGPACK = "application/msgpack"
"""For what JSON would change in silence: bytes, infinities, keys that are not text."""
CALL = "application/vnd.redrive.call+json"
"""Several arguments: {"args": […], "kwargs": {…}}."""
CALL_MSGPACK = "application/vnd.redrive.call+msgpack"
REPR = "text/x-python-repr"
"""Evidence only: the value could not be encoded, so it cannot be driven back as it was. Pass an extractor."""

Extractor = Callable[..., Message]
"""Gets what the handler was called with; called only when the handler failed."""

Path = str | Callable[[Any], Any]
"""Where something is in a message: dotted attributes or keys (`"meta.id"`), or a function."""


def arguments(*args: Any, **kwargs: Any) -> Message:
    """The default: one plain argument is the message; several are kept as a call."""
    if len(args) == 1 and not kwargs:
        if isinstance(args[0], Message):
            return args[0]
        body, content_type = encoded(args[0])
        return Message(body=body, content_type=content_type)
    body, content_type = encoded({"args": args, "kwargs": kwargs})
    return Message(body=body, content_type={JSON: CALL, MSGPACK: CALL_MSGPACK}.get(content_type, content_type))


def where(
    *,
    id: Path | None = None,
    body: Path | None = None,
    headers: Path | None = None,
    key: Path | None = None,
    delivery_count: Path | None = None,
    redrive_id: Path | None = None,
    generation: Path | None = None,
) -> Extractor:
    """An extractor that finds a message's parts in the handler's first argument.

    With `body`, only that part is kept, and goes back as it was; drive it to a handler that takes a `redrive.Message`.

    `redrive_id` and `generation` are read from the headers `redrive-id` and `redrive-generation` unless said otherwise.
    """

    def extract(*args: Any, **kwargs: Any) -> Message:
        first = args[0] if args else next(iter(kwargs.values()))
        content = arguments(look(first, body)) if body else arguments(*args, **kwargs)
        message = Message(
            body=content.body,
            content_type=content.content_type,
            id=_text(look(first, id)) if id else None,
            headers=as_headers(look(first, headers) or ()) if headers else (),
            key=_raw(look(first, key)) if key else None,
            delivery_count=_number(look(first, delivery_count)) if delivery_count else None,
        )
        marks = {
            name: _text(value)
            for name, path in ((REDRIVE_ID, redrive_id), (REDRIVE_GENERATION, generation))
            if path and (value := look(first, path)) is not None
        }
        return replace(message, headers=as_headers(marks) + message.headers) if marks else message

    return extract


def look(value: Any, path: Path) -> Any:
    """What lies at the path; None when a step of it is missing."""
    if callable(path):
        return path(value)
    for step in path.split("."):
        value = value.get(step) if isinstance(value, Mapping) else getattr(value, step, None)
        if value is None:
            return None
    return value


def encoded(value: Any) -> tuple[bytes, str]:
    """A value as bytes with their content type. Bytes stay as they are; what cannot be encoded is kept as its repr."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value), BYTES
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass"), TEXT
    try:
        plain = msgspec.to_builtins(value, builtin_types=(bytes,), enc_hook=_hook)
        return (msgspec.json.encode(plain), JSON) if _is_json(plain) else (msgspec.msgpack.encode(plain), MSGPACK)
    except Exception:
        return _repr(value).encode("utf-8", "backslashreplace"), REPR


def decoded(message: Message) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments to call a handler with, as `arguments` read them."""
    kind = _kind(message.content_type)
    if kind in (CALL, CALL_MSGPACK):
        call = (msgspec.json if kind == CALL else msgspec.msgpack).decode(message.body)
        return tuple(call["args"]), dict(call["kwargs"])
    if kind in (JSON, MSGPACK):
        return ((msgspec.json if kind == JSON else msgspec.msgpack).decode(message.body),), {}
    if kind.startswith("text/") and kind != REPR:
        return (message.body.decode("utf-8", "surrogatepass"),), {}
    return (message.body,), {}


@lru_cache(maxsize=256)
def _kind(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def _is_json(plain: Any) -> bool:
    """Would JSON give this back as it is?"""
    match plain:
        case dict():
            return all(isinstance(key, str) and _is_json(item) for key, item in plain.items())
        case list() | tuple():
            return all(map(_is_json, plain))
        case float():
            return isfinite(plain)
        case _:
            return not isinstance(plain, bytes)


def _hook(value: Any) -> Any:
    if callable(dump := getattr(value, "model_dump", None)):
        return dump(mode="json")
    raise TypeError(f"cannot encode {type(value).__name__}")


def _repr(value: Any) -> str:
    try:
        return repr(value)
    except Exception as error:
        return f"<{type(value).__name__}: repr() raised {type(error).__name__}>"


def _text(value: Any) -> str | None:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return None if value is None else str(value)


def _number(value: Any) -> int | None:
    try:
        return int(value)
    except (TypeError, ValueError):
        return None


def _raw(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return str(value).encode()
