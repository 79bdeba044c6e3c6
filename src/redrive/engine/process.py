"""A program's life: started, fed, listened to, and ended when nobody wants it any more."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Sequence

TAIL_BYTES = 65_536
_STRAGGLERS_SECONDS = 1.0
"""How long we listen for what children of an ended program still say."""
_GRACE_SECONDS = 5.0
"""How long a program that is told to end may take."""
_GLANCE_SECONDS = 0.05


class Input:
    """Standard input, read as it comes and kept, so that a later try gets it from its start."""

    def __init__(self, descriptor: int) -> None:
        self.kept = bytearray()
        self.is_ended = False
        self._descriptor = descriptor
        self._more: asyncio.Event | None = None
        self._thread: threading.Thread | None = None

    @classmethod
    def of(cls, given: bytes) -> Input:
        """Input that is all there already."""
        made = cls(-1)
        made.kept += given
        made.is_ended = True
        return made

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """All of it from the start: what was kept, then what still comes."""
        self._start(asyncio.get_running_loop())
        position = 0
        while True:
            is_ended = self.is_ended
            if chunk := bytes(self.kept[position:]):
                position += len(chunk)
                yield chunk
            elif is_ended:
                return
            else:
                assert self._more is not None
                self._more.clear()
                if len(self.kept) == position and not self.is_ended:
                    await self._more.wait()

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        # In a thread, because not everything that can be standard input (a file, a device) can be awaited.
        if self.is_ended or self._thread is not None:
            return
        self._more = asyncio.Event()
        self._thread = threading.Thread(target=self._read, args=[loop, self._more], name="redrive-input", daemon=True)
        self._thread.start()

    def _read(self, loop: asyncio.AbstractEventLoop, more: asyncio.Event) -> None:
        while True:
            try:
                chunk = os.read(self._descriptor, 65_536)
            except OSError:
                chunk = b""
            self.kept += chunk
            self.is_ended = not chunk
            # The loop is gone when the program ended before its input did: then nobody listens.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(more.set)
            if not chunk:
                return


async def lived(argv: Sequence[str], cwd: str, given: Input | None) -> tuple[int, bytes]:
    """Run a program to its end; answer with its status and the end of its stderr. Without input it reads ours.

    Its output passes through. When this is cancelled, the program is told to end, and made to if it does not.
    """
    process = await asyncio.create_subprocess_exec(
        *argv, cwd=cwd, stdin=None if given is None else asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    feeding = asyncio.create_task(_fed(process, given))
    tail: deque[bytes] = deque()
    listening = asyncio.create_task(_heard(process, tail))
    try:
        status = await _exited(process)
        await asyncio.wait([listening], timeout=_STRAGGLERS_SECONDS)
    except asyncio.CancelledError:
        await asyncio.shield(_ended(process))
        raise
    finally:
        for task in (feeding, listening):
            task.cancel()
        await asyncio.gather(feeding, listening, return_exceptions=True)
        # asyncio closes the pipes when all who hold them are gone; we do not wait for a program's children that long.
        process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001 - there is no public way
    return status, b"".join(tail)[-TAIL_BYTES:]


async def _exited(process: asyncio.subprocess.Process) -> int:
    """The program's status, as soon as it has one: `wait` alone also waits for children that hold its pipes."""
    waiting = asyncio.create_task(process.wait())
    try:
        while process.returncode is None:
            await asyncio.wait([waiting], timeout=_GLANCE_SECONDS)
    finally:
        waiting.cancel()
    return process.returncode


async def _fed(process: asyncio.subprocess.Process, given: Input | None) -> None:
    if process.stdin is None or given is None:
        return
    # A program may not want all of its input; that is its business.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        async for chunk in given:
            process.stdin.write(chunk)
            await process.stdin.drain()
        process.stdin.close()
        await process.stdin.wait_closed()


async def _heard(process: asyncio.subprocess.Process, tail: deque[bytes]) -> None:
    assert process.stderr is not None
    size = 0
    while chunk := await process.stderr.read(8192):
        sys.stderr.buffer.write(chunk)
        sys.stderr.buffer.flush()
        tail.append(chunk)
        size += len(chunk)
        while size - len(tail[0]) >= TAIL_BYTES:
            size -= len(tail.popleft())


async def _ended(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        await asyncio.wait_for(_exited(process), _GRACE_SECONDS)
    except TimeoutError:
        process.kill()
        await _exited(process)
