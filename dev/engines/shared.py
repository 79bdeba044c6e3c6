"""One instance of each engine for a whole test run, however many processes take part in it.

They belong to the process that was asked to run the tests: a worker that crashes takes nothing with it, and when the run ends, in
whatever way, so do they.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener

from dev.engines.engine import Engine, EngineMissing
from redrive.testing.servers import HOST, ServerFailed


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Where an engine is, or why there is none. One that is only to be installed has no URL."""

    url: str | None = None
    pid: int | None = None
    ready_in: timedelta | None = None
    missing: str | None = None
    failed: str | None = None


Need = tuple[frozenset[str], frozenset[str]]
"""The engines to start, and those only to install."""


def variable(name: str) -> str:
    """The environment variable that holds an engine's URL."""
    return f"REDRIVE_TEST_{name.upper().replace('-', '_')}"


class Shared:
    """Starts each engine when it is first needed, all at the same time."""

    def __init__(
        self, engines: Mapping[str, Engine], given: Mapping[str, str], say: Callable[[str], None] = lambda text: None
    ) -> None:
        """`given`: the URLs of engines that are there already, by `variable`."""
        self._engines = engines
        self._given = given
        self._say = say
        self._pool = ThreadPoolExecutor(max_workers=32, thread_name_prefix="engines")
        self._lock = threading.Lock()
        self._futures: dict[tuple[str, bool], Future[Answer]] = {}
        self._running = ExitStack()
        self._listener: Listener | None = None
        self._key = secrets.token_bytes(16)

    def need(self, need: Need) -> dict[str, Answer]:
        """Have these started, and those installed; waits until they are ready."""
        started, installed = need
        futures = {name: self._ask(name, is_started=True) for name in started}
        futures |= {name: self._ask(name, is_started=False) for name in installed - started}
        return {name: future.result() for name, future in futures.items()}

    def address(self) -> tuple[int, str]:
        """Where other processes may ask (see `ask`)."""
        if self._listener is None:
            self._listener = Listener((HOST, 0), authkey=self._key)
            threading.Thread(target=self._listen, args=(self._listener,), daemon=True).start()
        return self._listener.address[1], self._key.hex()

    def close(self) -> None:
        """End all of them, and leave nothing behind."""
        if self._listener is not None:
            self._listener.close()
        self._pool.shutdown(cancel_futures=True)
        self._running.close()

    def _ask(self, name: str, *, is_started: bool) -> Future[Answer]:
        with self._lock:
            key = (name, is_started)
            if key not in self._futures:
                self._futures[key] = self._pool.submit(self._provide, name, is_started)
            return self._futures[key]

    def _provide(self, name: str, is_started: bool) -> Answer:
        if url := self._given.get(variable(name)):
            return Answer(url=url)
        engine = self._engines[name]
        try:
            if not engine.source.is_installed:
                self._say(f"installing {name} ({engine.source.told})")
                engine.source.install()
            return self._start(engine) if is_started else Answer()
        except EngineMissing as error:
            return Answer(missing=str(error))
        except ServerFailed as error:
            return Answer(failed=str(error))
        except Exception as error:  # those who asked may be in another process: they must hear of it
            return Answer(failed=f"{name} could not be provided: {error!r}")

    def _start(self, engine: Engine) -> Answer:
        options = dict(engine.shared)
        if engine.behind:
            first = self._ask(engine.behind, is_started=True).result()
            if first.url is None:
                return first
            options["target"] = first.url
        running = engine.make(**options)
        with self._lock:
            self._running.callback(running.close)
        running.start()
        return Answer(url=running.url, pid=running.pid, ready_in=running.ready_in)

    def _listen(self, listener: Listener) -> None:
        while True:
            try:
                connection = listener.accept()
            except AuthenticationError:
                continue
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: Connection) -> None:
        with connection, suppress(EOFError, OSError):
            connection.send(self.need(connection.recv()))


def ask(address: tuple[int, str], need: Need) -> dict[str, Answer]:
    """`Shared.need`, from another process."""
    port, key = address
    with Client((HOST, port), authkey=bytes.fromhex(key)) as connection:
        connection.send(need)
        answers: dict[str, Answer] = connection.recv()
        return answers


def union(needs: Iterable[tuple[str, bool]]) -> Need:
    """What many say that they need, as one: (engine, is it only to be installed)."""
    told = set(needs)
    return frozenset(name for name, only in told if not only), frozenset(name for name, only in told if only)
