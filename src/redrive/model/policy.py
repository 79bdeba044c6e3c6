"""Judgement: what a policy decides about a message that failed, and by which of its rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Any

from msgspec import Struct
from msgspec.structs import force_setattr

from redrive.model.backoff import Backoff, Immediate
from redrive.model.category import Category
from redrive.model.classify import Classified, Evidence, Rule, classify
from redrive.model.errors import BadSettings
from redrive.model.evidence import names_of, read
from redrive.model.hint import hint
from redrive.model.query import last_name

_CATEGORY = "category:"


class Retry(Struct, frozen=True, tag="retry"):
    """Try again after this long."""

    after: timedelta


class Bury(Struct, frozen=True, tag="bury"):
    """Give up and hold the letter: in the store at this URL, or in the guard's own."""

    to: str | None = None


class Discard(Struct, frozen=True, tag="discard"):
    """Let go on purpose, and say why."""

    reason: str


Verdict = Retry | Bury | Discard


class Case(Struct, frozen=True, kw_only=True):
    """A message that failed, as a policy sees it."""

    error: BaseException | Evidence
    """What it failed with; or what is known of that, when the error itself is gone."""
    attempts: int
    """How often it was tried, this time included."""
    age: timedelta | None = None
    """Since it was first received; None when nobody knows."""
    message: Any = None
    """The message, where it is at hand."""
    category: Category | None = None
    """What the error was taken for when it was seen, if that is known."""

    @property
    def names(self) -> tuple[str, ...]:
        """The qualified names of the error's type and its bases, nearest first."""
        return self.error.names if isinstance(self.error, Evidence) else names_of(type(self.error))

    def classified(self, rules: Sequence[Rule]) -> Classified:
        """What kind of failure it is, and why."""
        evidence = self.error if isinstance(self.error, Evidence) else read(self.error)
        if self.category is not None and not any(rule.matches(evidence) for rule in rules):
            return Classified(self.category, "taken for that when it was captured")
        return classify(evidence, rules)


class Route(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where letters with these errors go instead of to the guard's own store."""

    errors: tuple[str, ...]
    to: str

    def __post_init__(self) -> None:
        force_setattr(self, "errors", _named(self.errors, "a route's errors"))


class Explained(Struct, frozen=True, kw_only=True):
    """A verdict, and how it came about."""

    verdict: Verdict
    rule: str
    """The name of the rule that decided: `include_errors`, `max_attempts` …"""
    why: str
    category: Category
    category_why: str


class Policy(Struct, frozen=True, kw_only=True):
    """How often to try and how long to wait, what is hopeless, what is never given up on, and where letters go.

    Errors are named by their type (`TimeoutError`, `httpx.HTTPStatusError`; subclasses match too; a class is as good as its
    name) or by their category (`category:validation`). A policy is a value: it can be printed, compared, and written to a
    file (`redrive.model.policy_file`), but for `custom`.
    """

    max_attempts: int = 3
    """Attempts in all, the first included."""
    backoff: Backoff = Immediate()
    max_age: timedelta | None = None
    """Given up on when it was first received longer ago than this."""
    include_errors: tuple[str, ...] = ()
    """Given up on at once."""
    exclude_errors: tuple[str, ...] = ()
    """Never given up on, whatever the other rules say."""
    routes: tuple[Route, ...] = ()
    """The first that fits says where a letter goes."""
    rules: tuple[Rule, ...] = ()
    """What decides about an error's category before anything else does."""
    custom: Callable[[Case], Verdict | None] | None = None
    """Asked first; None leaves it to the rules. A subclass may override `decide` instead."""

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise BadSettings(f"max_attempts must be at least 1, got {self.max_attempts}; 1 means: no retry")
        if self.max_age is not None and self.max_age <= timedelta():
            raise BadSettings(f"max_age must be longer than nothing, got {self.max_age}")
        for name in ("include_errors", "exclude_errors"):
            force_setattr(self, name, _named(getattr(self, name), name))

    def judge(
        self, error: BaseException, attempts: int, *, roll: float = 0.5, age: timedelta | None = None, message: Any = None
    ) -> Verdict:
        """What to do after `attempts` tries have failed, the latest with this error; `roll` in [0, 1) decides the jitter."""
        verdict, _, _ = self._judged(Case(error=error, attempts=attempts, age=age, message=message), roll)
        return verdict

    def explain(
        self, message: Any, error: BaseException | Evidence, *, attempts: int = 1, age: timedelta | None = None
    ) -> Explained:
        """The verdict on this failure, with the rule that decided and the error's category."""
        return self.explained(Case(error=error, attempts=attempts, age=age, message=message))

    def explained(self, case: Case, *, roll: float = 0.5) -> Explained:
        """The verdict on a case, with the rule that decided."""
        verdict, rule, why = self._judged(case, roll)
        classified = case.classified(self.rules)
        return Explained(verdict=verdict, rule=rule, why=why, category=classified.category, category_why=classified.why)

    def decide(self, case: Case) -> Verdict | None:
        """Your own word on a case; None leaves it to the rules."""
        return self.custom(case) if self.custom is not None else None

    def _judged(self, case: Case, roll: float) -> tuple[Verdict, str, str]:
        verdict = self.decide(case)
        if verdict is not None:
            return verdict, "custom", f"{self._decider()} said so"
        if (named := self._first(self.exclude_errors, case)) is not None:
            return Retry(self._delay(case, roll) or timedelta()), "exclude_errors", f"{named} is never given up on"
        if (named := self._first(self.include_errors, case)) is not None:
            return self._buried(case), "include_errors", f"{named} is given up on at once"
        if case.attempts >= self.max_attempts:
            return self._buried(case), "max_attempts", f"tried {case.attempts} of {self.max_attempts} times"
        if self.max_age is not None and case.age is not None and case.age > self.max_age:
            return self._buried(case), "max_age", f"received {case.age} ago, more than {self.max_age}"
        if (delay := self._delay(case, roll)) is None:
            return self._buried(case), "backoff", "its backoff does not try again"
        return Retry(delay), "backoff", f"tried {case.attempts} of {self.max_attempts} times"

    def _delay(self, case: Case, roll: float) -> timedelta | None:
        return self.backoff.delay(case.attempts - 1, roll=roll)

    def _buried(self, case: Case) -> Bury:
        for route in self.routes:
            if self._first(route.errors, case) is not None:
                return Bury(route.to)
        return Bury()

    def _first(self, named: tuple[str, ...], case: Case) -> str | None:
        """The first of the names that the error answers to."""
        category: str | None = None
        for name in named:
            if name.startswith(_CATEGORY):
                # Read off the error once, however many categories are named.
                category = category or f"{_CATEGORY}{case.classified(self.rules).category}"
                if name == category:
                    return name
            elif name in _answering(case.names):
                return name
        return None

    def _decider(self) -> str:
        function = self.custom if self.custom is not None else type(self).decide
        return str(getattr(function, "__qualname__", function))


@lru_cache(maxsize=1024)
def _answering(names: tuple[str, ...]) -> frozenset[str]:
    """Every name that an error answers to whose type and bases have these."""
    return frozenset((*names, *map(last_name, names)))


def _named(errors: Any, what: str) -> tuple[str, ...]:
    """Errors by their names: classes are named, categories checked."""
    if isinstance(errors, str) or not hasattr(errors, "__iter__"):
        raise BadSettings(f"{what} must be a list of error types or names, got {errors!r}")
    return tuple(dict.fromkeys(_name(one, what) for one in errors))


def _name(error: Any, what: str) -> str:
    if isinstance(error, type) and issubclass(error, BaseException):
        return names_of(error)[0]
    if not isinstance(error, str) or not error.strip():
        raise BadSettings(f"{what} must hold error types or their names, got {error!r}")
    if error.startswith(_CATEGORY):
        category = error.removeprefix(_CATEGORY)
        if category not in set(Category):
            raise BadSettings(f"{what}: there is no category '{category}'; {hint(category, Category)}")
    return error.strip()
