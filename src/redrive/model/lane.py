"""A lane: the letters of one source in one namespace, which one kind of worker knows how to retry."""

from __future__ import annotations

import hashlib
from functools import lru_cache

from msgspec import Struct

from redrive.model.letter import Letter


class Lane(Struct, frozen=True, gc=False):
    namespace: str
    source: str

    @property
    def number(self) -> int:
        """The lane as one signed number of 64 bits, for narrow indexes."""
        return _number(self.namespace, self.source)


def lane_of(letter: Letter) -> Lane:
    return Lane(letter.namespace, letter.source)


@lru_cache(maxsize=4096)
def _number(namespace: str, source: str) -> int:
    names = [name.encode("utf-8", "surrogatepass") for name in (namespace, source)]
    framed = b"".join(len(name).to_bytes(8, "big") + name for name in names)
    return int.from_bytes(hashlib.blake2b(framed, digest_size=8).digest(), "big", signed=True)
