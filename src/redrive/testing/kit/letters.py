"""The kit for `LetterStore`, all four tiers: subclass it, say how your store is opened, and run pytest."""

from __future__ import annotations

from redrive.testing.kit.claiming import Claiming
from redrive.testing.kit.counting import Counting
from redrive.testing.kit.finding import Finding
from redrive.testing.kit.holding import Holding
from redrive.testing.kit.kept import Kept
from redrive.testing.kit.kills import Kills
from redrive.testing.kit.machine import Sequences
from redrive.testing.kit.mending import Mending
from redrive.testing.kit.oddities import Oddities
from redrive.testing.kit.owners import Owners
from redrive.testing.kit.processes import Processes
from redrive.testing.kit.races import Races
from redrive.testing.kit.searching import Searching
from redrive.testing.kit.settling import Settling
from redrive.testing.kit.waiting import Waiting


class LetterStoreContract(
    Holding,
    Finding,
    Counting,
    Searching,
    Claiming,
    Settling,
    Waiting,
    Mending,
    Oddities,
    Sequences,
    Owners,
    Races,
    Processes,
    Kills,
    Kept,
):
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
