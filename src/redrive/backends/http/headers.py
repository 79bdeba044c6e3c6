"""A message's headers as HTTP has them. What HTTP cannot carry goes in base64 under a name of its own; nothing is altered."""

from __future__ import annotations

import base64
import re
from urllib.parse import quote

from redrive.model.message import REDRIVE_SOURCE_ID, Message
from redrive.version import __version__

PREFIX = "redrive-base64-"
"""Before the name of a header whose name or value is none in HTTP: the name goes on percent-encoded, the value in base64."""
KEY = "redrive-key"
IDEMPOTENCY = "Idempotency-Key"

_NEVER = frozenset(
    [
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ]
)
"""They speak of one connection, and were meant for another."""
_OF_THIS_REQUEST = frozenset({"accept-encoding", "content-type", "user-agent"})
_TAKEN = frozenset({KEY, IDEMPOTENCY.lower()})
_SIGNS = "!#$&'*+.^_`|~-"
_NAME = re.compile(rf"[{re.escape(_SIGNS)}%0-9A-Za-z]+")
_VALUE = re.compile(rb"(?:[!-~](?:[ -~]*[!-~])?)?")
"""Visible ASCII. Bytes beyond it may be sent too, but who reads them cannot know in which code they are."""


def headers_of(message: Message, authorization: str | None = None) -> list[tuple[str, str]]:
    """What goes before the body, repeated names and all. With an authorization, the message's own is left out."""
    made = [("User-Agent", f"redrive/{__version__}"), ("Accept-Encoding", "identity"), ("Content-Length", str(len(message.body)))]
    made.append(_legal("Content-Type", message.content_type.encode("utf-8", "backslashreplace")))
    left_out = _NEVER | _OF_THIS_REQUEST
    if authorization is not None:
        made.append(("Authorization", authorization))
        left_out |= {"authorization"}
    if (id := message.redrive_id) is not None:
        made.append((IDEMPOTENCY, f"{id}-{message.generation}"))
    if message.key is not None:
        made.append(_legal(KEY, message.key))
    if message.id is not None and message.redrive_source_id is None:
        made.append(_legal(REDRIVE_SOURCE_ID, message.id.encode("utf-8", "backslashreplace")))
    made += [
        _legal(name, value, is_taken=name.lower() in _TAKEN) for name, value in message.headers if name.lower() not in left_out
    ]
    return made


def _legal(name: str, value: bytes, *, is_taken: bool = False) -> tuple[str, str]:
    if not is_taken and _NAME.fullmatch(name) and _VALUE.fullmatch(value):
        return name, value.decode("ascii")
    written = quote(name, safe=_SIGNS, errors="backslashreplace")
    return f"{PREFIX}{written}", base64.b64encode(value).decode()
