"""The doors to the outside: each a handful of batch verbs whose docstrings state obligations."""

from redrive.ports.bodies import Bodies
from redrive.ports.capabilities import Capabilities
from redrive.ports.desk import Desk
from redrive.ports.letters import LetterStore
from redrive.ports.notifier import Notifier
from redrive.ports.queues import QueueStore
from redrive.ports.transport import Transport

__all__ = ["Bodies", "Capabilities", "Desk", "LetterStore", "Notifier", "QueueStore", "Transport"]
