"""The scripts of queues: how they are put together, run, and what their refusals mean."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from redrive.backends.redis.scripts import Script, put_together
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
    shared = ("batches", "queue_shared", "queue_item")
    parts = () if name in _ALONE else (*shared, *(f"queue_{part}" for part in _PARTS.get(name, ())))
    return put_together(*parts, name, writes=name not in _READING)


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
