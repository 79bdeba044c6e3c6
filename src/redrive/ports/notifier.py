"""`Notifier`: whoever is told when letters need people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from redrive.model.alert import Alert


class Notifier(Protocol):
    """Tells people. What floods them, and how often it is tried, is not its concern: see `redrive.engine.alert`."""

    @property
    def name(self) -> str:
        """How people call this target in logs: without anything secret."""
        ...

    async def notify(self, alerts: Sequence[Alert]) -> None:
        """Deliver alerts, or raise `NotNotified`, which names those that were not; `NotifierUnavailable` when another try may help.

        Comes to an end in a bounded time. One alert that is refused keeps no other back. After an error the same alert
        may come again, under the same `id` and `key`; the receiver gets both, and so can tell it from another. No error
        text holds anything secret.
        """
        ...

    async def close(self) -> None:
        """Let go of what `notify` opened. Called on the same event loop."""
        ...
