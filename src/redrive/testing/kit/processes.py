"""Several processes on one store: they open it, settle its letters and close it in the same instant."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from uuid import UUID

import pytest

from redrive.model.errors import RedriveError
from redrive.model.status import Status
from redrive.ports.letters import LetterStore
from redrive.testing.kill.children import answers_of, begin_together, children, heard, say
from redrive.testing.kit.clerk import Clerk, Kit, Opener, Run, needs, running
from redrive.testing.kit.crowd import LETTERS, PATIENCE_SECONDS, THREADS, Register, in_threads, letter_ids, settle_all
from redrive.testing.kit.samples import START, is_chaos, letter

_PROCESSES = 3


def _settle_alone(opener: Opener, place: Path, owner: str, pipe: Connection) -> None:
    """What each process does: wait for the sign, settle what it gets, and tell what it completed.

    The letter that all of them put is quarantined, so that none of them claims it.
    """
    store = opener(place)
    register = Register()

    async def work() -> None:
        begin_together(pipe)
        held = await store.put([letter("contested", failed=owner, status=Status.QUARANTINED)], now=START)
        await settle_all(store, owner, register)
        await store.close()
        say(pipe, (held[0].value, [id.bytes for id in register.completed.elements()]))

    asyncio.run(work())


def _close_amid_writes(opener: Opener, place: Path, rounds: int, pipe: Connection) -> None:
    """Write from several threads while another closes the store; tell what was confirmed, and what else went wrong."""
    confirmed: list[bytes] = []
    for round in range(rounds):
        store = opener(place)
        with running(store) as run:
            run(store.check())
        try:
            in_threads(store, THREADS, partial(_write_or_close, store, round, confirmed))
        except BaseException as error:
            say(pipe, (f"{type(error).__name__}: {error}", confirmed))
            raise
    say(pipe, ("", confirmed))


def _write_or_close(store: LetterStore, round: int, confirmed: list[bytes], number: int, run: Run) -> None:
    if number == 0:
        run(store.close())
        return
    for item in range(1000):
        one = letter(f"{round}/{number}/{item}")
        try:
            run(store.put([one], now=START))
        except RedriveError:
            return
        confirmed.append(one.id.bytes)


class Processes(Kit):
    """Tier 3: what tasks and threads may do, other processes may too."""

    def test_processes_settle_every_letter_exactly_once(self, store: Clerk, opener: Opener, place: Path) -> None:
        needs(store, "shared")
        store.put(*(letter(str(number), due=START, priority=number % 3) for number in range(LETTERS)))
        completed: Counter[UUID] = Counter()
        held: Counter[str] = Counter()
        for how, ids in _in_processes(opener, place):
            held[how] += 1
            completed.update(ids)
        assert held == {"new": 1, "attempt": _PROCESSES - 1}
        assert set(completed) == set(letter_ids())
        assert set(completed.values()) == {1}
        assert store.one(letter("contested").id).attempts == _PROCESSES

    def test_processes_may_open_a_new_store_at_the_same_instant(self, opener: Opener, tmp_path: Path) -> None:
        fresh = tmp_path / "fresh"
        fresh.mkdir()
        probe = opener(fresh)
        needs(probe, "shared")
        answers = _in_processes(opener, fresh)
        assert Counter(how for how, _ in answers) == {"new": 1, "attempt": _PROCESSES - 1}

    def test_closing_amid_writes_loses_nothing_that_was_confirmed(self, store: Clerk, opener: Opener, place: Path) -> None:
        needs(store, "shared")
        # In a process of its own: a caller that is left waiting for ever can be ended there.
        context = children()
        ours, theirs = context.Pipe(duplex=False)
        rounds = 200 if is_chaos() else 15
        child = context.Process(target=_close_amid_writes, args=(opener, place, rounds, theirs), daemon=True)
        child.start()
        theirs.close()
        try:
            error, confirmed = heard(ours, tuple[str, list[bytes]])
        except EOFError:
            child.join(PATIENCE_SECONDS)
            pytest.fail(f"the process died (exit code {child.exitcode})")
        finally:
            child.kill()
            child.join(PATIENCE_SECONDS)
            child.close()
            ours.close()
        assert not error
        assert None not in store.get(*(UUID(bytes=raw) for raw in confirmed))


def _in_processes(opener: Opener, place: Path) -> list[tuple[str, list[UUID]]]:
    """What each of several processes answers that begin together on the same data."""
    each = [(opener, place, f"process {number}") for number in range(_PROCESSES)]
    answers = answers_of(tuple[str, list[bytes]], _settle_alone, each)
    return [(how, [UUID(bytes=raw) for raw in ids]) for how, ids in answers]
