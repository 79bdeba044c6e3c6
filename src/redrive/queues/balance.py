"""Which of a queue's stores is asked first."""

from __future__ import annotations

from redrive.model.errors import StoreError
from redrive.queues.line import Line, Part


async def by_load(line: Line, *, fewest_first: bool) -> list[Part]:
    """The parts of a queue, those with the emptiest (or the fullest) partition first, and those that fail last.

    Within a part its store chooses the partition itself, in the same transaction; between stores a moment passes.
    """
    ranked: list[tuple[int, int, int]] = []
    for number, part in enumerate(line.parts):
        failures = max((line.failures.get(partition, 0) for partition in part.shard.partitions), default=0)
        try:
            loads = [stats.ready for stats in await part.store.stats(part.shard)]
        except StoreError:
            line.failed(part)
            ranked.append((failures + 1, 0, number))
            continue
        if failures:
            line.succeeded(part)
        ranked.append((0, min(loads) if fewest_first else -max(loads), number))
    return [line.parts[number] for _, _, number in sorted(ranked)]
