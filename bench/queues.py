"""Leased queues: `python -m bench.queues [--seconds 3] [--only go|load|inside|backlog]`.

Whole cycles of produce, lease and complete with 100-byte payloads, in items a second. With the released Go client on one connection,
ours and the original's server are measured in turns. With a load of our own, from another process, on one connection and on eight. In
process. And how long a lease takes at a backlog of ten and of a million.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from urllib.request import Request, urlopen

import click

from bench.harness import Effort, folder
from bench.queue_load import QUEUE
from dev.engines.queue_client import PEER
from redrive import queues as room
from redrive.model.item import Fresh

BATCHES = (1, 10, 100, 1000)
_PORT = "127.0.0.1:2319"
_HOUR = timedelta(hours=1)
_BADGER = """
address: {port}
logging: {{handler: text, level: error}}
queue-storage: {{driver: badger, config: {{storage-dir: {place}/queues}}}}
partition-storage: [{{name: one, driver: badger, affinity: 1, config: {{storage-dir: {place}/partitions}}}}]
"""


@contextmanager
def _running(command: Sequence[str], place: Path) -> Iterator[None]:
    process = subprocess.Popen(command, cwd=place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _until_up()
        yield
    finally:
        process.terminate()
        process.wait(20)


def _until_up() -> None:
    for _ in range(200):
        try:
            with urlopen(f"http://{_PORT}/health", timeout=1):
                return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError(f"nobody answers on {_PORT}")


@contextmanager
def _ours(place: Path, store: str) -> Iterator[None]:
    place.mkdir()
    with _running([sys.executable, "-m", "redrive", "up", "--store", store, "--listen", _PORT, "--no-housekeeping"], place):
        yield


@contextmanager
def _theirs(place: Path, *, is_durable: bool) -> Iterator[None]:
    place.mkdir()
    command = [str(PEER.folder / "server"), "server"]
    if is_durable:
        (place / "peer.yaml").write_text(_BADGER.format(port=_PORT, place=place))
        command += ["--config", str(place / "peer.yaml")]
    with _running(command, place):
        yield


def _lines(command: Sequence[str]) -> list[dict[str, float]]:
    told = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True).stdout
    return [json.loads(line) for line in told.splitlines()]


def _go(place: Path, seconds: float, rounds: int) -> None:
    """The Go client on one connection, on ours and on theirs in turns."""
    PEER.install()
    cycles = [str(PEER.folder / "cycles"), f"http://{_PORT}", str(seconds), "1", "100", "1000"]
    for name, store, is_durable in (("memory", "memory:", False), ("durable", "sqlite:queues.db", True)):
        found: dict[str, dict[float, list[float]]] = {"ours": {}, "theirs": {}}
        for turn in range(rounds):
            with _ours(place / f"ours-{name}-{turn}", store):
                ours = _lines(cycles)
            with _theirs(place / f"theirs-{name}-{turn}", is_durable=is_durable):
                theirs = _lines(cycles)
            for who, lines in (("ours", ours), ("theirs", theirs)):
                for line in lines:
                    found[who].setdefault(line["batch"], []).append(line["cycle"])
        for batch, figures in found["ours"].items():
            ratio = statistics.median(mine / other for mine, other in zip(figures, found["theirs"][batch], strict=True))
            ours_rate, their_rate = statistics.median(figures), statistics.median(found["theirs"][batch])
            click.echo(f"| {name} | {batch:.0f} | {ours_rate:,.0f} | {their_rate:,.0f} | {ratio:.2f}× |")


def _create() -> None:
    body = json.dumps({"queue_name": QUEUE, "lease_timeout": "1m", "expire_timeout": "24h", "requested_partitions": 1}).encode()
    with urlopen(Request(f"http://{_PORT}/v1/queues.create", body, {"Content-Type": "application/json"}), timeout=10):
        pass


def _load(place: Path, seconds: float, rounds: int) -> None:
    """A load of our own, from another process."""
    for name, store in (("memory", "memory:"), ("durable", "sqlite:queues.db")):
        with _ours(place / f"load-{name}", store):
            _create()
            for batch in BATCHES:
                cells = []
                for connections in (1, 8):
                    command = [sys.executable, "-m", "bench.queue_load", _PORT, str(connections), str(batch), str(seconds)]
                    told = [_lines(command)[0] for _ in range(rounds)]
                    best = max(told, key=lambda one: one["cycle"])
                    verbs = " / ".join(f"{best[verb]:,.0f}" for verb in ("produce", "lease", "complete"))
                    cells += [f"{statistics.median(one['cycle'] for one in told):,.0f}", verbs]
                click.echo(f"| {name} | {batch} | {' | '.join(cells)} |")


async def _cycles(url: str, batch: int, callers: int, seconds: float) -> float:
    fresh = [Fresh(b"x" * 100)] * batch
    async with room.open(url) as queues:
        queues.serve_here()
        await queues.create(QUEUE, lease_timeout=_HOUR, expire_timeout=_HOUR)
        until, done = time.perf_counter() + seconds, 0

        async def caller(number: int) -> None:
            nonlocal done
            while time.perf_counter() < until:
                await queues.produce(QUEUE, fresh)
                leased = await queues.lease(QUEUE, batch, client=str(number))
                await queues.complete(QUEUE, leased.partition, [item.id for item in leased.items])
                done += len(leased.items)

        began = time.perf_counter()
        await asyncio.gather(*map(caller, range(callers)))
        return done / (time.perf_counter() - began)


def _inside(place: Path, seconds: float) -> None:
    """In process: what the service and its store take, without HTTP."""
    place.mkdir(exist_ok=True)
    for name in ("memory", "durable"):
        for batch in BATCHES:
            rates = []
            for callers in (1, 8):
                url = "memory:" if name == "memory" else f"sqlite:{place}/inside-{batch}-{callers}.db"
                rates.append(asyncio.run(_cycles(url, batch, callers, seconds)))
            click.echo(f"| {name} | {batch} | {rates[0]:,.0f} | {rates[1]:,.0f} |")


async def _latencies(url: str, backlogs: Sequence[int]) -> list[tuple[int, float]]:
    found, there = [], 0
    fresh = [Fresh(b"x" * 100)] * 1000
    async with room.open(url) as queues:
        await queues.create(QUEUE, lease_timeout=_HOUR, expire_timeout=_HOUR)
        for backlog in backlogs:
            while there < backlog:
                some = fresh[: min(1000, backlog - there)]
                await queues.produce(QUEUE, some)
                there += len(some)
            took = []
            for _ in range(min(200, backlog)):
                began = time.perf_counter()
                leased = await queues.lease(QUEUE, 1, client="one")
                took.append(time.perf_counter() - began)
                await queues.complete(QUEUE, leased.partition, [leased.items[0].id])
            there -= len(took)
            found.append((backlog, statistics.median(took) * 1e6))
    return found


def _backlog(place: Path) -> None:
    """How long a lease of one takes."""
    place.mkdir(exist_ok=True)
    for name, url in (("memory", "memory:"), ("durable", f"sqlite:{place}/backlog.db")):
        for backlog, micros in asyncio.run(_latencies(url, (10, 1_000, 100_000, 1_000_000))):
            click.echo(f"| {name} | {backlog:,} | {micros:,.0f} µs |")


@click.command(help=__doc__)
@click.option("--seconds", default=3.0, show_default=True, help="How long each figure is measured.")
@click.option("--rounds", default=3, show_default=True)
@click.option("--only", type=click.Choice(["go", "load", "inside", "backlog"]))
def main(seconds: float, rounds: int, only: str | None) -> None:
    with folder(Effort(rounds=1)) as place:
        if only in (None, "go"):
            click.echo("\n| store | batch | ours | theirs | ratio |\n|---|---|---|---|---|")
            _go(place, seconds, rounds)
        if only in (None, "load"):
            click.echo("\n| store | batch | one connection | produce / lease / complete | eight | produce / lease / complete |")
            click.echo("|---|---|---|---|---|---|")
            _load(place, seconds, rounds)
        if only in (None, "inside"):
            click.echo("\n| store | batch | one caller | eight |\n|---|---|---|---|")
            _inside(place / "inside", seconds)
        if only in (None, "backlog"):
            click.echo("\n| store | backlog | lease of one |\n|---|---|---|")
            _backlog(place / "backlog")


if __name__ == "__main__":
    main()
