"""What the fields of a message are, read off its class."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from redrive.queues.wire.messages import Message

STAMP = "timestamp"


def _element(hint: Any) -> tuple[Any, bool]:
    """What a field holds, and whether it holds many."""
    if get_origin(hint) is Annotated:
        return get_args(hint)[1], False
    if get_origin(hint) is list:
        return get_args(hint)[0], True
    if get_origin(hint) is dict:
        return dict, True
    options = [option for option in get_args(hint) if option is not type(None)]
    return (options[0] if options else hint), False


@cache
def fields(kind: type[Message]) -> dict[str, tuple[Any, bool]]:
    """A message's fields in the order of the class: what each holds, and whether it holds many."""
    hints = get_type_hints(kind, include_extras=True)
    return {name: _element(hints[name]) for name in kind.__struct_fields__}


def wire_name(name: str) -> str:
    """`bytes_` is called so because Python has other plans with the word."""
    return name.removesuffix("_")
