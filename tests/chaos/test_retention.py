"""Bulk acts under kill -9, beside captures, and over more letters than memory should hold."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from redrive import EVERYTHING, Field, Is, Letter, Message, Status, blocking
from redrive.engine.bulk import BulkAct
from redrive.engine.dead_letters import DeadLetters
from redrive.settings import Settings
from redrive.testing import START, letter
from redrive.testing.fill import letters
from redrive.testing.kill.children import children
from redrive.testing.kit.samples import is_chaos
from redrive.wiring import connect

ROUNDS = 40 if is_chaos() else 3
LETTERS = 600
KILLS = 6
PATIENCE_SECONDS = 60.0
CHOSEN = Is(Field.SOURCE, "orders")


def opened(place: Path) -> DeadLetters:
    return connect(Settings(store=f"sqlite:{place}/redrive.db", body_limit=40))


def fill(place: Path) -> dict[str, Letter]:
    """Letters of two sources, every third with its body in a file; as they are stored."""

    async def story() -> dict[str, Letter]:
        async with opened(place) as dlq:
            await dlq.hold(
                [
                    letter(
                        str(number),
                        source="orders" if number % 2 else "mails",
                        at=START + timedelta(seconds=number),
                        body=f"body of {number} ".encode() * (10 if number % 3 == 0 else 1),
                    )
                    for number in range(LETTERS)
                ]
            )
            return {one.source_id: one async for one in dlq.find()}

    return asyncio.run(story())


def work(place: Path, act: BulkAct) -> None:
    """What is killed again and again: it does the act to its end, in many small steps."""

    async def story() -> None:
        async with opened(place) as dlq:
            # Not so fast that it is over before whoever is to kill it has a turn, on a busy machine.
            await dlq.carry_out(await dlq.plan(act, CHOSEN), batch=3, progress=lambda _: time.sleep(0.01))

    asyncio.run(story())


def killed_until_done(place: Path, act: BulkAct, look: Callable[[], None], dice: random.Random) -> int:
    """Kill some, each at some instant after it has begun to change letters, then let one come to its end; how many were killed?"""
    kills = 0
    for number in range(KILLS + 1):
        child = children().Process(target=work, args=(place, act), daemon=True)
        child.start()
        if number < KILLS:
            _let_begin(place, child.is_alive)
            child.join(dice.uniform(0.0, 0.04))
            child.kill()
        child.join(PATIENCE_SECONDS)
        exit_code = child.exitcode
        child.close()
        assert exit_code in (0, -signal.SIGKILL)
        kills += exit_code != 0
        look()
    return kills


def _let_begin(place: Path, is_alive: Callable[[], bool]) -> None:
    with blocking.DeadLetters(opened(place)) as dlq:
        before = dlq.letters.tally(Field.STATUS)
        while is_alive() and dlq.letters.tally(Field.STATUS) == before:
            time.sleep(0.001)


@pytest.mark.parametrize("seed", range(ROUNDS))
@pytest.mark.parametrize("act", [BulkAct.PURGE, BulkAct.ARCHIVE])
def test_killed_again_and_again_it_does_exactly_what_it_should(tmp_path: Path, act: BulkAct, seed: int) -> None:
    before = fill(tmp_path)
    others = {id: one for id, one in before.items() if one.source == "mails"}
    bodies = {one.body_ref.name for one in others.values() if one.body_ref}
    assert 0 < len(bodies) < len(others)

    def look() -> None:
        """Nobody lives: the others are whole, with their bodies, and what is left of the chosen is as it was."""
        with blocking.DeadLetters(opened(tmp_path)) as dlq:
            found = {one.source_id: one for one in dlq.find()}
            assert {id: one for id, one in found.items() if one.source == "mails"} == others
            for id, one in found.items():
                assert dlq.body(one).startswith(f"body of {id} ".encode())
                assert one == before[id] or (act is BulkAct.ARCHIVE and is_archived(one, before[id]))
            assert dlq.letters.count() == len(found)

    kills = killed_until_done(tmp_path, act, look, random.Random(seed))
    assert kills > 0
    with blocking.DeadLetters(opened(tmp_path)) as dlq:
        left = dlq.letters.tally(Field.STATUS, CHOSEN)
        assert left == ({} if act is BulkAct.PURGE else {"archived": LETTERS // 2})
        assert dlq.letters.recount() == []
        audit = [row.detail for row in dlq.desk.audit(limit=1000)]
    assert any(detail.startswith("done: ") for detail in audit)
    files = {path.name for path in (tmp_path / "redrive.db.bodies").iterdir()}
    if act is BulkAct.PURGE:
        # Whoever was killed between a removal and its files left these behind, no more than a step's.
        assert bodies <= files
        assert len(files - bodies) <= 3 * kills
    else:
        assert files == {one.body_ref.name for one in before.values() if one.body_ref}


def is_archived(one: Letter, before: Letter) -> bool:
    return one == replace(before, status=Status.ARCHIVED, updated_at=one.updated_at)


def test_captures_go_on_while_many_letters_are_removed(tmp_path: Path) -> None:
    many = 20_000 if is_chaos() else 4_000

    async def story() -> tuple[list[float], int]:
        async with connect(Settings(store=f"sqlite:{tmp_path}/redrive.db")) as dlq:
            made = list(letters(many, groups=500))
            for start in range(0, many, 500):
                await dlq.letters.put(made[start : start + 500])
            # Planned before the first capture: what comes later must not be touched, whenever the work begins.
            plan = await dlq.plan(BulkAct.PURGE, EVERYTHING)
            removing = asyncio.create_task(dlq.carry_out(plan))
            took: list[float] = []
            while not removing.done():
                started = time.perf_counter()
                await dlq.capture(Message(body=b"new", id=f"new-{len(took)}"), ValueError("bad"), source="new")
                took.append(time.perf_counter() - started)
                await asyncio.sleep(0.005)
            kept = {one.source_id async for one in dlq.find()}
            assert kept == {f"new-{number}" for number in range(len(took))}
            assert await dlq.count(Is(Field.SOURCE, "new")) == len(took) == await dlq.count()
            return took, (await removing).done

    took, removed = asyncio.run(story())
    assert removed == many
    assert len(took) >= 20, "captures hardly got a turn"
    assert sorted(took)[len(took) // 2] < 0.5
    assert max(took) < 5


MEASURED = """
import asyncio, json, resource, sys
from redrive import EVERYTHING
from redrive.serve.cli.export import command
from redrive.settings import Settings
from redrive.wiring import connect

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

async def warmed():
    async with connect(Settings()) as dlq:
        await dlq.count()
        await dlq.letters.find(limit=10)

async def purged():
    async with connect(Settings()) as dlq:
        return await dlq.purge(EVERYTHING)

asyncio.run(warmed())
start = peak()
assert command.main(["-o", "out.jsonl"], standalone_mode=False) == 0
exported = peak()
removed = asyncio.run(purged())
print(json.dumps({"start": start, "exported": exported - start, "purged": peak() - start, "removed": removed}))
"""


def test_memory_stays_flat_however_many_letters_go_by(tmp_path: Path) -> None:
    many, size = 20_000, 5_000
    body = random.Random(7).randbytes(size // 2).hex().encode()
    with blocking.open(f"sqlite:{tmp_path}/redrive.db") as dlq:
        for start in range(0, many, 500):
            dlq.letters.put([letter(str(one), at=START + timedelta(seconds=one), body=body) for one in range(start, start + 500)])
    done = subprocess.run(
        [sys.executable, "-c", MEASURED], cwd=tmp_path, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr
    grown = json.loads(done.stdout.splitlines()[-1])
    assert grown["removed"] == many
    with (tmp_path / "out.jsonl").open("rb") as lines:
        assert sum(1 for _ in lines) == many
    assert grown["exported"] < 60, grown
    assert grown["purged"] < 60, grown
