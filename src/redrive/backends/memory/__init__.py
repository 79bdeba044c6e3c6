"""Everything in this process's memory: for tests and trials. Nothing survives the process."""

from redrive.backends.memory.desk import MemoryDesk
from redrive.backends.memory.letters import MemoryLetters
from redrive.backends.memory.queues import MemoryQueues
from redrive.backends.memory.transport import MemoryTransport
from redrive.model.finding import Finding, Health
from redrive.ports.opening import Opened

__all__ = ["MemoryDesk", "MemoryLetters", "MemoryQueues", "MemoryTransport", "opened"]


def opened(location: str) -> Opened:
    """`memory:` makes a new store each time."""
    return Opened(letters=MemoryLetters(), desk=MemoryDesk(), examine=_examine, queues=MemoryQueues())


async def _examine() -> list[Finding]:
    return [Finding("store", Health.NOTE, "letters are kept in memory and are gone when this process ends")]
