"""Leased, partitioned queues with dead queues: in this process, or over HTTP."""

from redrive.queues.client import QueueClient
from redrive.queues.letters import message_of
from redrive.queues.opening import connect
from redrive.queues.opening import open as open  # noqa: A004 - as in `redrive.open`
from redrive.queues.service import Queues
from redrive.queues.verbs import again, item

__all__ = ["QueueClient", "Queues", "again", "connect", "item", "message_of", "open"]
