"""`redrive up`: stay up and serve."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from redrive import wiring
from redrive.serve.cli.options import config_option, json_option, loaded, store_option
from redrive.serve.shape import as_json as to_json
from redrive.settings import Settings, masked


@click.command("up")
@click.option("--listen", metavar="HOST:PORT", help="Where to listen; port 0 takes a free one. [default: 127.0.0.1:2319]")
@json_option
@store_option
@config_option
def command(listen: str | None, as_json: bool, store: str | None, config: Path | None) -> None:
    """Stay up: serve /health/live, /health/ready and /metrics until Ctrl-C or SIGTERM."""
    stay_up(loaded(store, config, listen=listen).settings, as_json=as_json)


def stay_up(settings: Settings, *, as_json: bool = False) -> None:
    """Serve until told to stop."""
    asyncio.run(_stay_up(settings, as_json))


async def _stay_up(settings: Settings, as_json: bool) -> None:
    from redrive.engine.prometheus import PrometheusMeter
    from redrive.serve.http.health import add_health
    from redrive.serve.http.server import bound, serve
    from redrive.serve.http.surface import Surface

    meter = PrometheusMeter()
    async with wiring.connect(settings, meter) as dlq:
        await dlq.letters.check()
        surface = Surface()
        add_health(surface, dlq, meter)
        with bound(settings.listen) as listening:
            host, port = listening.getsockname()[:2]
            address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

            def when_up() -> None:
                if as_json:
                    click.echo(to_json({"listening": address, "store": masked(settings.store)}))
                else:
                    click.echo(f"redrive is up on {address} with {masked(settings.store)}")
                    click.echo(f"  {address}/health/ready   {address}/metrics   Ctrl-C ends it")

            await serve(surface, listening, when_up=when_up)
    if not as_json:
        click.echo("redrive is down.")
