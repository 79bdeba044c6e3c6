"""One operation over a million letters: `python -m bench.operation [--letters 1000000]`.

A tenth more letters than that are held on durable SQLite. The oldest are claimed and settled bare, a thousand at a time, which is what
an operation cannot do without; all the others are chosen and redriven to a function, the ledger written. The memory of the process is
looked at all the while.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import click

import redrive
from bench.claim import LEASE
from bench.harness import Effort, Watch, folder
from bench.samples import letters
from redrive import EVERYTHING, Tempo
from redrive.model.lease import Claim
from redrive.model.letter import Letter
from redrive.model.operation import Entry, Operation
from redrive.model.settlement import Completed, Settled, Settlement

BATCH = 1000
_PAGE_BYTES = resource.getpagesize()


def _pieces(number: int) -> Iterator[list[Letter]]:
    for start in range(0, number, BATCH):
        yield letters(min(BATCH, number - start), first=start)


def _megabytes() -> float:
    """What the process holds in memory now."""
    return int(Path(f"/proc/{os.getpid()}/statm").read_text().split()[1]) * _PAGE_BYTES / 1e6


async def _bare(dlq: redrive.DeadLetters, number: int) -> float:
    done = 0
    with Watch() as watch:
        for piece in _pieces(number):
            claim = Claim(owner="bare", lease=LEASE, limit=BATCH, what=tuple(letter.id for letter in piece))
            claimed = await dlq.letters.claim(claim)
            answers = await dlq.letters.settle([Settlement.ending(one, Completed()) for one in claimed])
            done += answers.count(Settled.DONE)
    assert done == number, (done, number)
    return watch.rate(done)


async def _measured(path: Path, number: int) -> dict[str, float]:
    bare = number // 10
    memory: list[tuple[float, float]] = []

    def remember(operation: Operation) -> None:
        share = operation.sent / operation.total
        if not memory or share >= memory[-1][0] + 0.01:
            memory.append((share, _megabytes()))

    async with redrive.open(f"sqlite:{path}") as dlq:
        for piece in _pieces(bare + number):
            await dlq.letters.put(piece)
        limit = await _bare(dlq, bare)
        with Watch() as choosing:
            plan = await dlq.operations.plan(_plain, query=EVERYTHING, tempo=Tempo(batch=BATCH))
        assert plan.total == number, plan.total
        with Watch() as running:
            report = await dlq.operations.run(plan.operation.id, to=_plain, progress=remember)
        assert report.entries == {Entry.CONFIRMED: number}, report
        assert await dlq.desk.tally(plan.operation.id) == {Entry.CONFIRMED: number}
    early = max(held for share, held in memory if share <= 0.1)
    return {
        "letters": number,
        "chosen a second": choosing.rate(number),
        "redriven a second": running.rate(number),
        "both together a second": number / (number / choosing.rate(number) + number / running.rate(number)),
        "bare claim + settle a second": limit,
        "per cent of that": 100 * running.rate(number) / limit,
        "megabytes at a tenth": early,
        "megabytes at most": max(held for _, held in memory),
    }


def _plain(order: object) -> None:
    pass


@click.command(help=__doc__)
@click.option("--letters", "number", default=1_000_000, show_default=True, help="How many letters are redriven.")
def main(number: int) -> None:
    effort = Effort(rounds=1)
    with folder(effort) as place:
        found = asyncio.run(_measured(place / "redrive.db", number))
    click.echo(json.dumps({name: round(value, 1) for name, value in found.items()}, indent=2))


if __name__ == "__main__":
    main()
