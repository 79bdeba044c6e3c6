"""The same names for blocking code: `redrive.blocking.open(url)`. Safe from threads.

One implementation serves both faces: each verb here runs the async one, by hand in the calling thread where the store
allows it (SQLite, memory), else through an event loop in a thread of its own.
"""

from __future__ import annotations

from redrive import wiring
from redrive.blocking.dead_letters import DeadLetters
from redrive.blocking.guard import Dispatcher, Guard, Housekeeper, RetryProcessor
from redrive.blocking.operations import Operations, Repairs, Triages
from redrive.blocking.stores import Desk, Letters
from redrive.model.redaction import Redaction

__all__ = [
    "DeadLetters",
    "Desk",
    "Dispatcher",
    "Guard",
    "Housekeeper",
    "Letters",
    "Operations",
    "Repairs",
    "RetryProcessor",
    "Triages",
    "open",
]


def open(url: str | None = None, *, redact: Redaction | None = None) -> DeadLetters:
    """Open a store for blocking code; see `redrive.open`."""
    return DeadLetters(wiring.open(url, redact=redact))
