"""`redrive demo`: a consumer fails in five ways; its letters appear, are shown, retried and driven back."""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import click
from rich.console import Console
from rich.text import Text

from redrive import wiring
from redrive.engine.dead_letters import DeadLetters
from redrive.engine.extract import where
from redrive.model.backoff import exponential
from redrive.model.letter import Letter
from redrive.model.operation import Entry
from redrive.model.policy import Policy
from redrive.model.query import Field, Is
from redrive.model.status import Status
from redrive.serve.cli.options import config_option, loaded, store_option
from redrive.serve.cli.paper import console, letter_story, letters_table, short_id

SOURCE = "demo-orders"
TARGET = f"py:{__name__}:ship"


class World:
    """What goes wrong at first, and is mended later."""

    is_broken = False


def ship(order: dict[str, Any]) -> str:
    """The consumer: ships an order. While the world is broken it fails in five different ways."""
    if World.is_broken:
        match order.get("trouble"):
            case "gateway":
                raise ConnectionRefusedError("payment gateway at pay.internal:443 refused the connection")
            case "timeout":
                raise TimeoutError("carrier did not answer within 30 s")
            case "rights":
                raise PermissionError("bucket 'invoices' denied write access")
    if order.get("trouble") == "field":
        return f"to {order['address']['street']}"
    if order.get("trouble") == "charset":
        return bytes.fromhex(order["note"]).decode()
    return "shipped"


@click.command("demo")
@click.option("--stay", is_flag=True, help="Stay up afterwards, as `redrive up` does.")
@click.option("--listen", metavar="HOST:PORT", help="Where to listen when it stays up.")
@click.option("--fast", is_flag=True, help="Do not pause for people to read.")
@store_option
@config_option
def command(stay: bool, listen: str | None, fast: bool, store: str | None, config: Path | None) -> int:
    """Watch a consumer fail in five ways, and its letters go back. Writes to the store like any consumer."""
    settings = loaded(store, config, listen=listen).settings
    paper = console()
    try:
        asyncio.run(play(wiring.connect(settings), paper, pause=0.0 if fast or not sys.stdout.isatty() else 0.7))
    except KeyboardInterrupt:
        paper.print("Stopped; what was held is still there.")
        return 0
    if stay:
        from redrive.serve.cli.up import stay_up

        paper.print()
        stay_up(settings)
    return 0


async def play(dlq: DeadLetters, paper: Console, *, pause: float) -> None:
    """The demonstration, from the first failure to the letters that went back."""
    run = uuid4().hex[:6]
    orders: list[dict[str, Any]] = [
        {"id": f"{run}-1", "total": 42.5},
        {"id": f"{run}-2", "total": 18.0, "trouble": "gateway"},
        {"id": f"{run}-3", "total": 99.9, "trouble": "field"},
        {"id": f"{run}-4", "total": 7.25, "trouble": "timeout"},
        {"id": f"{run}-5", "total": 64.0},
        {"id": f"{run}-6", "total": 12.0, "trouble": "rights"},
        {"id": f"{run}-7", "total": 31.4, "trouble": "charset", "note": "c3a92046fc72ff"},
    ]
    policy = Policy(max_attempts=3, backoff=exponential(timedelta(milliseconds=20), cap=timedelta(seconds=1), jitter=0.2))
    handle = dlq.guard(source=SOURCE, policy=policy, extract=where(id="id"), tags=["demo"])(ship)
    async with dlq:
        _title(paper, "1. A consumer works through orders. Some fail; each is tried three times, then kept as a letter.")
        World.is_broken = True
        for order in orders:
            done = await asyncio.to_thread(handle, order)
            mark = Text("✓ shipped", "green") if done else Text("✗ dead letter held", "red")
            paper.print(Text.assemble(f"  order {order['id']}  ", mark))
            await asyncio.sleep(pause / 2)
        letters = await _letters(dlq, run)
        _title(paper, "2. Nothing is lost: the letters, as `redrive ls` shows them.")
        paper.print(letters_table(letters, is_narrow=paper.width < 100))
        await asyncio.sleep(pause)
        sick = next(letter for letter in letters if letter.failure.type.endswith("KeyError"))
        _title(paper, f"3. One of them with its whole story: `redrive show {short_id(sick)}`.")
        paper.print(letter_story(sick, await dlq.body(sick)))
        await asyncio.sleep(pause)
        _title(paper, "4. The gateway, the carrier and the rights are mended. All letters are driven back.")
        World.is_broken = False
        report = await dlq.redrive(ship, ids=[letter.id for letter in letters], by="demo")
        for entry, word in ((Entry.CONFIRMED, "worked"), (Entry.FAILED, "failed again and wait for a person")):
            paper.print(f"  {report.entries.get(entry, 0)} {word}")
        await asyncio.sleep(pause)
        _title(paper, "5. Where they stand now.")
        letters = await _letters(dlq, run)
        paper.print(letters_table(letters, is_narrow=paper.width < 100))
        waiting = [letter for letter in letters if letter.status is not Status.COMPLETED]
        paper.print(Text.assemble("  Yours to try:  redrive ls   redrive show ", short_id(waiting[0])))
        paper.print(f"                 redrive replay {short_id(waiting[0])} --to {TARGET}", highlight=False)


async def _letters(dlq: DeadLetters, run: str) -> list[Letter]:
    found = [letter async for letter in dlq.find(Is(Field.SOURCE, SOURCE)) if letter.source_id.startswith(run)]
    return sorted(found, key=lambda letter: letter.source_id)


def _title(paper: Console, text: str) -> None:
    paper.print(Text(f"\n{text}", "bold"))
