"""Items: messages that wait in a queue to be leased.

Instants are whole microseconds (`…_us`, 0: none), not `datetime`s: items pass by hundreds of thousands a second, and two such
objects an item would cost more than all that is done with it.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

PRIORITIES = 10
"""0 is ordinary; 9 is leased before all others."""
OVERDUE_US = 1
"""When a queue is due in which items are dying: somebody gave them up, and may not have lived to move them."""
SOON_US = 100_000
"""What is to be leased not before an instant that is nearer than this, can be leased at once."""


class Place(StrEnum):
    """Where in its partition an item is."""

    READY = "ready"
    """It can be leased."""
    LEASED = "leased"
    SCHEDULED = "scheduled"
    """It becomes ready at `enqueue_us`."""
    BEHIND = "behind"
    """An earlier item of its key is not done yet."""
    DYING = "dying"
    """It has been given up on, and stays until the dead queue has it, or it is deleted."""


class Why(StrEnum):
    """Why an item was given up on."""

    ATTEMPTS = "max_attempts"
    EXPIRED = "expired"
    TOLD = "dead"
    """Who had leased it said so."""


class Fresh(Struct, frozen=True, gc=False):
    """What is put into a queue."""

    payload: bytes = b""
    reference: str = ""
    encoding: str = ""
    kind: str = ""
    enqueue_us: int = 0
    """Not to be leased before this instant."""
    key: str = ""
    """In an ordered queue, items of a key are leased one at a time, in order."""
    priority: int = 0
    story: bytes = b""
    """What else is known of it, as `redrive.model.story` writes it. Stores keep it and look at nothing in it."""
    message_id: str = ""
    """Its own id, the same wherever it goes; empty: the id of the first position it gets."""
    source_id: str = ""
    """The position at which it died in another queue: a partition takes each but once."""
    partition: int | None = None
    """The partition it must go to; None: whichever has the fewest."""
    attempts: int = 0
    created_us: int = 0
    """0: now."""
    expire_us: int = 0
    """0: what the queue says."""


class Item(Struct, gc=False):
    """An item as it is stored. Not frozen, and made by position where it is made by the thousand: by name costs seven times as much."""

    id: str
    """Its position: a KSUID, new with every place it gets. What a lease gives out, and only its holder knows."""
    message_id: str
    source_id: str
    attempts: int
    """Leases so far, the present one included."""
    created_us: int
    updated_us: int
    enqueue_us: int
    expire_us: int
    """0: it does not expire."""
    payload: bytes
    reference: str
    encoding: str
    kind: str
    key: str
    priority: int
    story: bytes
    place: Place = Place.READY
    lease_us: int = 0
    """When its lease ends; 0: it is not leased."""
    why: str = ""
    """Why it is dying."""
    failure: bytes = b""
    """What the last consumer that gave it back told of its failure, as `redrive.model.story` writes it."""


class Again(Struct, frozen=True, kw_only=True, gc=False):
    """What becomes of a leased item that was not worked off."""

    id: str
    at_us: int = 0
    """Not before this instant; 0: now."""
    dead: bool = False
    """Give it up, whatever its attempts."""
    failure: bytes = b""
    """What went wrong; empty: what was told before stays."""


class Leased(Struct, frozen=True, kw_only=True):
    """What a lease gives: items of one partition, all with the same end."""

    partition: int = 0
    until_us: int = 0
    items: list[Item] = []
    dying: int = 0
    """Items that were met past their time to expire, and are dying now."""
    wait_us: int = 0
    """No items because of the queue's rate: the next may be had after this time."""


class Swept(Struct, frozen=True, kw_only=True):
    """What a sweep found due."""

    ready: int = 0
    """Items that can be leased now: their schedule came, or their lease ended."""
    dying: int = 0
    is_done: bool = True
    """False: there is more; sweep again."""


class Move(Struct, frozen=True, kw_only=True):
    """A dying item, and what is put into the dead queue for it."""

    partition: int
    id: str
    fresh: Fresh


class Due(Struct, frozen=True, kw_only=True):
    """Something in a queue is due at this instant, or was thought to be."""

    queue: str
    at_us: int


class PartitionStats(Struct, frozen=True, kw_only=True):
    """How one partition stands."""

    partition: int
    total: int = 0
    """All but the scheduled."""
    leased: int = 0
    ready: int = 0
    scheduled: int = 0
    behind: int = 0
    dying: int = 0
    average_age_us: int = 0
    """Since they were created."""
    average_leased_age_us: int = 0
    """Since the leased were leased."""
