"""The first use of a server: is it one, is it durable, whose store is it, and what time is it there?"""

from __future__ import annotations

import warnings
from contextlib import suppress
from uuid import UUID

from redis import exceptions

from redrive.backends.redis import keys
from redrive.backends.redis.address import MOST_SHARDS, Address
from redrive.backends.redis.durability import Keeping, kept, lacking
from redrive.backends.redis.errors import refused
from redrive.backends.redis.joint import meeting
from redrive.backends.redis.node import Node
from redrive.backends.redis.scripts import script
from redrive.backends.redis.server import Server
from redrive.model.errors import BadSettings, SchemaTooNew, StoreCorrupt, StoreNotWritable, StoreUnavailable

SCHEMA = 1
_SHARDS_ON_A_CLUSTER = 16


async def connected(address: Address) -> Server:
    """Connect, and refuse what cannot be used. Nothing is written."""
    server = await _reached(address)
    try:
        await _ensure_durable(server)
        await _read_ground(server)
    except BaseException:
        await server.close()
        raise
    return server


async def take_ground(server: Server) -> None:
    """Before the first write. Record how this store is laid out, once and for ever; whoever is first decides."""
    await ensure_rights(server)
    if server.has_ground:
        server.is_writable = True
        return
    meta = keys.meta(server.address.prefix)
    for field, value in (("shards", len(server.shards)), ("schema", SCHEMA)):
        await server.command(meta, "HSETNX", meta, field, value, writes=True)
    await _read_ground(server)
    server.is_writable = True


async def ensure_rights(server: Server) -> None:
    """Refuse a user who may do only some of what a script does: it would be ended in its middle."""
    await server.run(script("rights"), [server.shards[0].key(b"check")])


async def bound(server: Server, desk: UUID) -> UUID:
    """The id of the desk that this store belongs to: the one given, unless there is one already."""
    meta = keys.meta(server.address.prefix)
    await server.command(meta, "HSETNX", meta, "desk", str(desk), writes=True)
    return UUID((await server.command(meta, "HGET", meta, "desk")).decode())


async def keeping(server: Server) -> list[tuple[Node, Keeping | None]]:
    """How each node keeps what it is given; None where it does not tell. A replica that is not there is left out."""
    found = [(node, await kept(node)) for node in await server.primaries()]
    for node in server.replicas():
        with suppress(StoreUnavailable):
            found.append((node, await kept(node)))
    return found


async def _reached(address: Address) -> Server:
    node = Node(address, address.host, address.port)
    try:
        hello = await node.call("HELLO")
        told = dict(zip(hello[::2], hello[1::2], strict=True))
        mode = told.get(b"mode", b"standalone")
        if mode == b"sentinel":
            raise BadSettings(f"{node.name} is a Sentinel; name the Redis that it watches")
        server = Server(address, is_cluster=mode == b"cluster", first=node)
        if server.is_cluster:
            await server.look_around()
        await server.tell_time()
    except exceptions.RedisError as error:
        await node.close()
        if address.db and ("SELECT" in str(error) or "DB index" in str(error)):
            raise BadSettings(f"{node.name} has no database {address.db} ({error}); leave it out of the URL") from error
        raise refused(error, node.name) from error
    except BaseException:
        await node.close()
        raise
    return server


async def _ensure_durable(server: Server) -> None:
    for node, keeps in await keeping(server):
        if keeps is None:
            warnings.warn(
                f"{node.name} does not let this user ask how durable it is (CONFIG GET); "
                f"redrive takes it to be durability={server.address.durability} as the URL says",
                stacklevel=2,
            )
        elif lack := lacking(keeps, server.address.durability, node.name):
            raise StoreNotWritable(lack)


async def _read_ground(server: Server) -> None:
    meta = keys.meta(server.address.prefix)
    schema, shards = await server.command(meta, "HMGET", meta, "schema", "shards")
    if schema is not None and int(schema) > SCHEMA:
        raise SchemaTooNew(f"{server.name} has schema {int(schema)}, this redrive knows {SCHEMA}; upgrade redrive to open it")
    server.has_ground = schema is not None and shards is not None
    wanted = server.address.shards
    count = int(shards) if shards is not None else wanted or (_SHARDS_ON_A_CLUSTER if server.is_cluster else 1)
    if not 1 <= count <= MOST_SHARDS:
        raise StoreCorrupt(f"{server.name} says it has {count} shards; choose another prefix in the URL: ?prefix=…")
    if wanted is not None and wanted != count:
        raise BadSettings(
            f"the letters at {server.name} lie in {count} shards, not in {wanted}; say shards={count}, or leave it out of the URL"
        )
    server.shards = [keys.shard(server.address.prefix, number) for number in range(count)]
    server.meetings = {shard.tag: meeting(server) for shard in server.shards}
