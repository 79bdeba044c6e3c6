"""`ErrorRecoveryManager`: what kind of error it is, and how that is retried."""

from __future__ import annotations

from collections.abc import Sequence

from redrive.model.category import DefaultRetry
from redrive.model.classify import Evidence, Rule, classify
from redrive.model.evidence import read
from redrive.workflows.names import ErrorCategory


class ErrorRecoveryManager:
    """Classifies errors by their types first, then by their words; rules of your own come before both."""

    def __init__(self, rules: Sequence[Rule] = ()) -> None:
        self._rules = tuple(rules)

    async def classify_error(self, error: BaseException | str) -> ErrorCategory:
        """The category of an error, or of what is left of it: its text."""
        evidence = read(error) if isinstance(error, BaseException) else Evidence(names=(), message=error)
        return classify(evidence, self._rules).category

    async def default_retry(self, error: BaseException | str) -> DefaultRetry:
        """The retry policy of the error's category, and how often it is followed."""
        return (await self.classify_error(error)).default_retry
