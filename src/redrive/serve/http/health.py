"""Health and metrics: is it alive, can it work, and how does it stand?"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime

from redrive.engine import metrics
from redrive.engine.dead_letters import DeadLetters
from redrive.engine.prometheus import PrometheusMeter
from redrive.model.errors import QueueRefused, RedriveError
from redrive.model.query import Field
from redrive.queues import Queues
from redrive.serve.http.surface import Reply, Request, Surface
from redrive.version import __version__

HEALTH = "application/health+json"
_PATIENCE_SECONDS = 2.0


def add_health(surface: Surface, dlq: DeadLetters, meter: PrometheusMeter, queues: Queues | None = None) -> None:
    """Serve /health, /health/live, /health/ready and /metrics."""

    seen: set[str] = set()

    async def health(request: Request) -> Reply:
        """As clients of queues expect it."""
        status, text = 200, "pass"
        if queues is not None:
            try:
                await asyncio.wait_for(queues.check(), _PATIENCE_SECONDS)
            except (TimeoutError, RedriveError):
                status, text = 503, "fail"
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        checks = {"queues:storage": [{"componentType": "datastore", "status": text, "time": now}]}
        return Reply.of({"status": text, "version": __version__, "checks": checks}, status=status, content_type=HEALTH)

    async def live(request: Request) -> Reply:
        return Reply.of({"status": "pass"}, content_type=HEALTH)

    async def ready(request: Request) -> Reply:
        try:
            await asyncio.wait_for(dlq.letters.check(), _PATIENCE_SECONDS)
        except TimeoutError:
            reason = f"the store did not answer within {_PATIENCE_SECONDS:.0f} s"
        except RedriveError as error:
            reason = str(error)
        else:
            return Reply.of({"status": "pass"}, content_type=HEALTH)
        return Reply.of({"status": "fail", "output": reason}, status=503, content_type=HEALTH)

    async def scrape(request: Request) -> Reply:
        metrics.set_letters(meter, await dlq.letters.tally(Field.STATUS))
        metrics.set_backlog(meter, await dlq.letters.tidy(0))
        if queues is not None:
            await _measure(queues, meter, seen)
        text, content_type = meter.render(request.accept)
        return Reply(content_type=content_type, body=text)

    surface.add({"/health": health, "/health/live": live, "/health/ready": ready, "/metrics": scrape})


async def _measure(queues: Queues, meter: PrometheusMeter, seen: set[str]) -> None:
    """Fill the gauges of queues; those that are gone since the last time have nothing."""
    names = {queue.name for queue in await queues.queues()}
    for name in seen - names:
        metrics.set_queue(meter, name, [])
    for name in names:
        # It may be deleted while we look.
        with suppress(QueueRefused):
            metrics.set_queue(meter, name, (await queues.stats(name)).partitions)
    seen |= names
