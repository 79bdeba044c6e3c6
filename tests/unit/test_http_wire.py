"""The HTTP server on bare sockets: what clients send, well or badly, in whole or in pieces, and what becomes of it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from redrive.queues import Queues
from redrive.queues.verbs import Limits, item
from redrive.serve.http.queues import PREFIX, QueueSurface
from redrive.serve.http.server import bound, serving
from redrive.serve.http.surface import Reply, Request, Surface
from tests.unit.queue_use import HOUR, MINUTE, SOON, queue_store

HOST = "127.0.0.1"
PATIENCE_SECONDS = 20


class Answer(Struct):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def told(self) -> Any:
        return json.loads(self.body)


class Talking(Struct):
    """One connection, byte by byte."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(self, sent: bytes) -> None:
        self.writer.write(sent)

    async def answer(self, *, is_head: bool = False) -> Answer:
        head = await self.reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode().rstrip().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        body = b"" if is_head else await self.reader.readexactly(int(headers["content-length"]))
        return Answer(int(first.split()[1]), headers, body)

    async def is_cut(self) -> bool:
        """Nothing more comes, and the server has hung up."""
        try:
            return await self.reader.read() == b""
        except ConnectionResetError:
            return True

    async def ask(self, sent: bytes) -> Answer:
        self.send(sent)
        return await self.answer()


class Running(Struct):
    """A server with an echo at `/echo`, something slow at `/slow`, and queues: `orders` and `others`."""

    port: int
    queues: Queues
    stopping: asyncio.Event
    ended: asyncio.Task[None]
    gate: asyncio.Event
    """Opens what is slow."""
    slow: list[Request]
    """Those that were asked for something slow."""
    talks: list[Talking]

    async def talk(self) -> Talking:
        talking = Talking(*await asyncio.open_connection(HOST, self.port))
        self.talks.append(talking)
        return talking

    async def until_leasing(self, count: int, name: str = "orders") -> None:
        await until(lambda: self.leasing(name), count)

    async def leasing(self, name: str) -> int:
        return (await self.queues.stats(name)).leasing


async def until(look: Callable[[], Coroutine[Any, Any, object]], wanted: object) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await look() != wanted:  # noqa: ASYNC110 - nobody tells of it
            await asyncio.sleep(0.005)


@asynccontextmanager
async def server(limits: Limits = Limits()) -> AsyncIterator[Running]:
    gate, slow = asyncio.Event(), list[Request]()

    async def echo(request: Request) -> Reply:
        return Reply(content_type="application/octet-stream", body=request.body)

    async def slowly(request: Request) -> Reply:
        slow.append(request)
        await gate.wait()
        return Reply(body=b"slow" + request.body)

    async def hello(request: Request) -> Reply:
        return Reply(body=b"hello")

    surface = Surface()
    surface.add({"/echo": echo, "/slow": slowly}, method="POST")
    surface.add({"/hello": hello})
    async with Queues({"store": queue_store("memory:")}, limits=limits, owns_stores=True) as queues:
        for name in ("orders", "others"):
            await queues.create(name, lease_timeout=MINUTE, expire_timeout=HOUR)
        branch = QueueSurface(queues)
        surface.mount(PREFIX, branch)
        stopping = asyncio.Event()
        with bound(f"{HOST}:0") as listening:
            ended = asyncio.create_task(serving(surface, listening, stopping, when_down=branch.close))
            running = Running(listening.getsockname()[1], queues, stopping, ended, gate, slow, [])
            try:
                yield running
            finally:
                for talking in running.talks:
                    talking.writer.close()
                gate.set()
                stopping.set()
                await ended


def tried(trial: Callable[[Running], Coroutine[Any, Any, None]], limits: Limits = Limits()) -> None:
    async def run() -> None:
        async with server(limits) as running, asyncio.timeout(PATIENCE_SECONDS):
            await trial(running)

    asyncio.run(run())


def post(path: str, body: bytes = b"", *more: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: here", f"Content-Length: {len(body)}", *more, "", ""]
    return "\r\n".join(lines).encode() + body


def chunked(path: str, *chunks: bytes, trailer: bytes = b"") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    return head + b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n" + trailer + b"\r\n"


def lease(client: str, name: str = "orders", **changes: Any) -> bytes:
    asked = {"queue_name": name, "batch_size": 1, "client_id": client, "request_timeout": "1m", **changes}
    return post("/v1/queue.lease", json.dumps(asked).encode())


def refused(code: int, text: str, message: str) -> dict[str, object]:
    return {"code": code, "code_text": text, "message": message}


CLOSING = refused(453, "Request Failed", "service is shutting down")


def test_a_connection_is_kept() -> None:
    async def trial(running: Running) -> None:
        talking = await running.talk()
        for word in (b"one", b"", b"three"):
            answer = await talking.ask(post("/echo", word))
            assert (answer.status, answer.body) == (200, word)
            assert "connection" not in answer.headers
            assert answer.headers["content-type"] == "application/octet-stream"
            assert answer.headers["date"].endswith(" GMT")
        assert (await talking.ask(post("/nothing"))).status == 404
        assert (await talking.ask(post("/hello"))).headers["allow"] == "GET"

    tried(trial)


@pytest.mark.parametrize("count", [2, 31, 33, 200])
def test_requests_that_come_together_are_answered_in_their_order(count: int) -> None:
    async def trial(running: Running) -> None:
        talking = await running.talk()
        sent = [post("/slow", b"first"), *[post("/echo", b"%d" % number) for number in range(count)], post("/slow", b"last")]
        talking.send(b"".join(sent))
        await until(lambda: asyncio.sleep(0, len(running.slow)), 1)
        running.gate.set()
        bodies = [(await talking.answer()).body for _ in range(count + 2)]
        assert bodies == [b"slowfirst", *[b"%d" % number for number in range(count)], b"slowlast"]

    tried(trial)


def test_more_requests_than_are_taken_on_at_a_time_wait_outside() -> None:
    async def trial(running: Running) -> None:
        talking = await running.talk()
        talking.send(post("/slow", b"first"))
        for number in range(200):
            talking.send(post("/echo", b"%d" % number))
            await asyncio.sleep(0.0005)
        running.gate.set()
        assert (await talking.answer()).body == b"slowfirst"
        assert [(await talking.answer()).body for _ in range(200)] == [b"%d" % number for number in range(200)]

    tried(trial)


def test_who_asks_much_and_listens_late_hears_all() -> None:
    async def trial(running: Running) -> None:
        talking = await running.talk()
        bodies = [bytes([number]) * 200_000 for number in range(100)]
        sending = asyncio.create_task(sent_all(talking, [post("/echo", body) for body in bodies]))
        for body in bodies:
            assert (await talking.answer()).body == body
        await sending

    async def sent_all(talking: Talking, requests: list[bytes]) -> None:
        for request in requests:
            talking.send(request)
            await talking.writer.drain()

    tried(trial)


@pytest.mark.parametrize(
    "request_",
    [
        chunked("/echo", b"hello ", b"world"),
        chunked("/echo", *[bytes([byte]) for byte in b"hello world"]),
        chunked("/echo", b"hello world", trailer=b"Checksum: none\r\n"),
        post("/echo", b"hello world"),
        post("/echo?with=query", b"hello world"),
        b"POST http://here/echo HTTP/1.1\r\nHost: here\r\nContent-Length: 11\r\n\r\nhello world",
    ],
    ids=["two chunks", "many chunks", "trailer", "in one", "query", "whole address"],
)
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_a_request_may_come_in_pieces(request_: bytes, size: int) -> None:
    async def trial(running: Running) -> None:
        talking = await running.talk()
        for start in range(0, len(request_), size):
            talking.send(request_[start : start + size])
            await talking.writer.drain()
            await asyncio.sleep(0)
        assert (await talking.answer()).body == b"hello world"
        assert (await talking.ask(post("/echo", b"again"))).body == b"again"

    tried(trial)


def test_who_asks_whether_to_go_on_is_told_to() -> None:
    async def trial(running: Running) -> None:
        talking = await running.talk()
        talking.send(b"POST /echo HTTP/1.1\r\nHost: here\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
        assert await talking.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert (await talking.ask(b"hello")).body == b"hello"

    tried(trial)


def test_a_head_has_the_length_and_no_body() -> None:
    async def trial(running: Running) -> None:
        talking = await running.talk()
        talking.send(b"HEAD /hello HTTP/1.1\r\nHost: here\r\n\r\n")
        answer = await talking.answer(is_head=True)
        assert (answer.status, answer.headers["content-length"]) == (200, "5")
        talking.send(b"HEAD /v1/queues.list HTTP/1.1\r\nHost: here\r\n\r\n")
        assert (await talking.answer(is_head=True)).status == 400
        assert (await talking.ask(b"GET /hello HTTP/1.1\r\nHost: here\r\n\r\n")).body == b"hello"

    tried(trial)


@pytest.mark.parametrize(
    "request_",
    [b"GET /hello HTTP/1.0\r\n\r\n", b"GET /hello HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n"],
    ids=["HTTP/1.0", "Connection: close"],
)
def test_who_wants_one_answer_is_hung_up_on_after_it(request_: bytes) -> None:
    async def trial(running: Running) -> None:
        talking = await running.talk()
        answer = await talking.ask(request_)
        assert (answer.body, answer.headers["connection"]) == (b"hello", "close")
        assert await talking.is_cut()

    tried(trial)


GARBAGE = {
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "nothing": b"\0" * 100,
    "no path": b"GET\r\n\r\n",
    "no method": b"FETCH /hello HTTP/1.1\r\n\r\n",
    "strange version": b"GET /hello HTTP/9.9\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "no number": b"POST /echo HTTP/1.1\r\nContent-Length: many\r\n\r\n",
    "two lengths": b"POST /echo HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
    "length and chunks": b"POST /echo HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "no chunk": b"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "a tunnel": b"CONNECT /hello HTTP/1.1\r\nHost: here\r\n\r\n",
    "no colon": b"GET /hello HTTP/1.1\r\nHost\r\n\r\n",
}


@pytest.mark.parametrize("is_first", [True, False], ids=["at once", "behind requests"])
@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
def test_noise_gets_one_400_behind_all_answers_and_is_cut(garbage: bytes, is_first: bool) -> None:
    async def trial(running: Running) -> None:
        talking = await running.talk()
        if not is_first:
            talking.send(post("/slow", b"ly") + post("/echo", b"hello"))
        talking.send(garbage)
        if not is_first:
            await until(lambda: asyncio.sleep(0, len(running.slow)), 1)
            running.gate.set()
            assert (await talking.answer()).body == b"slowly"
            assert (await talking.answer()).body == b"hello"
        answer = await talking.answer()
        assert (answer.status, answer.headers["connection"]) == (400, "close")
        assert answer.told["code"] == 400
        assert answer.told["message"].startswith("this is no HTTP request; ")
        assert await talking.is_cut()

    tried(trial)


LONG = b"x" * 70_000


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /hello HTTP/1.1\r\nHost: here\r\nCookie: " + LONG + b"\r\n\r\n",
        b"GET /hello HTTP/1.1\r\n" + b"".join(b"H%d: %b\r\n" % (number, b"x" * 990) for number in range(70)) + b"\r\n",
    ],
    ids=["one header", "many headers"],
)
def test_headers_that_are_too_long_are_refused(request_: bytes) -> None:
    async def trial(running: Running) -> None:
        talking = await running.talk()
        for start in range(0, len(request_), 16_384):
            talking.send(request_[start : start + 16_384])
            await asyncio.sleep(0)
        answer = await talking.answer()
        assert (answer.status, answer.told["message"]) == (400, "this is no HTTP request; its headers are too long")
        assert await talking.is_cut()

    tried(trial)


@pytest.mark.parametrize("begun", [b"GET /hello HTTP/1.1\r\nCookie: ", b"GET /"], ids=["header", "path"])
def test_a_head_without_end_is_refused(begun: bytes) -> None:
    async def trial(running: Running) -> None:
        talking = await running.talk()
        talking.send(begun)
        heard = asyncio.create_task(talking.answer())
        for _ in range(100):
            if not heard.done():
                talking.send(b"x" * 10_000)
                await asyncio.sleep(0.002)
        answer = await heard
        assert (answer.status, answer.told["message"]) == (400, "this is no HTTP request; its headers are too long")

    tried(trial)


def test_headers_that_are_long_are_read() -> None:
    async def trial(running: Running) -> None:
        talking = await running.talk()
        for _ in range(3):
            sent = post("/echo", b"hello", f"Cookie: {'x' * 60_000}")
            for start in range(0, len(sent), 9_000):
                talking.send(sent[start : start + 9_000])
                await asyncio.sleep(0)
            assert (await talking.answer()).body == b"hello"

    tried(trial)


def test_a_head_that_begins_behind_a_large_body_is_no_long_head() -> None:
    async def trial(running: Running) -> None:
        talking = await running.talk()
        body, second = b"x" * 200_000, post("/echo", b"hello")
        talking.send(post("/echo", body) + second[:20])
        assert (await talking.answer()).body == body
        talking.send(second[20:])
        assert (await talking.answer()).body == b"hello"

    tried(trial)


def test_who_would_rather_speak_http2_is_answered_in_http1() -> None:
    async def trial(running: Running) -> None:
        talking = await running.talk()
        upgrade = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__")
        talking.send(post("/echo", b"hello", *upgrade) + post("/echo", b"world"))
        assert [(await talking.answer()).body for _ in range(2)] == [b"hello", b"world"]
        talking.send(b"GET /hello HTTP/1.1\r\nHost: here\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        assert (await talking.answer()).body == b"hello"
        assert (await talking.ask(post("/echo", b"again"))).body == b"again"

    tried(trial)


TOO_LARGE = refused(400, "Bad Request", "request body exceeds 512B limit")


@pytest.mark.parametrize(
    "request_", [post("/v1/queue.stats", b" " * 3_000_000), chunked("/v1/queue.stats", *[b" " * 50_000] * 60)]
)
def test_a_body_that_is_too_large_is_refused_once_and_the_line_goes_on(request_: bytes) -> None:
    async def trial(running: Running) -> None:
        talking = await running.talk()
        talking.send(post("/echo", b"before") + request_ + post("/echo", b"after"))
        assert (await talking.answer()).body == b"before"
        answer = await talking.answer()
        assert (answer.status, answer.told) == (400, TOO_LARGE)
        assert (await talking.answer()).body == b"after"

    tried(trial)


def test_a_body_without_end_is_refused_when_it_is_too_large() -> None:
    async def trial(running: Running) -> None:
        talking = await running.talk()
        talking.send(b"POST /v1/queue.stats HTTP/1.1\r\nHost: here\r\nContent-Length: 99999999999\r\n\r\n" + b" " * 600)
        assert (await talking.answer()).told == TOO_LARGE

    tried(trial)


@pytest.mark.parametrize("how", ["hangs up", "breaks off"])
def test_who_vanishes_while_waiting_gives_up_its_place(how: str) -> None:
    async def trial(running: Running) -> None:
        gone, staying = await running.talk(), await running.talk()
        gone.send(lease("gone"))
        await running.until_leasing(1)
        staying.send(lease("staying"))
        await running.until_leasing(2)
        if how == "hangs up":
            gone.writer.close()
        else:
            gone.writer.transport.abort()
        await running.until_leasing(1)
        await running.queues.produce("orders", [item(b"for who stays")], timeout=SOON)
        answer = await staying.answer()
        assert [one["attempts"] for one in answer.told["items"]] == [1]
        staying.send(lease("gone"))
        await running.until_leasing(1)
        staying.writer.close()
        await running.until_leasing(0)
        assert (await (await running.talk()).ask(lease("gone", request_timeout="20ms"))).status == 454, "its name is free again"

    tried(trial)


def test_a_thousand_wait_and_each_gets_its_item() -> None:
    async def trial(running: Running) -> None:
        talks = [await running.talk() for _ in range(1000)]
        for number, talking in enumerate(talks):
            talking.send(lease(f"client {number}"))
        await running.until_leasing(1000)
        await running.queues.produce("orders", [item(b"%d" % number) for number in range(1000)], timeout=SOON)
        answers = await asyncio.gather(*[talking.answer() for talking in talks])
        ids = {one["id"] for answer in answers for one in answer.told["items"]}
        assert ({answer.status for answer in answers}, len(ids)) == ({200}, 1000)
        stats = await running.queues.stats("orders")
        assert (stats.leasing, stats.partitions[0].leased) == (0, 1000)

    tried(trial)


def test_when_too_many_wait_others_are_told_to_come_again() -> None:
    async def trial(running: Running) -> None:
        overloaded = refused(454, "Retry Request", "queue is overloaded; try again later")
        first, second, third = [await running.talk() for _ in range(3)]
        first.send(lease("first"))
        second.send(lease("second"))
        await running.until_leasing(2)
        assert (await third.ask(lease("third"))).told == overloaded
        assert (await third.ask(lease("third", "others", request_timeout="20ms"))).status == 454, "another queue has room"
        first.writer.close()
        await running.until_leasing(1)
        third.send(lease("third"))
        await running.until_leasing(2)
        await running.queues.produce("orders", [item(b"a"), item(b"b")], timeout=SOON)
        assert [(await talking.answer()).status for talking in (second, third)] == [200, 200]

    tried(trial, Limits(leasing=2))


def test_what_is_under_way_is_finished_when_the_server_stops() -> None:
    async def trial(running: Running) -> None:
        waiting, slow, half, idle = [await running.talk() for _ in range(4)]
        waiting.send(lease("waiting"))
        slow.send(post("/slow", b"ly"))
        sent = post("/echo", b"hello")
        half.send(sent[:-3])
        assert (await idle.ask(post("/echo", b"hello"))).body == b"hello"
        await running.until_leasing(1)
        await until(lambda: asyncio.sleep(0, len(running.slow)), 1)
        running.stopping.set()
        answer = await waiting.answer()
        assert (answer.status, answer.told, answer.headers["connection"]) == (453, CLOSING, "close")
        assert await waiting.is_cut()
        assert await idle.is_cut()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(HOST, running.port)
        assert not running.ended.done()
        half.send(sent[-3:])
        running.gate.set()
        for talking, body in ((half, b"hello"), (slow, b"slowly")):
            answer = await talking.answer()
            assert (answer.status, answer.body, answer.headers["connection"]) == (200, body, "close")
            assert await talking.is_cut()
        await running.ended

    tried(trial)


def test_who_asks_queues_behind_others_while_the_server_stops_is_told_so() -> None:
    async def trial(running: Running) -> None:
        talking = await running.talk()
        talking.send(post("/slow", b"ly") + post("/v1/queues.list", b"{}"))
        await until(lambda: asyncio.sleep(0, len(running.slow)), 1)
        running.stopping.set()
        await until(lambda: asyncio.sleep(0, bool(running.queues._is_closing)), True)
        running.gate.set()
        assert (await talking.answer()).body == b"slowly"
        assert (await talking.answer()).told == CLOSING
        assert await talking.is_cut()

    tried(trial)


def test_redrive_up_sends_waiting_leases_away_and_ends_with_0(tmp_path: Path) -> None:
    running = subprocess.Popen(
        [sys.executable, "-m", "redrive", "up", "--listen", f"{HOST}:0", "--json", "--store", "memory:"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONWARNINGS": "error"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )

    async def trial(port: int) -> Answer:
        talking = Talking(*await asyncio.open_connection(HOST, port))
        created = {"queue_name": "orders", "lease_timeout": "1m", "expire_timeout": "1h", "requested_partitions": 1}
        assert (await talking.ask(post("/v1/queues.create", json.dumps(created).encode()))).told == {"code": 200}
        other = Talking(*await asyncio.open_connection(HOST, port))
        other.send(lease("waiting"))

        async def leasing() -> object:
            (logical,) = (await talking.ask(post("/v1/queue.stats", b'{"queue_name":"orders"}'))).told["logicalQueues"]
            return logical.get("lease_waiting")

        await until(leasing, 1)
        running.send_signal(signal.SIGTERM)
        answer = await other.answer()
        assert await talking.is_cut()
        for one in (talking, other):
            one.writer.close()
        return answer

    try:
        assert running.stdout is not None
        port = int(json.loads(running.stdout.readline())["listening"].rpartition(":")[2])
        answer = asyncio.run(asyncio.wait_for(trial(port), PATIENCE_SECONDS))
        assert (answer.status, answer.told) == (453, CLOSING)
        out, err = running.communicate(timeout=PATIENCE_SECONDS)
        assert (running.returncode, out, err) == (0, "", "")
    finally:
        running.kill()
        running.communicate()
