"""A letter as a regression test: the text of a pytest file that fails with the letter's error until that is fixed."""

from __future__ import annotations

import base64
import keyword
import re
import textwrap
from ast import literal_eval
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from typing import Any

from msgspec import DecodeError, Struct, json

from redrive.engine.describe import shortened
from redrive.engine.extract import REPR
from redrive.model.errors import BadSettings, Unsupported
from redrive.model.letter import Letter, Origin
from redrive.model.message import Message
from redrive.model.query import last_name
from redrive.serve.cli.paper import one_line

_WIDTH = 88
_PIECE = 72
_NAME_LENGTH = 24
_TOLD_LENGTH = 76


def regression(letter: Letter, message: Message, handler: str) -> str:
    """The file: this message through the handler that `module:function` names, called as its consumer would call it.

    The letter is only told of, so give it as people may see it; the message is there as it is.
    """
    if message.content_type == REPR:
        raise Unsupported(
            f"of letter {letter.id} only the repr was kept, so no test can send it as it was; repair its body first"
        )
    body = _body(message.body)
    return _FILE.format(
        id=letter.id,
        libraries="".join(f"{line}\n" for line in _libraries(message, body)),
        handler=_imported(handler),
        message=_message(message, body),
        name=_name(letter),
        error=_in_quotes(_error(letter)),
        story=_in_quotes(_story(letter)),
    )


_FILE = '''"""Letter {id}, written by `redrive export --pytest`."""

import asyncio
import inspect
{libraries}from redrive.engine.call import FunctionTransport
from redrive.engine.guard import redelivering

{handler}

MESSAGE = {message}


def {name}() -> None:
    """{error}

    {story}
    """
    args, kwargs = FunctionTransport(handler).arguments(MESSAGE)
    # The handler's guard stands aside: the error is seen here, and no letter is held.
    token = redelivering.set(True)
    try:
        result = handler(*args, **kwargs)
        if inspect.isawaitable(result):
            asyncio.run(finished(result))
    finally:
        redelivering.reset(token)


async def finished(result: Awaitable[Any]) -> Any:
    return await result
'''


def _name(letter: Letter) -> str:
    """`test_orders_4711_no_longer_fails_with_key_error`."""
    source, called = _slug(letter.source)[:_NAME_LENGTH].strip("_"), _slug(letter.source_id)
    if not called or len(called) > _NAME_LENGTH:
        called = str(letter.id)[:8]
    error = _slug(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", last_name(letter.failure.type))) or "an_error"
    return "_".join(filter(None, ("test", source, called, "no_longer_fails_with", error)))


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")


def _error(letter: Letter) -> str:
    failure = letter.failure
    told = f"{last_name(failure.type)}: {failure.message}" if failure.message else last_name(failure.type)
    return " ".join(shortened(one_line(told), _TOLD_LENGTH).split())


def _story(letter: Letter) -> str:
    first = f"{letter.first_received_at:%Y-%m-%d %H:%M:%S} UTC"
    told = f"Letter {letter.id} of {shortened(one_line(letter.source), _TOLD_LENGTH)}, first received on {first}."
    return "\n    ".join(textwrap.wrap(told, _WIDTH - 4))


def _in_quotes(text: str) -> str:
    """The text as it may stand in a docstring."""
    return text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')


def _libraries(message: Message, body: str) -> Iterator[str]:
    """The imports that depend on the message, in their order."""
    if "b64decode(" in body:
        yield "from base64 import b64decode"
    yield "from collections.abc import Awaitable"
    if message.received_at is not None:
        yield "from datetime import datetime"
    yield "from typing import Any\n"
    if "json.encode(" in body:
        yield "from msgspec import json"
    yield "from redrive import Message, Origin" if message.origin != Origin() else "from redrive import Message"


def _imported(handler: str) -> str:
    """The lines that make `handler` the function that is meant."""
    module, _, path = handler.partition(":")
    parts = [*module.split("."), *path.split(".")]
    if not all(part.isidentifier() and not keyword.iskeyword(part) for part in parts):
        raise BadSettings(f"'{handler}' cannot be written as an import; give the handler a name of letters, digits and _")
    if "." in path:
        return f"import {module}\n\nhandler = {module}.{path}"
    return f"from {module} import {path}" + ("" if path == "handler" else " as handler")


def _message(message: Message, body: str) -> str:
    """Each part that is other than its default, a line each."""
    parts = [f"body={body}", f"content_type={_text(message.content_type)}"]
    for name in ("id", "headers", "key", "kind", "reference", "origin", "received_at"):
        value = getattr(message, name)
        if value not in (None, (), Origin()):
            parts.append(f"{name}={_value(value, 4, len(name) + 1)}")
    return "Message(\n" + "".join(f"    {part},\n" for part in parts) + ")"


def _body(body: bytes) -> str:
    """The body as people can read it best, and to the byte what it was."""
    with suppress(DecodeError, RecursionError, MemoryError, SyntaxError):
        value = json.decode(body)
        literal = _flat(value)
        # Not all JSON comes back to the byte, and Python reads no literal that is nested too deeply.
        if isinstance(value, dict | list) and json.encode(literal_eval(literal)) == body:
            is_short = len(f"    body=json.encode({literal}),") <= _WIDTH
            return f"json.encode({literal})" if is_short else f"json.encode(\n        {_value(value, 8)}\n    )"
    try:
        text = body.decode()
    except UnicodeDecodeError:
        packed = base64.b64encode(body).decode()
        return 'b64decode(\n        """\n' + "".join(f"        {piece}\n" for piece in _cut(packed)) + '        """\n    )'
    # Only what needs it is written as text: linters want bytes.
    written, ending = (_raw, "") if text.isascii() else (_text, ".encode()")
    if len(whole := f"{written(text)}{ending}") + len("    body=,") <= _WIDTH:
        return whole
    pieces = [piece for line in text.splitlines(keepends=True) for piece in _cut(line)]
    return "(\n" + "".join(f"        {written(piece)}\n" for piece in pieces) + f"    ){ending}"


def _cut(text: str) -> list[str]:
    return [text[start : start + _PIECE] for start in range(0, len(text), _PIECE)]


def _value(value: Any, indent: int, lead: int = 0) -> str:
    """A value as a formatter would write it: in one line where it fits behind `lead` characters, else an item a line."""
    flat = _flat(value)
    if indent + lead + len(flat) < _WIDTH or not isinstance(value, dict | list | tuple) or not value:
        return flat
    inner, outer = " " * (indent + 4), " " * indent
    if isinstance(value, dict):
        items = [f"{_flat(key)}: {_value(item, indent + 4, len(_flat(key)) + 2)}" for key, item in value.items()]
    else:
        items = [_value(item, indent + 4) for item in value]
    brackets = {dict: "{}", list: "[]", tuple: "()"}[type(value)]
    return f"{brackets[0]}\n" + "".join(f"{inner}{item},\n" for item in items) + outer + brackets[1]


def _flat(value: Any) -> str:
    match value:
        case str():
            return _text(value)
        case bytes():
            return _raw(value.decode("latin-1"))
        case datetime():
            return f"datetime.fromisoformat({_text(value.isoformat())})"
        case Struct():
            given = {name: getattr(value, name) for name in value.__struct_fields__ if getattr(value, name) is not None}
            return f"{type(value).__name__}({', '.join(f'{name}={_flat(one)}' for name, one in given.items())})"
        case dict():
            return "{" + ", ".join(f"{_flat(key)}: {_flat(item)}" for key, item in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(_flat, value)) + "]"
        case tuple():
            return "(" + ", ".join(map(_flat, value)) + ("," if len(value) == 1 else "") + ")"
        case _:
            return repr(value)


def _text(text: str) -> str:
    return _quoted(text, lambda sign: sign.isprintable())


def _raw(text: str) -> str:
    """Bytes, given as the text that has a sign for each."""
    return f"b{_quoted(text, lambda sign: sign.isascii() and sign.isprintable())}"


def _quoted(text: str, is_plain: Callable[[str], bool]) -> str:
    """In the quotes that need the fewest escapes; what cannot be seen is escaped."""
    quote = "'" if text.count('"') > text.count("'") else '"'
    plain = {sign: sign if is_plain(sign) else _escaped(sign) for sign in set(text)} | {"\\": "\\\\", quote: f"\\{quote}"}
    return quote + "".join(map(plain.__getitem__, text)) + quote


def _escaped(sign: str) -> str:
    return sign.encode("unicode_escape").decode()
