"""The kit for `QueueStore`, all four tiers: subclass it, say how your store is opened, and run pytest."""

from __future__ import annotations

from redrive.testing.kit.queue_catalogue import Catalogues
from redrive.testing.kit.queue_dying import Dying
from redrive.testing.kit.queue_histories import Histories
from redrive.testing.kit.queue_kills import QueueKills
from redrive.testing.kit.queue_leasing import Leasing, Retrying
from redrive.testing.kit.queue_looking import Deleting, Hearing, Looking, Removing
from redrive.testing.kit.queue_machine import QueueSequences
from redrive.testing.kit.queue_order import Balance, Keys, Priorities, Rates
from redrive.testing.kit.queue_owners import QueueOwners
from redrive.testing.kit.queue_processes import QueueProcesses
from redrive.testing.kit.queue_putting import Putting
from redrive.testing.kit.queue_sweeping import Dues, Sweeping


class QueueContract(
    Putting,
    Leasing,
    Retrying,
    Sweeping,
    Dues,
    Dying,
    Priorities,
    Keys,
    Balance,
    Rates,
    Looking,
    Deleting,
    Removing,
    Hearing,
    Catalogues,
    QueueSequences,
    QueueOwners,
    Histories,
    QueueProcesses,
    QueueKills,
):
    """What every `QueueStore` owes its callers.

    ```python
    def open_queues(place: Path) -> QueueStore:
        return MyQueues(place / "queues")

    class TestMyQueues(QueueContract):
        @pytest.fixture
        def opener(self) -> QueueOpener:
            return open_queues
    ```

    A capability that the store claims is tested; tests of the others are skipped and say so.
    """
