"""Consul, built once from its source: that takes some minutes. Only for tests, as its licence wants."""

from __future__ import annotations

import shutil
from pathlib import Path

from dev.engines import go
from dev.engines.engine import Engine
from dev.engines.install import Built
from redrive.testing.servers import HOST, Place, Program, Server, answers

MODULE = Path(__file__).parent / "consul_build"
"""A module that holds nothing but the exact releases of all that goes into Consul."""
PACKAGE = "github.com/hashicorp/consul"


def _build(folder: Path) -> None:
    for name in ("go.mod", "go.sum"):
        shutil.copy(MODULE / name, folder)
    go.build(folder, PACKAGE, "consul")


SOURCE = Built(
    name="consul",
    recipe=(MODULE / "go.mod").read_text(),
    build=_build,
    told=f"Go {PACKAGE}",
    tools=(go.TOOL,),
)


def consul() -> Server:
    """One agent in memory: a kill loses its data."""

    def command(place: Place) -> list[str]:
        http, serf, server = map(str, place.ports)
        quiet = "disable_update_check = true connect { enabled = false } ui_config { enabled = false }"
        where = ["-node", "dev", "-bind", HOST, "-client", HOST]
        unused = [word for name in ("dns", "grpc", "grpc-tls", "serf-wan") for word in (f"-{name}-port", "-1")]
        ports = ["-http-port", http, "-serf-lan-port", serf, "-server-port", server]
        program = str(SOURCE.folder / "consul")
        return [program, "agent", "-dev", *where, *ports, *unused, "-log-level", "warn", "-hcl", quiet]

    return Server(
        Program(
            name="consul",
            command=command,
            is_ready=answers("/v1/catalog/services"),  # an error until it has elected itself
            url=lambda place: f"http://{HOST}:{place.port}",
            ports=3,
        )
    )


ENGINE = Engine(name="consul", source=SOURCE, make=consul)
