"""The kit for stores across a network: cuts, silences and outages. Subclass it, say how your store is reached, and run pytest."""

from __future__ import annotations

from redrive.testing.kit.cuts import Cuts
from redrive.testing.kit.outages import Outages
from redrive.testing.kit.silences import Silences


class OutageContract(Outages):
    """What a store on a cluster owes its callers when a node of it fails: there is no one line that a proxy could stand on."""


class NetworkContract(Cuts, Silences, Outages):
    """What every `LetterStore` across a network owes its callers when that network, or the engine, fails.

    ```python
    def open_letters(at: At) -> LetterStore:
        return MyLetters(at.host, at.port, prefix=at.name, timeout=at.timeout)

    class TestMyNetwork(NetworkContract):
        @pytest.fixture(scope="class")
        @classmethod
        def remote(cls) -> Iterator[Remote]:
            with Server(my_engine) as server:
                yield Remote(engine=server, open=open_letters)
    ```

    The engine is the tests' own: they kill it, and start it again.
    """
