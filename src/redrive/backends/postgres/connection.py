"""A connection that does not ask again what types mean.

The driver knows the types of values, but not what arrays of them are called, and asks for these on each new connection. That takes longer
than to put ten letters: whoever captures while the pool grows would wait for it. What a server has said once holds for all connections to it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import asyncpg

_SERVERS_OWN_FROM = 16_384
"""Types that a server has made itself have larger numbers. They may be made anew, and are asked for each time."""


def remembering() -> type[asyncpg.Connection]:
    """A kind of connections, all of them to one server, which share what it has said of its types."""
    types: list[Any] = []
    known: set[int] = set()
    asked: Any = None
    """What the driver asked with; it only wants to know its own question again."""

    class Remembering(asyncpg.Connection):  # type: ignore[misc]  # it ships no types
        async def _introspect_types(self, typeoids: Iterable[int], timeout: float) -> Any:
            nonlocal asked
            wanted = set(typeoids)
            if wanted <= known:
                return types, asked
            said, statement = await super()._introspect_types(wanted, timeout)
            if max(wanted) < _SERVERS_OWN_FROM:
                types.extend(said)
                known.update(wanted)
                asked = statement
            return said, statement

    return Remembering
