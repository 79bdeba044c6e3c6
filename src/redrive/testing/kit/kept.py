"""Counts that a store keeps are right whatever is done, and whenever whoever does it is killed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from redrive.model.amendment import Amendment
from redrive.model.gather import gathered, listed
from redrive.model.hours import hour_of, start_of
from redrive.model.lease import Claim, Claimed
from redrive.model.query import EVERYTHING, TALLIED, Field, GroupOrder, Is, tally_key
from redrive.model.settlement import Completed, Failed, Outcome, Redriven, Released, Settlement
from redrive.model.status import Act
from redrive.ports.letters import LetterStore
from redrive.testing.kill.children import killed_after, say
from redrive.testing.kit.clerk import Clerk, Kit, Opener, Run, needs, running
from redrive.testing.kit.samples import START, attempt, failure, letter
from redrive.testing.kit.strategies import effort

_SOURCES = ("orders", "bills", "mails")
_ACTS = (Act.ARCHIVE, Act.DISCARD, Act.RESTORE, Act.REQUEUE)

Deed = tuple[int, int, int]
"""What is done, and two numbers that say to what and how."""


def _outcome(number: int) -> Outcome:
    again = Failed(attempt=attempt(f"retry {number}"), failure=failure(f"E{number % 3}", "again"))
    return (Completed(), again, Redriven(), Released())[number % 4]


class _Clerk:
    """Does deeds to a store."""

    def __init__(self, store: LetterStore, run: Run) -> None:
        self._store = store
        self._run = run
        self._held: list[Claimed] = []

    def do(self, deed: Deed) -> None:
        what, a, b = deed
        store, run, now = self._store, self._run, START + timedelta(hours=a % 50)
        match what % 7:
            case 0 | 1:
                letters = [
                    letter(
                        str((a + number) % 60),
                        failed=f"{a}/{b}",
                        source=_SOURCES[b % 3],
                        namespace="other" if a % 5 == 0 else "default",
                        at=START + timedelta(hours=(a + number) % 9),
                        failure=failure(f"E{b % 4}", fingerprint=f"group {(b + number) % 40}"),
                    )
                    for number in range(1 + b % 30)
                ]
                run(store.put(letters, now=now))
            case 2:
                claim = Claim(owner="one", lease=timedelta(hours=1), limit=1 + b % 20, what=EVERYTHING)
                self._held += run(store.claim(claim, now=now))
            case 3:
                some, self._held = self._held[: b % 20], self._held[b % 20 :]
                run(store.settle([Settlement.of(one.lease, _outcome(a)) for one in some], now=now))
            case 4:
                page = run(store.find(limit=1 + b % 10, now=now))
                acts = [Amendment(id=one.id, act=_ACTS[a % 4], reason="so") for one in page.letters]
                run(store.amend(acts, now=now))
            case 5:
                run(store.purge(Is(Field.SOURCE, _SOURCES[a % 3]), limit=1 + b % 30, now=now))
            case _:
                run(store.tidy(b % 40))


def _live(opener: Opener, place: Path, deeds: Sequence[Deed], pipe: Connection) -> None:
    """Do deeds over and over, and tell of each that is done."""
    store = opener(place)
    with running(store) as run:
        clerk = _Clerk(store, run)
        while True:
            for deed in deeds:
                clerk.do(deed)
                say(pipe, "done")


class Kept(Kit):
    """Tier 4 for counts: mixed operations and kills, then a recount."""

    def test_counts_are_those_of_the_letters_after_any_operations_and_kills(
        self, opener: Opener, place: Path, run: Run, share: float
    ) -> None:
        probe = opener(place)
        needs(probe, "counters")
        needs(probe, "durable")
        run(probe.close())
        numbers = st.integers(0, 1000)
        deeds = st.lists(st.tuples(numbers, numbers, numbers), min_size=5, max_size=30)

        @effort(max(1, round(6 * share)), chaos=300)
        @given(deeds, st.integers(1, 60))
        def any_deeds(deeds: list[Deed], last: int) -> None:
            killed_after(last, str, _live, opener, place, deeds)
            store = Clerk(opener(place), run)
            _counts_are_right(store)
            store.close()

        any_deeds()


def _counts_are_right(store: Clerk) -> None:
    assert store.recount() == []
    letters = store.all(limit=500)
    assert store.count() == len(letters)
    for by in TALLIED:
        assert store.tally(by) == dict(Counter(map(tally_key(by), letters))), by
    hour = hour_of(store.now)
    for order in GroupOrder:
        assert tuple(store.all_groups(order=order, limit=3)) == listed(gathered(letters, hour), order, 999, None, hour).groups, (
            order
        )
    hours = Counter(start_of(hour_of(one.dead_lettered_at)) for one in letters)
    assert store.hourly(START, START + timedelta(hours=9)) == hours
