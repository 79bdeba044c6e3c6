"""The scripts of queues: how they are put together, run, and what their refusals mean."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any

from redis import exceptions

from redrive.backends.redis.scripts import Script
from redrive.backends.redis.server import Server
from redrive.model.errors import NoSuchItem, NotLeased, QueueGone

_OK, _GONE, _NO_SUCH = 0, 1, 2

_ALONE = frozenset({"queue_define", "queue_catalogue", "queue_rights"})
"""Those that look at no partition."""
_READING = frozenset({"queue_items", "queue_stats", "queue_dying", "queue_due", "queue_catalogue", "queue_rights"})
_PARTS = {
    "queue_put": ("rules", "putting"),
    "queue_move": ("rules", "putting"),
    "queue_sweep": ("rules", "putting"),
    "queue_lease": ("rules",),
    "queue_extend": ("rules",),
    "queue_complete": ("rules",),
    "queue_retry": ("rules",),
    "queue_delete": ("rules",),
    "queue_clear": ("rules", "sorting"),
    "queue_items": ("sorting",),
}
"""What each needs in front of it besides what all share."""


@cache
def queue_script(name: str) -> Script:
    """The script of this name, with what it needs in front."""
    folder = resources.files(__package__) / "lua"
    parts = [] if name in _ALONE else ["queue_shared", "queue_item", *(f"queue_{part}" for part in _PARTS.get(name, ()))]
    text = "\n".join((folder / f"{part}.lua").read_text("utf-8") for part in (*parts, name))
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest(), name not in _READING)


async def run(server: Server, name: str, keys: Sequence[bytes], *arguments: bytes | str | int) -> Any:
    """What the script answers."""
    known = queue_script(name)
    rest = (len(keys), *keys, *arguments)
    try:
        return await server.command(keys[0], "EVALSHA", known.digest, *rest, writes=known.writes)
    except exceptions.NoScriptError:
        # Nothing was done: the server restarted, or forgot its scripts. The whole text makes it known again.
        return await server.command(keys[0], "EVAL", known.text, *rest, writes=known.writes)


def ensure_done(answer: Sequence[Any], *queues: str) -> None:
    """Raise what the script refused; it has changed nothing then."""
    refusal = answer[0]
    if refusal == _OK:
        return
    if refusal == _GONE:
        number = int(answer[1]) - 1 if len(answer) > 1 else 0
        raise QueueGone(f"queue '{queues[number]}' was deleted")
    id = answer[1].decode("utf-8", "surrogatepass")
    raise NoSuchItem(id) if refusal == _NO_SUCH else NotLeased(id)
