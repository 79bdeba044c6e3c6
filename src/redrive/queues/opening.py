"""From a URL to queues."""

from __future__ import annotations

import os
import socket
from weakref import WeakKeyDictionary

from redrive import wiring
from redrive.engine.dead_letters import DeadLetters
from redrive.engine.mint import minted
from redrive.queues.client import QueueClient
from redrive.queues.service import Queues
from redrive.settings import Settings, load

_beside: WeakKeyDictionary[DeadLetters, Queues] = WeakKeyDictionary()


def open(url: str | None = None) -> Queues:
    """The queues of a store, served in this process: `async with redrive.queues.open("sqlite:redrive.db") as queues`."""
    return of(load({"store": url}).settings)


def of(settings: Settings) -> Queues:
    """The queues of the settings' store."""
    own = wiring.store(settings.store, desk=settings.desk).queues
    return Queues(wiring.queue_stores(settings, own), owns_stores=True)


def beside(dlq: DeadLetters, settings: Settings) -> Queues:
    """The queues that lie where these letters lie: the same ones for all who ask, so that what one puts wakes who waits at
    another."""
    if dlq not in _beside:
        _beside[dlq] = Queues(wiring.queue_stores(settings, dlq.queue_store))
    return _beside[dlq]


def connect(endpoint: str = "http://127.0.0.1:2319") -> QueueClient:
    """The queues that a server serves: `async with redrive.queues.connect("http://queues:2319") as queues`."""
    return QueueClient(endpoint)


def client_name() -> str:
    """A name for one request to lease: no other has it."""
    return f"{socket.gethostname()}-{os.getpid()}-{minted().hex[:8]}"
