"""The whole way on one SQLite file: receive, fail, hold, acknowledge; then claim, send and settle.

Every second message fails twice: its letter goes back to the source first, fails there again and is reopened. Every
fourth has a body too large for the store, kept in a file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from msgspec import msgpack

from redrive.backends.files.bodies import FileBodies
from redrive.engine.dead_letters import DeadLetters, Limits
from redrive.engine.observed import ObservedLetters
from redrive.model.letter import Letter
from redrive.model.message import Message
from redrive.model.policy import Policy
from redrive.model.query import Order
from redrive.model.status import OPEN, Status
from redrive.model.tempo import Tempo
from redrive.ports.inline import drive
from redrive.ports.transport import Transport
from redrive.testing.kill.files import Sink, Spool
from redrive.testing.kill.harness import Life
from redrive.testing.kill.points import Visit, at, watched, watched_desk, watched_transport
from redrive.testing.kit.samples import START
from redrive.wiring import store

SOURCE = "orders"
BODY_LIMIT = 1000

_LEASE = timedelta(minutes=1)
_HOUR = timedelta(hours=1)
_PAUSE_SECONDS = 0.01
_FAILS = "fails"

Consume = Callable[[DeadLetters, Transport], Coroutine[Any, Any, None]]
"""Receives all that waits; each message fails, is held and acknowledged."""

Drive = Callable[[DeadLetters, Transport, Sequence[UUID]], Coroutine[Any, Any, None]]
"""Sends letters to a target and settles them."""


def source_of(place: Path) -> Spool:
    return Spool(place / "source")


def sink_of(place: Path) -> Sink:
    return Sink(place / "sink")


def bodies_of(place: Path) -> FileBodies:
    return FileBodies(place / "bodies")


def letters_of(place: Path) -> Path:
    return place / "letters.db"


def fill(place: Path, count: int) -> None:
    """Put so many more messages into the place's source, and note them for the law."""
    known = messages_of(place)
    new = [_message(number) for number in range(len(known), len(known) + count)]
    (place / "source").mkdir(parents=True, exist_ok=True)
    (place / "messages").write_bytes(msgpack.encode([*known, *new]))
    drive(source_of(place).send(new))


def messages_of(place: Path) -> list[Message]:
    """All messages that were ever put into the place's source by `fill`."""
    noted = place / "messages"
    return msgpack.decode(noted.read_bytes(), type=list[Message]) if noted.exists() else []


def fails(carrier: Message | Letter) -> int:
    """How often this message fails before it is taken."""
    return int(dict(carrier.headers)[_FAILS])


async def one_by_one(dlq: DeadLetters, source: Transport) -> None:
    """Hold and acknowledge each message by itself."""
    guarded = dlq.guard(source=SOURCE, policy=Policy(max_attempts=2))(failing)
    while parcels := await source.receive(limit=3):
        for parcel in parcels:
            await guarded(parcel.message)
            await source.settle([parcel.handle], done=True)


async def in_batches(dlq: DeadLetters, source: Transport) -> None:
    """Hold and acknowledge several messages at once."""
    guard = dlq.guard(source=SOURCE, policy=Policy(max_attempts=1))
    while parcels := await source.receive(limit=3):
        await guard.each([parcel.message for parcel in parcels], failing)
        await source.settle([parcel.handle for parcel in parcels], done=True)


async def redriven(dlq: DeadLetters, target: Transport, ids: Sequence[UUID]) -> None:
    """Send letters in batches of three."""
    report = await dlq.redrive(target, ids=ids, tempo=Tempo(batch=3))
    if report.stopped:
        raise RuntimeError(f"the operation was stopped: {report.stopped}")


async def failing(message: Message) -> None:
    """A handler that never works, and says so in other words each time."""
    raise TimeoutError(f"no answer for {message.id}: {uuid4()}")


async def whole_way(
    life: Life,
    visit: Visit,
    *,
    consume: Consume = one_by_one,
    redrive: Drive = redriven,
    lease: timedelta | None = None,
    patience: timedelta = timedelta(seconds=30),
) -> None:
    """Go on until the source is empty and every letter was sent; `TimeoutError` when that takes too long.

    Without a lease each life is an hour after the one before, so that the leases of the dead are over; with one, the
    store's own clock runs and they are waited for.
    """
    place = life.place
    source = watched_transport(source_of(place), visit)
    sink = watched_transport(sink_of(place), visit)
    opened = store(f"sqlite:{letters_of(place)}")
    letters = opened.letters if lease is not None else at(opened.letters, START + life.number * _HOUR)
    dlq = DeadLetters(
        ObservedLetters(watched(letters, visit)),
        watched_desk(opened.desk, visit),
        bodies=watched(bodies_of(place), visit),
        limits=Limits(body=BODY_LIMIT, lease=lease or _LEASE),
    )
    async with dlq, asyncio.timeout(patience.total_seconds()):
        while True:
            await consume(dlq, source)
            waiting = [letter async for letter in dlq.find(order=Order.OLDEST) if letter.status in (*OPEN, Status.RETRYING)]
            if not waiting:
                return
            if all(letter.status is Status.RETRYING for letter in waiting):
                await asyncio.sleep(_PAUSE_SECONDS)
            back = [letter.id for letter in waiting if letter.generation < fails(letter)]
            out = [letter.id for letter in waiting if letter.generation >= fails(letter)]
            for target, ids in ((source, back), (sink, out)):
                if ids:
                    await redrive(dlq, target, ids)


def _message(number: int) -> Message:
    body = f"body of {number} \0\xff".encode("latin-1") * (200 if number % 4 == 1 else 1)
    return Message(body=body, id=f"m-{number:04}", headers=((_FAILS, b"%d" % (1 + number % 2)),))
