"""The clock that queues go by: each store's own, unless a test brings one."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime


class Clock:
    """Leaves time to the stores."""

    def now(self) -> datetime | None:
        """What stores are told; None: their own clock decides."""
        return None

    def now_us(self) -> int:
        return time.time_ns() // 1000

    def tell(self, moved: Callable[[], None]) -> None:
        """Call `moved` whenever time makes a leap. This one makes none."""
