"""Does the server keep what it is given? "Durably held" needs an append-only file, and nothing may evict letters."""

from __future__ import annotations

from msgspec import Struct
from redis import exceptions

from redrive.backends.redis.address import Durability
from redrive.backends.redis.node import Node

_LOSES = {
    Durability.EVERYSEC: "the last second or two when the server dies",
    Durability.NONE: "letters when the server dies",
}


class Keeping(Struct, frozen=True):
    """How a server keeps what it is given."""

    has_file: bool
    """Does it append to a file?"""
    fsync: str
    maxmemory: int
    eviction: str

    @property
    def durability(self) -> Durability:
        if not self.has_file:
            return Durability.NONE
        return {"always": Durability.ALWAYS, "everysec": Durability.EVERYSEC}.get(self.fsync, Durability.NONE)

    @property
    def evicts(self) -> bool:
        return self.maxmemory > 0 and self.eviction != "noeviction"


async def kept(node: Node) -> Keeping | None:
    """How this node keeps what it is given; None when it does not tell."""
    settings: dict[str, str] = {}
    for pattern in ("append*", "maxmemory*"):
        try:
            found = await node.call("CONFIG", "GET", pattern)
        except exceptions.ResponseError:
            # Forbidden to this user, or taken out by a managed service.
            return None
        settings |= {name.decode(): value.decode() for name, value in zip(found[::2], found[1::2], strict=True)}
    if "appendonly" not in settings:
        return None
    return Keeping(
        has_file=settings["appendonly"] == "yes",
        fsync=settings.get("appendfsync", ""),
        maxmemory=int(settings.get("maxmemory", "0")),
        eviction=settings.get("maxmemory-policy", "noeviction"),
    )


def lacking(keeping: Keeping, wanted: Durability, name: str) -> str | None:
    """What is missing, in one sentence with the ways out; None when all is well."""
    if keeping.evicts:
        return (
            f"{name} evicts keys when its memory is full (maxmemory-policy {keeping.eviction}), letters among them; "
            "set maxmemory-policy noeviction there"
        )
    order = list(Durability)
    if order.index(keeping.durability) <= order.index(wanted):
        return None
    has = f"appendfsync {keeping.fsync}" if keeping.has_file else "appendonly no"
    return (
        f"{name} does not keep letters durably ({has}); set appendonly yes and appendfsync {wanted} there, "
        f"or say durability={keeping.durability} in the URL and accept to lose {_LOSES[keeping.durability]}"
    )
