"""One child after another on the same way: each is killed where the test says, and the law is checked after each.

```python
fill(place, 8)
harness = Harness(place, whole_way, holds_the_law)
harness.live(Kill("before put", 3))  # killed there; what it left is checked
harness.live()                       # another process goes on, to the end; that is checked too
```
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from msgspec import Struct, json

from redrive.testing.kill.children import children
from redrive.testing.kill.points import Kill, Visits

_PATIENCE_SECONDS = 60.0
_VISITS = "visits.json"
_STUCK = 75
"""How a child ends that waited too long."""


class Life(Struct, frozen=True, kw_only=True):
    """One process on its way: where, and how many lived before it."""

    place: Path
    number: int


Way = Callable[[Life, Visits], Coroutine[Any, Any, None]]
"""What a child does until all is done, or `TimeoutError` when it is stuck. Other processes must be able to import it (a `partial` of such a function may be)."""

Law = Callable[[Path, bool], None]
"""Raises `LawBroken` when something is amiss in a place where no process lives; True: the child came to its end."""


class LawBroken(AssertionError):
    """Something was lost, doubled, or claimed without being so."""


class Harness:
    """Sends one child after another on the same way, and checks the law after each."""

    def __init__(self, place: Path, way: Way, law: Law) -> None:
        self.kills = 0
        """How many children were really killed."""
        self._place = place
        self._way = way
        self._law = law
        self._lives = 0

    def live(self, kill: Kill | None = None, *, after_seconds: float | None = None) -> bool:
        """Let a child live until its end, until the point, or for so long; was it killed? Raises `LawBroken`."""
        child = children().Process(target=_live, args=(self._way, Life(place=self._place, number=self._lives), kill), daemon=True)
        self._lives += 1
        child.start()
        try:
            child.join(_PATIENCE_SECONDS if after_seconds is None else after_seconds)
            is_late = child.exitcode is None and after_seconds is None
            child.kill()
            child.join(_PATIENCE_SECONDS)
            exit_code = child.exitcode
        finally:
            child.kill()
            child.join(_PATIENCE_SECONDS)
            child.close()
        if is_late or exit_code == _STUCK:
            raise LawBroken("a child did not come to its end: something is held for ever")
        if exit_code not in (0, -signal.SIGKILL):
            raise LawBroken(f"a child failed by itself (exit code {exit_code})")
        was_killed = exit_code == -signal.SIGKILL
        self.kills += was_killed
        self._law(self._place, not was_killed)
        return was_killed

    def visits(self) -> dict[str, int]:
        """How often the last child that came to its end passed each point."""
        return json.decode((self._place / _VISITS).read_bytes(), type=dict[str, int])


def _live(way: Way, life: Life, kill: Kill | None) -> None:
    visits = Visits(kill)
    try:
        asyncio.run(way(life, visits))
    except TimeoutError:
        sys.exit(_STUCK)
    (life.place / _VISITS).write_bytes(json.encode(visits.seen))
