"""Kill -9 at every step of a copy: the source has everything, and the same copy again completes and verifies."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest
from msgspec.structs import replace

from redrive.backends.files.bodies import FileBodies
from redrive.engine.copy import Copied, copy
from redrive.engine.whole import Side
from redrive.model.letter import BodyRef, Letter
from redrive.model.query import Order
from redrive.testing import Faulty, Moment, killing, letter
from redrive.testing.kill.children import children
from redrive.testing.kit.samples import is_chaos
from redrive.wiring import store

LETTERS = 10
LIMIT = 12
"""Bytes; what is larger lies in a file."""
OVERWRITTEN = (3, 8)
TIMES = {"get": 5, "put": 5, "keep": 5, "amend": 2}
"""How often each verb is called at least."""
POINTS = [
    (verb, moment, nth)
    for verb, times in TIMES.items()
    for moment in Moment
    for nth in (range(1, times + 1) if is_chaos() else [times])
]
PATIENCE_SECONDS = 60


def side(place: Path) -> Side:
    opened = store(f"sqlite:{place}.db")
    assert opened.bodies_folder is not None
    return Side(letters=opened.letters, bodies=FileBodies(opened.bodies_folder), body_limit=LIMIT)


class MortalBodies(FileBodies):
    """Bodies whose nth keeping ends the process, before or after it."""

    def __init__(self, folder: Path, moment: Moment, nth: int) -> None:
        super().__init__(folder)
        self._moment = moment
        self._left = nth

    async def keep(self, name: str, body: bytes) -> BodyRef:
        self._left -= 1
        if not self._left and self._moment is Moment.BEFORE:
            await killing()()
        ref = await super().keep(name, body)
        if not self._left:
            await killing()()
        return ref


def copy_and_die(place: Path, verb: str, moment: Moment, nth: int) -> None:
    asyncio.run(_copy_and_die(place, verb, moment, nth))


async def _copy_and_die(place: Path, verb: str, moment: Moment, nth: int) -> None:
    target = side(place / "new")
    if verb == "keep":
        mortal = replace(target, bodies=MortalBodies(Path(f"{place}/new.db.bodies"), moment, nth))
    else:
        faulty = Faulty(target.letters)
        faulty.lay(verb, moment, _pass_by, times=nth - 1)
        faulty.lay(verb, moment, killing())
        mortal = replace(target, letters=faulty)
    await copy(side(place / "old"), mortal, batch=2, overwrite=True)


async def _pass_by() -> None:
    return None


async def fill(place: Path) -> None:
    """Letters with small and with large bodies in the old house; two others of theirs in the new one already."""
    old, new = side(place / "old"), side(place / "new")
    inside = Side(letters=store("memory:").letters)
    await inside.letters.put([letter(str(number), body=b"x" * (20 if number % 2 else 5)) for number in range(LETTERS)])
    assert (await copy(inside, old)).is_verified
    other = Side(letters=store("memory:").letters)
    await other.letters.put([letter(str(number), body=b"changed" * number) for number in OVERWRITTEN])
    assert (await copy(other, new)).is_verified
    await old.letters.close()
    await new.letters.close()


async def again(place: Path) -> tuple[Copied, list[Letter]]:
    old, new = side(place / "old"), side(place / "new")
    try:
        before = (await old.letters.find(order=Order.OLDEST)).letters
        there = await new.letters.get([letter(str(number)).id for number in OVERWRITTEN])
        assert None not in there, "what is to be replaced is there at every instant"
        report = await copy(old, new, overwrite=True)
        assert (await new.letters.count()) == len(before) == LETTERS
        return report, [one for one in (await new.letters.get([one.id for one in before])) if one is not None]
    finally:
        await old.letters.close()
        await new.letters.close()


@pytest.mark.parametrize(("verb", "moment", "nth"), POINTS)
def test_a_copy_that_was_killed_is_completed_by_the_next(tmp_path: Path, verb: str, moment: Moment, nth: int) -> None:
    asyncio.run(fill(tmp_path))
    child = children().Process(target=copy_and_die, args=(tmp_path, verb, moment, nth))
    child.start()
    child.join(PATIENCE_SECONDS)
    assert child.exitcode == -signal.SIGKILL
    child.close()
    report, letters = asyncio.run(again(tmp_path))
    assert report.is_verified
    assert report.seen == len(letters) == LETTERS
    kept = {path.name for path in (tmp_path / "new.db.bodies").iterdir()}
    assert {one.body_ref.name for one in letters if one.body_ref} <= kept
