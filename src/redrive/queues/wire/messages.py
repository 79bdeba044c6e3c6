"""The messages of the queues' interface, each field with its protobuf number.

JSON is read and written straight from these classes; what protobuf is, `redrive.queues.wire.proto` makes of them. Messages whose
names begin with `More` have fields of our own beside those of the original interface, and belong to endpoints of our own.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta, Struct, field

Whole = Annotated[int, "int32", Meta(ge=-(2**31), lt=2**31)]
Stamp = Annotated[str, "timestamp", Meta(pattern=r"^(?a:\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d))\Z")]
"""An instant as RFC 3339 has it; empty: none."""
Real = Annotated[float, "double"]


class Message(Struct, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """A message; all its fields may be left out."""

    numbers: ClassVar[dict[str, int]] = {}
    """Fields by name → protobuf number. Those that are not here are numbered on from 1, in order."""


class ProduceItem(Message):
    # Scalars first and the instant last, so that protobuf's fields are taken over in one go.
    numbers = {"encoding": 1, "kind": 2, "reference": 3, "bytes_": 5, "utf8": 6, "enqueue_at": 4}

    encoding: str = ""
    kind: str = ""
    reference: str = ""
    bytes_: bytes = field(default=b"", name="bytes")
    utf8: str = ""
    enqueue_at: Stamp = ""


class Header(Message):
    numbers = {"name": 1, "value": 2}

    name: str = ""
    value: bytes = b""


class MoreProduceItem(ProduceItem):
    numbers = ProduceItem.numbers | {"key": 100, "priority": 101, "headers": 102}

    key: str = ""
    priority: Whole = 0
    headers: list[Header] = []


class Produce(Message):
    numbers = {"queue_name": 1, "request_timeout": 2, "items": 3}

    queue_name: str = ""
    request_timeout: str = ""
    items: list[ProduceItem] = []


class MoreProduce(Message):
    numbers = Produce.numbers

    queue_name: str = ""
    request_timeout: str = ""
    items: list[MoreProduceItem] = []


class Lease(Message):
    numbers = {"queue_name": 1, "batch_size": 2, "client_id": 3, "request_timeout": 4}

    queue_name: str = ""
    batch_size: Whole = 0
    client_id: str = ""
    request_timeout: str = ""


class MoreLease(Lease):
    numbers = Lease.numbers | {"lease_timeout": 100}

    lease_timeout: str = ""


class Fault(Message):
    """What went wrong, as a consumer tells it."""

    numbers = {"type": 1, "message": 2, "traceback": 3}

    type: str = ""
    message: str = ""
    traceback: str = ""


class Death(Message):
    """Where an item of a dead queue died, and of what."""

    numbers = {"queue_name": 1, "partition": 2, "attempts": 3, "why": 4, "created_at": 5, "died_at": 6, "failure": 7, "source": 8}

    queue_name: str = ""
    partition: Whole = 0
    attempts: Whole = 0
    why: str = ""
    created_at: Stamp = ""
    died_at: Stamp = ""
    failure: Fault | None = None
    source: str = ""


class LeaseItem(Message):
    numbers = {"encoding": 1, "kind": 2, "reference": 3, "id": 4, "attempts": 5, "lease_deadline": 6, "bytes_": 7}

    encoding: str = ""
    kind: str = ""
    reference: str = ""
    id: str = ""
    attempts: Whole = 0
    lease_deadline: Stamp = ""
    bytes_: bytes = field(default=b"", name="bytes")


class MoreLeaseItem(LeaseItem):
    numbers = LeaseItem.numbers | {
        "key": 100, "priority": 101, "headers": 102, "message_id": 103, "source_id": 104, "death": 105, "created_at": 106,
    }  # fmt: skip

    key: str = ""
    priority: Whole = 0
    headers: list[Header] = []
    message_id: str = ""
    source_id: str = ""
    death: Death | None = None
    created_at: Stamp = ""


class Leased(Message):
    numbers = {"queue_name": 1, "partition": 2, "items": 3}

    queue_name: str = ""
    partition: Whole = 0
    items: list[LeaseItem] = []


class MoreLeased(Message):
    numbers = Leased.numbers

    queue_name: str = ""
    partition: Whole = 0
    items: list[MoreLeaseItem] = []


class Complete(Message):
    numbers = {"queue_name": 1, "partition": 2, "request_timeout": 3, "ids": 4}

    queue_name: str = ""
    partition: Whole = 0
    request_timeout: str = ""
    ids: list[str] = []


class RetryItem(Message):
    numbers = {"id": 1, "dead": 3, "retry_at": 2}

    id: str = ""
    dead: bool = False
    retry_at: Stamp = ""


class MoreRetryItem(RetryItem):
    numbers = RetryItem.numbers | {"failure": 100}

    failure: Fault | None = None


class Retry(Message):
    numbers = {"queue_name": 1, "partition": 2, "items": 3}

    queue_name: str = ""
    partition: Whole = 0
    items: list[RetryItem] = []


class MoreRetry(Message):
    numbers = Retry.numbers

    queue_name: str = ""
    partition: Whole = 0
    items: list[MoreRetryItem] = []


class Extend(Message):
    numbers = {"queue_name": 1, "partition": 2, "ids": 3, "lease_timeout": 4}

    queue_name: str = ""
    partition: Whole = 0
    ids: list[str] = []
    lease_timeout: str = ""


class Extended(Message):
    numbers = {"lease_deadline": 1}

    lease_deadline: Stamp = ""


class Named(Message):
    """A request about one queue."""

    numbers = {"queue_name": 1}

    queue_name: str = ""


class Delete(Message):
    numbers = {"queue_name": 1, "force": 2}

    queue_name: str = ""
    force: bool = False


class Clear(Message):
    numbers = {"queue_name": 1, "scheduled": 3, "queue": 4, "destructive": 5}

    queue_name: str = ""
    scheduled: bool = False
    queue: bool = False
    destructive: bool = False


class Cleared(Message):
    numbers = {"count": 1}

    count: Whole = 0


class Partition(Message):
    numbers = {
        "partition": 1, "total": 2, "total_leased": 3, "failures": 4, "average_age": 5, "average_leased_age": 6, "scheduled": 7,
    }  # fmt: skip

    partition: Whole = 0
    total: Whole = 0
    total_leased: Whole = 0
    failures: Whole = 0
    average_age: str = ""
    average_leased_age: str = ""
    scheduled: Whole = 0


class MorePartition(Partition):
    numbers = Partition.numbers | {"ready": 100, "behind": 101, "dying": 102}

    ready: Whole = 0
    behind: Whole = 0
    dying: Whole = 0


class LogicalQueue(Message):
    numbers = {"produce_waiting": 6, "lease_waiting": 7, "complete_waiting": 8, "in_flight": 10, "partitions": 11}

    produce_waiting: Whole = 0
    lease_waiting: Whole = 0
    complete_waiting: Whole = 0
    in_flight: Whole = 0
    partitions: list[Partition] = []


class MoreLogicalQueue(LogicalQueue):
    partitions: list[MorePartition] = []  # type: ignore[assignment]  # it only says more


class Stats(Message):
    # The one field whose JSON name is not as protobuf has it.
    numbers = {"queue_name": 1, "logical_queues": 2}

    queue_name: str = ""
    logical_queues: list[LogicalQueue] = field(default_factory=list, name="logicalQueues")


class MoreStats(Message):
    numbers = Stats.numbers

    queue_name: str = ""
    logical_queues: list[MoreLogicalQueue] = field(default_factory=list, name="logicalQueues")


class PartitionInfo(Message):
    numbers = {"partition": 1}

    partition: Whole = 0


class QueueInfo(Message):
    numbers = {
        "queue_name": 1, "created_at": 2, "updated_at": 3, "dead_queue": 4, "reference": 5, "lease_timeout": 6,
        "expire_timeout": 7, "max_attempts": 8, "requested_partitions": 9, "partitions": 10, "namespace": 11,
    }  # fmt: skip

    queue_name: str = ""
    created_at: Stamp = ""
    updated_at: Stamp = ""
    dead_queue: str = ""
    reference: str = ""
    lease_timeout: str = ""
    expire_timeout: str = ""
    max_attempts: Whole = 0
    requested_partitions: Whole = 0
    partitions: list[PartitionInfo] = []
    namespace: str = ""


class MoreQueueInfo(QueueInfo):
    numbers = QueueInfo.numbers | {"ordered": 100, "dedupe_window": 101, "rate": 102, "reset": 103, "storage": 104}

    ordered: bool = False
    dedupe_window: str = ""
    rate: Real = 0.0
    reset: list[str] = []
    """In an update: fields that are set back to nothing, which left out would mean that they stay."""
    storage: list[str] = []
    """The store of each partition."""


class ListQueues(Message):
    numbers = {"pivot": 2, "limit": 3}

    pivot: str = ""
    limit: Whole = 0


class QueueList(Message):
    numbers = {"items": 1}

    items: list[QueueInfo] = []


class MoreQueueList(Message):
    numbers = QueueList.numbers

    items: list[MoreQueueInfo] = []


class ListItems(Message):
    numbers = {"queue_name": 1, "partition": 2, "pivot": 3, "limit": 4}

    queue_name: str = ""
    partition: Whole = 0
    pivot: str = ""
    limit: Whole = 0


class StoredItem(Message):
    numbers = {
        "id": 1, "source_id": 2, "is_leased": 3, "lease_deadline": 4, "expire_deadline": 5, "dead_deadline": 6, "created_at": 7,
        "updated_at": 8, "enqueue_at": 9, "attempts": 10, "max_attempts": 11, "reference": 12, "encoding": 13, "kind": 14,
        "payload": 15,
    }  # fmt: skip

    id: str = ""
    source_id: str = ""
    is_leased: bool = False
    lease_deadline: Stamp = ""
    expire_deadline: Stamp = ""
    dead_deadline: Stamp = ""
    created_at: Stamp = ""
    updated_at: Stamp = ""
    enqueue_at: Stamp = ""
    attempts: Whole = 0
    max_attempts: Whole = 0
    reference: str = ""
    encoding: str = ""
    kind: str = ""
    payload: bytes = b""


class MoreStoredItem(StoredItem):
    numbers = StoredItem.numbers | {
        "key": 100, "priority": 101, "headers": 102, "message_id": 103, "place": 104, "why": 105, "death": 106,
        "failure": 107,
    }  # fmt: skip

    key: str = ""
    priority: Whole = 0
    headers: list[Header] = []
    message_id: str = ""
    place: str = ""
    why: str = ""
    death: Death | None = None
    failure: Fault | None = None
    """What the last consumer that gave it back told."""


class ItemList(Message):
    numbers = {"items": 1}

    items: list[StoredItem] = []


class MoreItemList(Message):
    numbers = ItemList.numbers

    items: list[MoreStoredItem] = []


class Import(Message):
    numbers = {"queue_name": 1, "partition": 2, "items": 3}

    queue_name: str = ""
    partition: Whole = 0
    items: list[StoredItem] = []


class MoreImport(Message):
    numbers = Import.numbers

    queue_name: str = ""
    partition: Whole = 0
    items: list[MoreStoredItem] = []


class Imported(Message):
    numbers = {"items": 2}

    items: list[StoredItem] = []


class DeleteItems(Message):
    numbers = {"queue_name": 1, "partition": 2, "ids": 3}

    queue_name: str = ""
    partition: Whole = 0
    ids: list[str] = []


class Reply(Message):
    """The answer of verbs that have nothing to tell, and of all that are refused."""

    numbers = {"code": 1, "code_text": 2, "message": 3, "details": 4}

    code: Whole = 0
    code_text: str = ""
    message: str = ""
    details: dict[str, str] = {}
