"""A server or a cluster, as one event loop sees it: which node has which shard, and scripts that run there.

A cluster's redirections are followed here, not by redis-py's cluster client: that one sends ASKING on one connection and the
command on another, and repeats what it thinks has failed. A node that redirects has done nothing, so a script is run once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from redis import exceptions
from redis.crc import key_slot

from redrive.backends.redis import keys
from redrive.backends.redis.address import Address
from redrive.backends.redis.errors import refused
from redrive.backends.redis.keys import Shard, bytes_of_micros
from redrive.backends.redis.node import Node
from redrive.backends.redis.scripts import Script
from redrive.backends.remote.clock import ServerClock
from redrive.model.errors import AnswerLost, StoreError, StoreUnavailable

if TYPE_CHECKING:
    from redrive.backends.redis.joint import Meeting

T = TypeVar("T")

_MOST_REDIRECTIONS = 8


class Server:
    """Open connections to wherever letters are."""

    def __init__(self, address: Address, *, is_cluster: bool, first: Node) -> None:
        self.address = address
        self.is_cluster = is_cluster
        self.clock = ServerClock()
        self.shards: list[Shard] = []
        self.has_ground = False
        """Are the number of shards and the schema recorded?"""
        self.is_writable = False
        """Has this been looked into: rights, and the ground?"""
        self.meetings: dict[bytes, Meeting] = {}
        """For each shard, where its puts meet."""
        self._first = first
        self._nodes: dict[tuple[str, int], Node] = {(address.host, address.port): first}
        self._slots: list[tuple[int, int, Node]] = []
        """Empty: they must be asked for."""
        self._replicas: list[Node] = []

    @property
    def name(self) -> str:
        return self.address.name

    def shard_of(self, id: bytes) -> int:
        return id[15] % len(self.shards)

    async def command(self, key: bytes, *command: bytes | str | int, writes: bool = False) -> Any:
        """Run a command where this key is."""
        if self.is_cluster and not self._slots:
            await self.look_around()
        node, asking = self._node(key), False
        for _ in range(_MOST_REDIRECTIONS):
            try:
                return await node.call(*command, writes=writes, asking=asking)
            except exceptions.MovedError as error:
                await self.look_around()
                node, asking = self._at(error.host, error.port), False
            except exceptions.AskError as error:
                node, asking = self._at(error.host, error.port), True
            except exceptions.NoScriptError:
                raise
            except exceptions.RedisError as error:
                raise refused(error, node.name) from error
            except StoreUnavailable:
                # A node may have failed over: who calls next asks again where things are.
                self._slots = []
                raise
        raise StoreUnavailable(f"the cluster of {self.name} sends from node to node; try again when it has settled")

    async def run(self, script: Script, keys: Sequence[bytes], *arguments: bytes | str | int) -> Any:
        """Run a script on keys of one shard."""
        rest = (len(keys), *keys, *arguments)
        try:
            return await self.command(keys[0], "EVALSHA", script.digest, *rest, writes=script.writes)
        except exceptions.NoScriptError:
            # Nothing was done: the server restarted, or forgot its scripts. The whole text makes it known again.
            return await self.command(keys[0], "EVAL", script.text, *rest, writes=script.writes)

    async def primaries(self) -> list[Node]:
        """Every node that answers for letters."""
        if not self.is_cluster:
            return [self._first]
        if not self._slots:
            await self.look_around()
        return list(dict.fromkeys(node for _, _, node in self._slots))

    def replicas(self) -> list[Node]:
        """Every node of a cluster that may take over from another."""
        return self._replicas

    async def look_around(self) -> None:
        """Learn which node has which slots, from any node that answers."""
        failure: StoreError | None = None
        for node in list(self._nodes.values()):
            try:
                found = await node.call("CLUSTER", "SLOTS")
            except exceptions.RedisError as error:
                failure = refused(error, node.name)
                continue
            except StoreUnavailable as error:
                failure = error
                continue
            self._slots = [(first, last, self._at(primary[0], primary[1])) for first, last, primary, *_ in found]
            others = (self._at(other[0], other[1]) for _, _, _, *replicas in found for other in replicas)
            self._replicas = list(dict.fromkeys(others))
            return
        assert failure is not None
        raise failure

    async def tell_time(self) -> None:
        seconds, micros = await self._first.call("TIME")
        self.heard(bytes_of_micros(int(seconds) * 1_000_000 + int(micros)))

    def heard(self, now: bytes) -> None:
        """The server just said what time it is."""
        self.clock.heard(keys.instant_of(now))

    async def close(self) -> None:
        await asyncio.gather(*(node.close() for node in self._nodes.values()))

    def _node(self, key: bytes) -> Node:
        if not self.is_cluster:
            return self._first
        slot = key_slot(key)
        for first, last, node in self._slots:
            if first <= slot <= last:
                return node
        # Any node tells where it is.
        return self._first

    def _at(self, host: bytes | str, port: int) -> Node:
        # A node that does not know its own name means the host it was asked at.
        place = (host.decode() if isinstance(host, bytes) else host) or self.address.host, int(port)
        if place not in self._nodes:
            self._nodes[place] = Node(self.address, *place)
        return self._nodes[place]


async def all_of(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """What every shard answers; when one fails, what it raised, once the others have come to their end."""
    answers, failures = await _ended(calls)
    if failures:
        raise failures[0]
    return answers


async def all_written(calls: Iterable[Coroutine[Any, Any, T]], name: str) -> list[T]:
    """What every shard answers; when only some of them fail, part of it has been done, and `AnswerLost` says so."""
    answers, failures = await _ended(calls)
    if failures and answers and isinstance(failures[0], StoreError):
        raise AnswerLost(f"part of the batch was done at {name}, the rest was not: {failures[0]}") from failures[0]
    if failures:
        raise next((failure for failure in failures if isinstance(failure, AnswerLost)), failures[0])
    return answers


async def _ended(calls: Iterable[Coroutine[Any, Any, T]]) -> tuple[list[T], list[BaseException]]:
    """What was answered, and what was raised, when all have come to their end."""
    begun = list(calls)
    if len(begun) == 1:
        return [await begun[0]], []
    answers = await asyncio.gather(*begun, return_exceptions=True)
    return (
        [answer for answer in answers if not isinstance(answer, BaseException)],
        [answer for answer in answers if isinstance(answer, BaseException)],
    )
