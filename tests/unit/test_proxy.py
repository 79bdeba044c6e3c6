"""The proxy does to real connections what a test asks for, at once, and leaves nothing behind."""

from __future__ import annotations

import gc
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from redrive import BadSettings
from redrive.testing import Proxy

PATIENCE = 30.0
FAREWELL = b"<end>"
RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Echo:
    """A small real server: it says back what it hears, takes note of it, and says farewell when no more will come."""

    def __init__(self) -> None:
        self.heard: list[bytearray] = []
        self.ends: list[str] = []
        """How connections ended, in that order: `end` or `reset`."""
        self.connections: list[socket.socket] = []
        self.may_go_on = threading.Event()
        """Cleared: it hears, and takes its time."""
        self.may_go_on.set()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for thread in self._threads:
            thread.join(PATIENCE)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            heard = bytearray()
            self.heard.append(heard)
            self.connections.append(connection)
            thread = threading.Thread(target=self._speak, args=(connection, heard))
            self._threads.append(thread)
            thread.start()

    def _speak(self, connection: socket.socket, heard: bytearray) -> None:
        with connection:
            try:
                while chunk := connection.recv(65_536):
                    heard += chunk
                    self.may_go_on.wait(PATIENCE)
                    connection.sendall(chunk)
                self.ends.append("end")
                connection.sendall(FAREWELL)
            except ConnectionResetError:
                self.ends.append("reset")
            except OSError:
                return


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[Proxy]:
    with Proxy("127.0.0.1", echo.port) as opened:
        yield opened


def connect(proxy: Proxy) -> socket.socket:
    return socket.create_connection((proxy.host, proxy.port), timeout=PATIENCE)


def said_back(client: socket.socket, text: bytes) -> bytes:
    client.sendall(text)
    return received(client, len(text))


def received(client: socket.socket, size: int) -> bytes:
    """So many bytes, or fewer when no more come."""
    found = b""
    while len(found) < size and (chunk := client.recv(size - len(found))):
        found += chunk
    return found


def eventually(claim: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    pause = threading.Event()
    while not claim():
        assert time.monotonic() < deadline, "it never came true"
        pause.wait(0.002)


def is_reset(client: socket.socket) -> bool:
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    return True


def test_everything_passes_and_is_counted(proxy: Proxy, echo: Echo) -> None:
    large = bytes(range(256)) * 4000
    with connect(proxy) as first, connect(proxy) as second:
        assert said_back(first, b"hello") == b"hello"
        assert said_back(second, large) == large
        first.shutdown(socket.SHUT_WR)
        assert received(first, 100) == FAREWELL
        counts = proxy.counts
        assert counts.connections == 2
        assert counts.request_bytes == 5 + len(large)
        assert counts.answer_bytes == 5 + len(large) + len(FAREWELL)
        assert (counts.dropped_bytes, counts.waiting_bytes) == (0, 0)
    eventually(lambda: proxy.counts.open == 0)
    assert echo.ends == ["end", "end"]


def test_a_cut_resets_both_sides_and_new_connections_are_taken(proxy: Proxy, echo: Echo) -> None:
    with connect(proxy) as client, connect(proxy) as silent:
        assert said_back(client, b"x") == b"x"
        proxy.cut()
        assert proxy.counts.open == 0
        assert is_reset(client)
        assert is_reset(silent)
    eventually(lambda: "reset" in echo.ends)
    with connect(proxy) as client:
        assert said_back(client, b"again") == b"again"


def test_a_cut_meets_whoever_has_only_just_connected(proxy: Proxy) -> None:
    for _ in range(50):
        with connect(proxy) as client:
            proxy.cut()
            assert is_reset(client)


def test_while_it_refuses_open_connections_go_on_and_the_port_stays_its_own(proxy: Proxy) -> None:
    with connect(proxy) as client:
        proxy.refuse()
        proxy.refuse()
        with pytest.raises(ConnectionRefusedError):
            connect(proxy)
        assert said_back(client, b"still here") == b"still here"
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind((proxy.host, proxy.port))
        proxy.accept()
        proxy.accept()
        with connect(proxy) as late:
            assert said_back(late, b"hello") == b"hello"


def test_a_delay_holds_every_chunk_up(proxy: Proxy) -> None:
    with connect(proxy) as client:
        proxy.delay(0.05)
        started = time.monotonic()
        assert said_back(client, b"slow") == b"slow"
        assert time.monotonic() - started >= 0.1


def test_the_end_of_a_delay_is_at_once(proxy: Proxy, echo: Echo) -> None:
    with connect(proxy) as client:
        proxy.delay(3600)
        client.sendall(b"waits")
        eventually(lambda: proxy.counts.waiting_bytes == 5)
        assert not any(echo.heard)
        proxy.delay(0)
        assert received(client, 5) == b"waits"


def test_a_swallowed_answer_is_lost_though_the_work_was_done(proxy: Proxy, echo: Echo) -> None:
    with connect(proxy) as client:
        proxy.swallow_answers()
        client.sendall(b"lost")
        eventually(lambda: proxy.counts.dropped_bytes == 4)
        assert echo.heard == [b"lost"]
        proxy.pass_answers()
        assert said_back(client, b"kept") == b"kept"
        assert proxy.counts.answer_bytes == 4


def test_a_request_can_be_cut_in_its_middle(proxy: Proxy, echo: Echo) -> None:
    with connect(proxy) as client:
        assert said_back(client, b"one") == b"one"
        proxy.cut_after(request_bytes=5)
        assert said_back(client, b"two") == b"two"
        client.sendall(b"three")
        eventually(lambda: proxy.counts.open == 0)
        assert is_reset(client)
    proxy.wait_until_parted()
    assert echo.ends == ["end"]
    assert echo.heard == [b"onetwoth"]
    with connect(proxy) as client:
        assert said_back(client, b"only once") == b"only once"


def test_it_is_known_when_the_server_is_done_with_what_it_was_asked_before_a_cut(proxy: Proxy, echo: Echo) -> None:
    with connect(proxy) as client:
        proxy.cut_after(request_bytes=5)
        echo.may_go_on.clear()
        client.sendall(b"slow!")
        assert is_reset(client)
        with ThreadPoolExecutor(1) as aside:
            waiting = aside.submit(proxy.wait_until_parted)
            with pytest.raises(TimeoutError):
                waiting.result(0.2)
            assert echo.ends == []
            echo.may_go_on.set()
            waiting.result(PATIENCE)
    assert echo.heard == [b"slow!"]
    assert echo.ends == ["end"]


def test_an_answer_can_be_cut_in_its_middle(proxy: Proxy, echo: Echo) -> None:
    with connect(proxy) as client:
        proxy.cut_after(answer_bytes=4)
        client.sendall(b"answer")
        assert received(client, 4) == b"answ"
        assert is_reset(client)
    assert echo.heard == [b"answer"]


def test_a_cut_after_nothing_comes_before_the_next_byte(proxy: Proxy, echo: Echo) -> None:
    with connect(proxy) as client:
        proxy.cut_after(request_bytes=0)
        client.sendall(b"never")
        assert is_reset(client)
    assert not any(echo.heard)


def test_a_half_close_tells_the_client_while_the_server_goes_on_hearing(proxy: Proxy, echo: Echo) -> None:
    with connect(proxy) as client:
        assert said_back(client, b"x") == b"x"
        proxy.half_close()
        assert client.recv(1) == b""
        client.sendall(b"more")
        eventually(lambda: echo.heard == [b"xmore"])
        eventually(lambda: proxy.counts.dropped_bytes == 4)
        assert echo.ends == []


def test_a_half_close_the_other_way_round_tells_the_server(proxy: Proxy, echo: Echo) -> None:
    with connect(proxy) as client:
        proxy.half_close(towards_server=True)
        assert received(client, 100) == FAREWELL
        assert echo.ends == ["end"]


def test_a_stall_neither_passes_nor_drops(proxy: Proxy, echo: Echo) -> None:
    with connect(proxy) as client:
        assert said_back(client, b"1") == b"1"
        proxy.stall()
        client.sendall(b"23")
        eventually(lambda: proxy.counts.waiting_bytes == 2)
        assert echo.heard == [b"1"]
        assert (proxy.counts.open, proxy.counts.dropped_bytes) == (1, 0)
        with connect(proxy) as late:
            late.sendall(b"4")
            eventually(lambda: proxy.counts.waiting_bytes == 3)
            proxy.flow()
            assert received(client, 2) == b"23"
            assert received(late, 1) == b"4"


def test_a_stalled_connection_can_be_cut(proxy: Proxy) -> None:
    with connect(proxy) as client:
        proxy.stall()
        client.sendall(b"x")
        proxy.cut()
        assert is_reset(client)
        assert proxy.counts.waiting_bytes == 0


def test_a_reset_on_one_side_is_passed_on_to_the_other(proxy: Proxy, echo: Echo) -> None:
    with connect(proxy) as client:
        assert said_back(client, b"x") == b"x"
        (connection,) = echo.connections
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        connection.shutdown(socket.SHUT_RD)
        with pytest.raises(ConnectionResetError):
            received(client, 100)
    with connect(proxy) as client:
        assert said_back(client, b"x") == b"x"
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
    eventually(lambda: echo.ends == ["end", "reset"])


def test_a_server_that_is_not_there_means_a_reset() -> None:
    with socket.socket() as gone:
        gone.bind(("127.0.0.1", 0))
        port = gone.getsockname()[1]
        with Proxy("127.0.0.1", port) as proxy, pytest.raises(ConnectionResetError), connect(proxy) as client:
            client.recv(1)


def test_faults_can_be_laid_from_many_threads_at_once(proxy: Proxy) -> None:
    def meddle() -> None:
        for _ in range(50):
            proxy.stall()
            proxy.delay(0.001)
            proxy.cut()
            proxy.delay(0)
            proxy.flow()

    threads = [threading.Thread(target=meddle) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    with connect(proxy) as client:
        assert said_back(client, b"well") == b"well"


def test_nothing_is_left_behind(echo: Echo) -> None:
    before = set(threading.enumerate())
    with Proxy("127.0.0.1", echo.port) as proxy:
        idle, stalled = connect(proxy), connect(proxy)
        assert said_back(idle, b"x") == b"x"
        proxy.stall()
        stalled.sendall(b"waits")
        eventually(lambda: proxy.counts.waiting_bytes == 5)
        proxy.refuse()
        assert {thread.name for thread in threading.enumerate()} >= {f"proxy {proxy.port}"}
    proxy.close()
    for client in (idle, stalled):
        assert is_reset(client)
        client.close()
    assert not [thread for thread in set(threading.enumerate()) - before if thread.name.startswith("proxy")]
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind((proxy.host, proxy.port))
    gc.collect()
    with pytest.raises(BadSettings, match="not open"):
        proxy.cut()


def test_a_cut_that_never_comes_is_refused(proxy: Proxy) -> None:
    for wrong in ({}, {"request_bytes": -1}):
        with pytest.raises(BadSettings, match="0 means before the next one"):
            proxy.cut_after(**wrong)
