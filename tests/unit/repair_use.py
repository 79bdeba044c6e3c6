"""Letters to repair, and how a repair is planned and carried out."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Any

from redrive import EVERYTHING, Field, Is, Letter, Redaction
from redrive.backends.files.bodies import FileBodies
from redrive.backends.memory import MemoryDesk
from redrive.engine.alter import Mending, by_patch
from redrive.engine.dead_letters import DeadLetters, Limits
from redrive.engine.foresee import Repaired
from redrive.engine.repair import Repair
from redrive.model.patch import Patch
from redrive.ports import LetterStore
from redrive.testing import START, letter

HOUR = timedelta(hours=1)
JSON = "application/json"
EUROS = by_patch(Patch.read([{"op": "replace", "path": "/currency", "value": "EUR"}]))
APPEND = by_patch(Patch.read([{"op": "add", "path": "/notes/-", "value": "mended"}]))


def house(store: LetterStore, folder: Path | None = None, redaction: Redaction | None = None) -> DeadLetters:
    bodies = FileBodies(folder) if folder else None
    return DeadLetters(store, MemoryDesk(), bodies=bodies, limits=Limits(body=200), redaction=redaction)


def repairs(dlq: DeadLetters) -> Repair:
    return dlq.repairs


async def repaired(dlq: DeadLetters, mending: Mending, **which: Any) -> Repaired:
    repair = repairs(dlq)
    return await repair.carry_out(await repair.plan(mending, **(which or {"query": EVERYTHING})), by="ann")


async def undone(dlq: DeadLetters, **which: Any) -> Repaired:
    return await repairs(dlq).undo(by="ann", **(which or {"query": EVERYTHING}))


def tell(story: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(120):
            await story

    asyncio.run(bounded())


def order(name: str, body: bytes = b'{"currency": "ATS", "notes": []}', number: int = 0, **changes: Any) -> Letter:
    return letter(name, at=START + number * HOUR, body=body, content_type=JSON, **changes)


def orders(count: int) -> list[Letter]:
    return [order(str(number), number=number) for number in range(count)]


async def found(dlq: DeadLetters, name: str) -> Letter:
    (one,) = [one async for one in dlq.find(Is(Field.SOURCE_ID, name))]
    return one


def reasons(became: Repaired) -> dict[str, int]:
    return {one.reason: one.number for one in became.refusals}
