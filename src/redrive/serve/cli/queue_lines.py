"""Items for `redrive queue produce`: texts, or the lines of standard input as they come, in requests that a queue takes."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import suppress

from redrive.queues.checks import MOST_ITEMS

_CHUNK = 1 << 18
_AHEAD = 4
_WEIGHT = 2 * 1024 * 1024
"""Bytes in one request. A server takes 5 MB, and over the wire a payload is a third longer."""


async def batches(texts: Iterable[str], overhead: int) -> AsyncIterator[list[bytes]]:
    """The texts, or without any the lines of standard input; `overhead` is what each item weighs besides.

    What has come is given out at once, so that `tail -f log | redrive queue produce` waits for nothing.
    """
    if payloads := [os.fsencode(text) for text in texts]:
        for batch in _cut(payloads, overhead):
            yield batch
        return
    async for lines in _lines():
        for batch in _cut(lines, overhead):
            yield batch


def _cut(payloads: Iterable[bytes], overhead: int) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    weight = 0
    for payload in payloads:
        weight += len(payload) + overhead
        if batch and (len(batch) == MOST_ITEMS or weight > _WEIGHT):
            yield batch
            batch, weight = [], len(payload) + overhead
        batch.append(payload)
    if batch:
        yield batch


async def _lines() -> AsyncIterator[list[bytes]]:
    """Lines that are not empty, as many as have come."""
    begun: list[bytes] = []
    async for chunk in _chunks():
        *whole, rest = chunk.split(b"\n")
        if whole:
            whole[0] = b"".join([*begun, whole[0]])
            begun = []
        begun.append(rest)
        if lines := [line for line in whole if line]:
            yield lines
    if last := b"".join(begun):
        yield [last]


async def _chunks() -> AsyncIterator[bytes]:
    """Standard input, read a little ahead: in a thread, because not everything that can be one (a file, a device) can be awaited."""
    if sys.stdin is None:
        return
    descriptor, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    room, read = threading.Semaphore(_AHEAD), asyncio.Queue[bytes]()

    def run() -> None:
        chunk = b"begin"
        while chunk:
            room.acquire()
            try:
                chunk = os.read(descriptor, _CHUNK)
            except OSError:
                chunk = b""
            # The loop is gone when the program ended before its input did: then nobody listens.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(read.put_nowait, chunk)

    threading.Thread(target=run, name="redrive-input", daemon=True).start()
    while chunk := await read.get():
        room.release()
        yield chunk
