"""Where a listing goes on: an opaque text that holds the last key seen, the same on every backend."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated

from msgspec import DecodeError, Meta, ValidationError, msgpack

from redrive.model.errors import BadCursor

Key = tuple[str, Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)], bytes]
"""The listing it belongs to, the last instant (microseconds since 1970), and the last id as a tie-break."""


def cursor(key: Key) -> str:
    return base64.urlsafe_b64encode(msgpack.encode(key)).decode().rstrip("=")


def key_of(text: str | None, listing: str) -> tuple[int, bytes] | None:
    """The key in a cursor of this listing; `BadCursor` when it is another's or damaged."""
    if text is None:
        return None
    try:
        name, instant, last = msgpack.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=Key)
    except (binascii.Error, DecodeError, ValidationError, ValueError) as error:
        raise BadCursor("this cursor is damaged; start again from the first page") from error
    if name != listing:
        raise BadCursor(f"this cursor belongs to the listing '{name}', not to '{listing}'; start again from the first page")
    return instant, last
