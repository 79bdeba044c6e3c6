"""The Lua beside this file, each script with the name that the server knows it by."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources

from msgspec import Struct


class Script(Struct, frozen=True):
    text: str
    digest: str
    writes: bool
    """When its answer is lost, something may have been done."""


_WRITING = frozenset({"write", "claim", "take", "extend"})


@cache
def script(name: str) -> Script:
    """The script of this name, with what scripts share in front."""
    return put_together("batches", "shared", name, writes=name in _WRITING)


def put_together(*parts: str, writes: bool) -> Script:
    """The script that these files make, one behind the other."""
    folder = resources.files(__package__) / "lua"
    text = "\n".join((folder / f"{part}.lua").read_text("utf-8") for part in parts)
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest(), writes)
