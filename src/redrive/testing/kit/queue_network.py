"""The kit for queues across a network: cuts, silences and outages. Subclass it, say how your store is reached, and run pytest."""

from __future__ import annotations

from redrive.testing.kit.queue_cuts import QueueCuts
from redrive.testing.kit.queue_hearing import QueueRehearing
from redrive.testing.kit.queue_outages import QueueOutages
from redrive.testing.kit.queue_silences import QueueSilences


class QueueOutageContract(QueueOutages):
    """What queues on a cluster owe their callers when the node that has them fails: there is no one line for a proxy."""


class QueueNetworkContract(QueueCuts, QueueSilences, QueueRehearing, QueueOutages):
    """What every `QueueStore` across a network owes its callers when that network, or the engine, fails.

    ```python
    def open_queues(at: At) -> QueueStore:
        return MyQueues(at.host, at.port, prefix=at.name, timeout=at.timeout)

    class TestMyQueueNetwork(QueueNetworkContract):
        @pytest.fixture(scope="class")
        @classmethod
        def remote(cls) -> Iterator[QueueRemote]:
            with Server(my_engine) as server:
                yield QueueRemote(engine=server, open=open_queues)
    ```

    The engine is the tests' own: they kill it, and start it again.
    """
