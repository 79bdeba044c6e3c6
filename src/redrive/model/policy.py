"""Judgement: what a policy decides about a message that failed."""

from __future__ import annotations

from datetime import timedelta

from msgspec import Struct

from redrive.model.backoff import Backoff, Immediate
from redrive.model.errors import BadSettings


class Retry(Struct, frozen=True, tag="retry"):
    """Try again after this long."""

    after: timedelta


class Bury(Struct, frozen=True, tag="bury"):
    """Give up and hold the letter."""


class Discard(Struct, frozen=True, tag="discard"):
    """Let go on purpose, and say why."""

    reason: str


Verdict = Retry | Bury | Discard


class Policy(Struct, frozen=True, kw_only=True):
    """How often to try, and how long to wait between tries."""

    max_attempts: int = 3
    """Attempts in all, the first included."""
    backoff: Backoff = Immediate()

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise BadSettings(f"max_attempts must be at least 1, got {self.max_attempts}; 1 means: no retry")

    def judge(self, error: BaseException, attempts: int, *, roll: float = 0.5) -> Verdict:
        """What to do after `attempts` tries have failed, the latest with this error."""
        if attempts >= self.max_attempts:
            return Bury()
        delay = self.backoff.delay(attempts - 1, roll=roll)
        return Bury() if delay is None else Retry(delay)
