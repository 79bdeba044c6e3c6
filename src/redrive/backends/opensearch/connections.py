"""Clients are bound to the event loop they were opened on: one for each that asks, or one that was given."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from opensearchpy import AsyncOpenSearch

from redrive.backends.opensearch import client
from redrive.backends.opensearch.address import Address
from redrive.backends.opensearch.index import Index
from redrive.backends.opensearch.opening import look
from redrive.backends.remote.loops import PerLoop
from redrive.model.errors import BadSettings, StoreUnavailable


def own(address: Address) -> PerLoop[Index]:
    """Clients of our own, one for each event loop."""

    async def open() -> Index:
        index = Index(client.connected(address), address)
        try:
            await look(index)
        except BaseException:
            await index.client.close()
            raise
        return index

    return PerLoop(address.name, open=open, close=lambda index: index.client.close())


class Given:
    """A client that is somebody else's: used on its own loop alone, and never closed."""

    def __init__(self, driver: AsyncOpenSearch, address: Address) -> None:
        self._name = address.name
        self._index = Index(client.Client(driver, address.name, address.timeout, is_ours=False), address)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False

    async def get(self) -> Index:
        loop = asyncio.get_running_loop()
        if self._is_closed:
            raise StoreUnavailable(f"the store on {self._name} was closed; make it again")
        if self._loop is None:
            self._loop = loop
        if self._loop is not loop:
            raise BadSettings("a store over a client of yours belongs to that client's event loop; open others by their URL")
        return self._index

    async def close(self) -> None:
        self._is_closed = True


def placed(driver: AsyncOpenSearch, index: str, timeout: timedelta, *, shards: int, replicas: int | None) -> Address:
    """Where a given client leads to, for people, and how a new index is to be."""
    hosts = tuple((str(host.get("host", "localhost")), int(host.get("port") or 9200)) for host in driver.transport.hosts)
    return Address(hosts=hosts, index=index, timeout=timeout, shards=shards, replicas=replicas)
