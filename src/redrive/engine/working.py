"""Working once: receipts of handlers, kept on the desk."""

from __future__ import annotations

from datetime import timedelta

from redrive.engine.apart import LEASE, Apart, WhenUnknown
from redrive.engine.bridge import Bridge
from redrive.engine.once import KEEP, Key
from redrive.engine.sweeping import Sweeping
from redrive.ports.desk import Desk


class Working(Sweeping):
    """The verbs of `DeadLetters` for handlers that work once."""

    desk: Desk
    bridge: Bridge

    def once(
        self,
        *,
        name: str | None = None,
        key: Key | None = None,
        unknown: WhenUnknown = "raise",
        lease: timedelta = LEASE,
        keep: timedelta | None = KEEP,
    ) -> Apart:
        """Give a handler receipts: `@dlq.once()`. A second delivery of the same message is not worked again, and answers None.

        For effects outside of a database; where they are in one, `redrive.once(connection)` is exact. Here a process that is
        killed between effect and receipt leaves it unknown, which the next delivery is told by `OutcomeUnknown`; with
        `unknown="again"` it is worked again. `lease` is how long a handler may take, `keep` how long a receipt is kept.
        """
        return Apart(self.desk, self.bridge, self.namespace, name=name, key=key, unknown=unknown, lease=lease, keep=keep)
