"""Published conformance kits for the ports, and faults and kills to test with. Needs `pip install 'redrive[testing]'`.

A backend that redrive does not know proves itself by subclassing a kit and saying how it is opened:

```python
from pathlib import Path

import pytest

from redrive.ports import LetterStore
from redrive.testing import LetterStoreContract, Opener


def open_letters(place: Path) -> LetterStore:
    return MyLetters(place / "letters")  # a new folder is an empty store, a known one has what a durable store kept


class TestMyLetters(LetterStoreContract):
    @pytest.fixture
    def opener(self) -> Opener:
        return open_letters
```

- `redrive.testing.kit`: what every backend owes its callers (`LetterStoreContract`, `DeskContract`, `QueueContract`, and
  across a network `NetworkContract` and `QueueNetworkContract`), and letters to try it with.
- `redrive.testing.kill`: kill -9 at every step of a letter's way (`Harness`, `Kill`), and the law that holds all the same.
- `redrive.testing.faults`: a store that fails, waits, cuts its answers or is down when the test says so.
- `redrive.testing.proxy`: a TCP proxy (`Proxy`) before a real engine that cuts, delays, swallows, stalls and refuses.
"""

from redrive.model.errors import MissingExtra

try:
    import hypothesis as _hypothesis  # noqa: F401  # the kits need both, and either may be missing
    import pytest
except ImportError as error:
    raise MissingExtra(f"redrive.testing needs {error.name}; install it with: pip install 'redrive[testing]'") from error

# Asserts in a kit explain themselves only if pytest hears of the modules before they are imported.
pytest.register_assert_rewrite(f"{__name__}.kit")

from redrive.testing.faults import Faulty, Moment, Outage, killing, raising, waiting  # noqa: E402  # after the line above
from redrive.testing.kill.harness import Harness, LawBroken, Life  # noqa: E402
from redrive.testing.kill.points import Kill, Visits  # noqa: E402
from redrive.testing.kit.clerk import Clerk, Opener, Run  # noqa: E402
from redrive.testing.kit.desk import DeskContract, DeskOpener  # noqa: E402
from redrive.testing.kit.letters import LetterStoreContract  # noqa: E402
from redrive.testing.kit.lines import At, Engine, Remote  # noqa: E402
from redrive.testing.kit.machine import LetterMachine  # noqa: E402
from redrive.testing.kit.network import NetworkContract, OutageContract  # noqa: E402
from redrive.testing.kit.queue_clerk import QueueOpener  # noqa: E402
from redrive.testing.kit.queue_lines import QueueRemote  # noqa: E402
from redrive.testing.kit.queue_network import QueueNetworkContract, QueueOutageContract  # noqa: E402
from redrive.testing.kit.queues import QueueContract  # noqa: E402
from redrive.testing.kit.samples import START, attempt, failure, letter  # noqa: E402
from redrive.testing.proxy import Counts, Proxy  # noqa: E402

__all__ = [
    "START",
    "At",
    "Clerk",
    "Counts",
    "DeskContract",
    "DeskOpener",
    "Engine",
    "Faulty",
    "Harness",
    "Kill",
    "LawBroken",
    "LetterMachine",
    "LetterStoreContract",
    "Life",
    "Moment",
    "NetworkContract",
    "Opener",
    "Outage",
    "OutageContract",
    "Proxy",
    "QueueContract",
    "QueueNetworkContract",
    "QueueOpener",
    "QueueOutageContract",
    "QueueRemote",
    "Remote",
    "Run",
    "Visits",
    "attempt",
    "failure",
    "killing",
    "letter",
    "raising",
    "waiting",
]
