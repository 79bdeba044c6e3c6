"""The kit for `LetterStore`, all four tiers: subclass it, say how your store is opened, and run pytest."""

from __future__ import annotations

from redrive.testing.claiming import Claiming
from redrive.testing.concurrency import Crowds
from redrive.testing.finding import Finding
from redrive.testing.holding import Holding
from redrive.testing.kills import Kills
from redrive.testing.machine import Sequences
from redrive.testing.mending import Mending
from redrive.testing.oddities import Oddities


class LetterStoreContract(Holding, Finding, Claiming, Mending, Oddities, Sequences, Crowds, Kills):
    """What every `LetterStore` owes its callers.

    ```python
    def open_letters(place: Path) -> LetterStore:
        return MyLetters(place / "letters")

    class TestMyLetters(LetterStoreContract):
        @pytest.fixture
        def opener(self) -> Opener:
            return open_letters
    ```

    A capability that the store claims is tested; tests of the others are skipped and say so.
    """
