"""From a URL to queues."""

from __future__ import annotations

from redrive import wiring
from redrive.engine.dead_letters import DeadLetters
from redrive.queues.client import QueueClient
from redrive.queues.service import Queues
from redrive.settings import Settings, load


def open(url: str | None = None) -> Queues:
    """The queues of a store, served in this process: `async with redrive.queues.open("sqlite:redrive.db") as queues`."""
    settings = load({"store": url}).settings
    own = wiring.store(settings.store, desk=settings.desk).queues
    return Queues(wiring.queue_stores(settings, own), owns_stores=True)


def beside(dlq: DeadLetters, settings: Settings) -> Queues:
    """The queues that lie where these letters lie."""
    return Queues(wiring.queue_stores(settings, dlq.queues))


def connect(endpoint: str = "http://127.0.0.1:2319") -> QueueClient:
    """The queues that a server serves: `async with redrive.queues.connect("http://queues:2319") as queues`."""
    return QueueClient(endpoint)
