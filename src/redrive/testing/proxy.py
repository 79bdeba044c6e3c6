"""A TCP proxy that stands between a client and a real engine, and cuts, delays, swallows or stalls when a test says so."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import Self, TypeVar

from redrive.model.errors import BadSettings
from redrive.testing.links import HOST, Counts, Links, Way, bound

__all__ = ["Counts", "Proxy"]

T = TypeVar("T")

_PATIENCE_SECONDS = 30.0


class Proxy:
    """Passes all bytes between whoever connects to it and the server at `host` and `port`, until a fault is laid.

    ```python
    with Proxy("127.0.0.1", 5432) as proxy:
        client = connect(proxy.host, proxy.port)
        proxy.cut()
    ```

    It listens on 127.0.0.1 alone, in a thread of its own. Every fault may be laid from any thread, meets all connections
    alike, and is in force when its call returns. A reset on one side is passed on as a reset, an end as an end. When the
    server is not there, a client is connected and then reset.
    """

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self._port = 0
        self._thread: threading.Thread | None = None

    @property
    def host(self) -> str:
        return HOST

    @property
    def port(self) -> int:
        """Where it listens: the same port from its opening to its end, whatever it refuses meanwhile."""
        return self._port

    def __enter__(self) -> Self:
        # A socket that is bound and does not listen: it keeps the port while new connections are refused.
        self._reserved = bound(0)
        self._port = self._reserved.getsockname()[1]
        is_up = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(is_up)), name=f"proxy {self._port}")
        self._thread.start()
        is_up.wait(_PATIENCE_SECONDS)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Cut everything and leave nothing behind. Twice is fine."""
        if self._thread is not None:
            self._do(lambda _: self._over.set())
            self._thread.join(_PATIENCE_SECONDS)
            self._thread = None
            self._reserved.close()

    @property
    def counts(self) -> Counts:
        """What has come by so far."""
        return self._do(Links.counts)

    def cut(self) -> None:
        """Reset every open connection now, on both sides; new ones are taken."""
        self._do(Links.cut)

    def cut_after(self, *, request_bytes: int | None = None, answer_bytes: int | None = None) -> None:
        """Cut as soon as so many more bytes have passed that way, be it in the middle of a message; once. The server is told of an end, so
        that it is known when it has let go (`wait_until_parted`).
        """
        limits = {Way.REQUESTS: request_bytes, Way.ANSWERS: answer_bytes}
        given = [limit for limit in limits.values() if limit is not None]
        if not given or min(given) < 0:
            raise BadSettings("say after how many request_bytes or answer_bytes to cut; 0 means before the next one")
        self._do(lambda links: links.limit(limits))

    def wait_until_parted(self) -> None:
        """Wait until the server has let go of what `cut_after` has cut: what it was asked there is done by then, or never will be."""
        asyncio.run_coroutine_threadsafe(self._links.parted(), self._loop).result(_PATIENCE_SECONDS)

    def refuse(self) -> None:
        """Take no new connections: they are refused. Open ones stay."""
        self._do(Links.stop_listening)

    def accept(self) -> None:
        """Take new connections again, at the same port."""
        self._do(Links.listen)

    def delay(self, seconds: float) -> None:
        """Let each chunk wait so long before it is passed; 0 ends that, also for those that wait."""
        self._do(lambda links: links.delay(seconds))

    def swallow_answers(self) -> None:
        """Pass requests and drop what the server says: the work is done, and its answer is lost."""
        self._do(lambda links: setattr(links, "is_swallowing", True))

    def pass_answers(self) -> None:
        """Pass answers again; what was dropped is gone."""
        self._do(lambda links: setattr(links, "is_swallowing", False))

    def half_close(self, *, towards_server: bool = False) -> None:
        """Tell all clients that no more will come, while the other way stays open; or tell the server so."""
        self._do(lambda links: links.half_close(Way.REQUESTS if towards_server else Way.ANSWERS))

    def stall(self) -> None:
        """Neither pass nor drop anything: connections are open, and silent. What is being written is finished."""
        self._do(lambda links: links.flowing.clear())

    def flow(self) -> None:
        """Let everything flow again that was stalled."""
        self._do(lambda links: links.flowing.set())

    def _do(self, act: Callable[[Links], T]) -> T:
        """Do it in the proxy's thread, where nothing else happens meanwhile, and wait until it is done."""
        if self._thread is None:
            raise BadSettings("the proxy is not open; use it inside a with statement")
        done: Future[T] = Future()

        def run() -> None:
            try:
                done.set_result(act(self._links))
            except BaseException as error:
                done.set_exception(error)

        self._loop.call_soon_threadsafe(run)
        return done.result(_PATIENCE_SECONDS)

    async def _serve(self, is_up: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._over = asyncio.Event()
        self._links = Links(self._server, self._port)
        self._links.listen()
        is_up.set()
        await self._over.wait()
        await self._links.close()
