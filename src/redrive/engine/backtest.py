"""Back-test: what letters would have met under another policy, by their own history."""

from __future__ import annotations

import builtins
from collections import Counter
from collections.abc import AsyncIterable
from enum import StrEnum
from functools import lru_cache

from msgspec import Struct

from redrive.model.classify import Evidence
from redrive.model.evidence import names_of
from redrive.model.letter import Letter
from redrive.model.policy import Bury, Case, Discard, Policy, Retry
from redrive.model.query import last_name

_GROUPS_KEPT = 10_000


class Fate(StrEnum):
    """What a letter would have met, compared with what it did."""

    SAME = "the same"
    """Given up on after as many tries."""
    SOONER = "sooner"
    """Given up on after fewer."""
    GOING_ON = "going on"
    """It would be tried again: nobody knows whether that would have helped."""
    DISCARDED = "discarded"
    ELSEWHERE = "elsewhere"
    """Given up on, but held in another store."""


class Met(Struct, frozen=True, kw_only=True):
    """One letter under the policy."""

    fate: Fate
    attempts: int
    """After so many tries, of those that were made."""
    rule: str
    to: str | None = None


class Row(Struct, kw_only=True):
    """One group of letters under the policy."""

    error: str
    message: str
    letters: int = 0
    saved: int = 0
    """Tries that would not have been made."""
    fates: Counter[Fate]
    rules: Counter[str]


class Backtest(Struct, kw_only=True):
    """What all letters would have met."""

    letters: int = 0
    attempts: int = 0
    saved: int = 0
    fates: Counter[Fate]
    rules: Counter[str]
    routes: Counter[str]
    groups: dict[str, Row]
    groups_left_out: int = 0


async def backtest(letters: AsyncIterable[Letter], policy: Policy) -> Backtest:
    """Run letters through a policy, as their history has them. Memory stays flat: groups beyond ten thousand are counted only."""
    report = Backtest(fates=Counter(), rules=Counter(), routes=Counter(), groups={})
    async for letter in letters:
        met = judged(letter, policy)
        tried = max(len(letter.history), 1)
        saved = tried - met.attempts
        report.letters += 1
        report.attempts += tried
        report.saved += saved
        report.fates[met.fate] += 1
        report.rules[met.rule] += 1
        if met.to is not None:
            report.routes[met.to] += 1
        group = letter.failure.fingerprint
        if group not in report.groups and len(report.groups) >= _GROUPS_KEPT:
            report.groups_left_out += 1
            continue
        row = report.groups.setdefault(
            group,
            Row(error=last_name(letter.failure.type), message=letter.failure.message, fates=Counter(), rules=Counter()),
        )
        row.letters += 1
        row.saved += saved
        row.fates[met.fate] += 1
        row.rules[met.rule] += 1
    return report


def judged(letter: Letter, policy: Policy) -> Met:
    """What this letter would have met. Of tries that are no longer in its history, nothing is known."""
    cases = _cases(letter)
    explained = policy.explained(cases[0])
    for number, case in enumerate(cases, 1):
        explained = policy.explained(case)
        match explained.verdict:
            case Bury(to=to):
                fate = Fate.ELSEWHERE if to is not None else Fate.SAME if number == len(cases) else Fate.SOONER
                return Met(fate=fate, attempts=number, rule=explained.rule, to=to)
            case Discard():
                return Met(fate=Fate.DISCARDED, attempts=number, rule=explained.rule)
            case Retry():
                continue
    return Met(fate=Fate.GOING_ON, attempts=len(cases), rule=explained.rule)


def _cases(letter: Letter) -> list[Case]:
    """The letter's failures in turn, the last one as it was described in full."""
    cases = [
        Case(
            error=Evidence(names=names(attempt.error), message=attempt.message),
            attempts=number,
            age=attempt.at - letter.first_received_at,
        )
        for number, attempt in enumerate(letter.history[:-1], 1)
    ]
    failure = letter.failure
    at = letter.history[-1].at if letter.history else letter.dead_lettered_at
    last = Case(
        error=Evidence(names=names(failure.type), message=failure.message),
        attempts=len(cases) + 1,
        age=at - letter.first_received_at,
        category=failure.category,
    )
    return [*cases, last]


@lru_cache(maxsize=1024)
def names(error: str) -> tuple[str, ...]:
    """The name of a type with those of its bases, which only Python's own tell without being imported."""
    kind = getattr(builtins, error.removeprefix("builtins."), None)
    if isinstance(kind, type) and issubclass(kind, BaseException):
        return names_of(kind)
    return (error,)
