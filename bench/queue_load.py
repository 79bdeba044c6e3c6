"""A load on a server of queues, from a process of its own: whole cycles of produce, lease and complete on some connections.

Usage: python -m bench.queue_load HOST:PORT CONNECTIONS BATCH SECONDS
Prints items a second as JSON, in whole cycles and by verb. Each connection does one request after another; what a lease gave is completed.
"""

from __future__ import annotations

import asyncio
import sys
import time

import msgspec
import uvloop

QUEUE = "load"
PAYLOAD = "eHh4" * 33 + "eA=="
"""100 bytes, as JSON has them."""


class _Id(msgspec.Struct, gc=False):
    id: str


class _Leased(msgspec.Struct, gc=False):
    items: list[_Id]
    partition: int = 0


_decode = msgspec.json.Decoder(_Leased).decode


def _post(path: str, body: str) -> bytes:
    head = f"POST /v1/{path} HTTP/1.1\r\nHost: load\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return (head + body).encode()


class Worker(asyncio.Protocol):
    """One connection: asks, hears, asks the next."""

    def __init__(self, number: int, batch: int, until: float, done: asyncio.Event) -> None:
        self._produce = _post(
            "queue.produce",
            f'{{"queue_name":"{QUEUE}","request_timeout":"1m","items":[{",".join([f"""{{"bytes":"{PAYLOAD}"}}"""] * batch)}]}}',
        )
        lease = f'{{"queue_name":"{QUEUE}","batch_size":{batch},"client_id":"c{number}","request_timeout":"1m"}}'
        self._lease = _post("queue.lease", lease)
        self._until = until
        self._done = done
        self._heard = b""
        self._step = 0
        self.completed = 0
        self._leased = 0
        self.took = [0.0, 0.0, 0.0]
        self._asked_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._ask(self._produce)

    def _ask(self, request: bytes) -> None:
        self._asked_at = time.perf_counter()
        self._transport.write(request)  # type: ignore[attr-defined]  # uvloop's is a transport in all but its bases

    def data_received(self, data: bytes) -> None:
        self._heard = self._heard + data if self._heard else data
        end = self._heard.find(b"\r\n\r\n")
        if end < 0:
            return
        start = self._heard.index(b"Content-Length: ") + 16
        size = int(self._heard[start : self._heard.index(b"\r", start)])
        if len(self._heard) < end + 4 + size:
            return
        assert self._heard.startswith(b"HTTP/1.1 200"), self._heard[:500]
        body, self._heard = self._heard[end + 4 :], b""
        now = time.perf_counter()
        self.took[self._step] += now - self._asked_at
        self._step = (self._step + 1) % 3
        if self._step == 1:
            self._ask(self._lease)
        elif self._step == 2:
            leased = _decode(body)
            self._leased = len(leased.items)
            ids = '","'.join([one.id for one in leased.items])
            self._ask(
                _post(
                    "queue.complete",
                    f'{{"queue_name":"{QUEUE}","partition":{leased.partition},"request_timeout":"1m","ids":["{ids}"]}}',
                )
            )
        else:
            self.completed += self._leased
            if now < self._until:
                self._ask(self._produce)
            else:
                self._done.set()


async def _run(host: str, port: int, connections: int, batch: int, seconds: float) -> dict[str, float]:
    loop = asyncio.get_running_loop()
    begin = time.perf_counter()
    until = begin + seconds
    workers, events = [], []
    for number in range(connections):
        done = asyncio.Event()
        _, worker = await loop.create_connection(lambda n=number, d=done: Worker(n, batch, until, d), host, port)  # type: ignore[misc]
        workers.append(worker)
        events.append(done)
    for event in events:
        await event.wait()
    took = time.perf_counter() - begin
    count = sum(worker.completed for worker in workers)
    verbs = [sum(worker.took[step] for worker in workers) for step in range(3)]
    rates = {name: count * connections / spent for name, spent in zip(("produce", "lease", "complete"), verbs, strict=True)}
    return {"batch": batch, "connections": connections, "cycle": count / took, **rates}


def main() -> None:
    address, connections, batch, seconds = sys.argv[1:5]
    host, _, port = address.partition(":")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        told = runner.run(_run(host, int(port), int(connections), int(batch), float(seconds)))
    print(msgspec.json.encode(told).decode())


if __name__ == "__main__":
    main()
