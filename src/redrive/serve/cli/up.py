"""`redrive up`: stay up and serve."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path

import click

from redrive import wiring
from redrive.engine.housekeeper import INTERVAL
from redrive.model.retention import RetentionRule
from redrive.serve.cli.options import config_option, json_option, loaded, store_option
from redrive.serve.shape import as_json as to_json
from redrive.settings import Settings, masked

_GC_THRESHOLD = (20_000, 50, 50)


@click.command("up")
@click.option("--listen", metavar="HOST:PORT", help="Where to listen; port 0 takes a free one. [default: 127.0.0.1:2319]")
@click.option("--no-housekeeping", is_flag=True, help="Leave what the store puts off, retention rules and replays to others.")
@json_option
@store_option
@config_option
def command(listen: str | None, no_housekeeping: bool, as_json: bool, store: str | None, config: Path | None) -> None:
    """Stay up: serve queues under /v1/, /health, /health/live, /health/ready and /metrics until Ctrl-C or SIGTERM.

    Behind, it keeps house: indexes texts, sums up counts, gives back space, runs the retention rules of the settings, begins
    replays that were scheduled, and follows the replay rules of the settings.
    """
    # Targets of scheduled replays are found from here, as they are by `redrive replay`.
    sys.path.insert(0, str(Path.cwd()))
    stay_up(loaded(store, config, listen=listen).settings, as_json=as_json, keeps_house=not no_housekeeping)


def stay_up(settings: Settings, *, as_json: bool = False, keeps_house: bool = True) -> None:
    """Serve until told to stop."""
    # What is there now stays; and requests leave little that is bound in circles, so it is looked for less often.
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLD)
    with asyncio.Runner(loop_factory=_fastest()) as runner:
        runner.run(_stay_up(settings, as_json, keeps_house))


def _fastest() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The event loop that serves most requests; there is none of its kind on Windows."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


_HOUSEKEEPING = ("redrive.retention", "redrive.housekeeper", "redrive.dispatcher")


def _listen(*names: str) -> None:
    """What is done behind is announced: here on standard error, unless somebody listens already."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    for name in names:
        if not (logger := logging.getLogger(name)).hasHandlers():
            logger.addHandler(handler)
            logger.setLevel(logging.INFO)


async def _stay_up(settings: Settings, as_json: bool, keeps_house: bool) -> None:
    from redrive.engine.prometheus import PrometheusMeter
    from redrive.queues.opening import beside
    from redrive.serve.http.health import add_health
    from redrive.serve.http.queues import PREFIX, QueueSurface
    from redrive.serve.http.server import bound, serve
    from redrive.serve.http.surface import Surface

    _listen("redrive.queues", *(_HOUSEKEEPING if keeps_house else ()))
    meter = PrometheusMeter()
    async with wiring.connect(settings, meter) as dlq:
        await dlq.letters.check()
        queues = beside(dlq, settings) if dlq.queue_store or settings.queues else None
        surface = Surface()
        add_health(surface, dlq, meter, queues)
        branch = QueueSurface(queues) if queues else None
        if branch:
            surface.mount(PREFIX, branch)
        with bound(settings.listen) as listening:
            host, port = listening.getsockname()[:2]
            address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

            def when_up() -> None:
                if as_json:
                    retention = list(map(str, settings.retention)) if keeps_house else []
                    replay = list(map(str, settings.replay)) if keeps_house else []
                    where = {"listening": address, "store": masked(settings.store)}
                    click.echo(to_json({**where, "housekeeping": keeps_house, "retention": retention, "replay": replay}))
                else:
                    click.echo(f"redrive is up on {address} with {masked(settings.store)}")
                    click.echo(f"  {address}/health/ready   {address}/metrics   Ctrl-C ends it")
                    if queues:
                        click.echo(f"  queues are served under {address}/v1/; try: redrive queue ls --endpoint {address}")
                    if keeps_house and settings.retention:
                        click.echo(f"  {_announced(settings.retention)}")
                    for rule in settings.replay if keeps_house else ():
                        click.echo(f"  replay rule {rule}")

            async with (
                dlq.housekeeper() if keeps_house else nullcontext(),
                dlq.dispatcher() if keeps_house else nullcontext(),
                queues or nullcontext(),
            ):
                if queues:
                    queues.serve_here()
                await serve(surface, listening, when_up=when_up, when_down=branch.close if branch else lambda: None)
    if not as_json:
        click.echo("redrive is down.")


def _announced(rules: Sequence[RetentionRule]) -> str:
    """What letters have to expect."""
    many = f"{len(rules)} retention rules run" if len(rules) > 1 else "1 retention rule runs"
    return f"{many} every {INTERVAL.total_seconds() / 60:.0f} minutes: {'; '.join(rule.label for rule in rules)}"
