"""Consul, built once from its source: that takes some minutes. Only for tests, as its licence wants."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from dev.engines.engine import Engine
from dev.engines.install import Apt, Built, run
from redrive.testing.servers import HOST, Place, Program, Server, answers

MODULE = Path(__file__).parent / "consul_build"
"""A module that holds nothing but the exact releases of all that goes into Consul."""
PACKAGE = "github.com/hashicorp/consul"
OLDEST = (1, 21)
"""From here on Go fetches for itself the release that a module asks for."""


def _go() -> str | None:
    found = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if found is None:
        return None
    told = subprocess.run([found, "env", "GOVERSION"], capture_output=True, text=True, cwd="/").stdout
    version = re.match(r"go(\d+)\.(\d+)", told)
    return found if version and (int(version[1]), int(version[2])) >= OLDEST else None


def _build(folder: Path) -> None:
    go = _go()
    assert go is not None, "Go is one of the tools that were installed before"
    for name in ("go.mod", "go.sum"):
        shutil.copy(MODULE / name, folder)
    # It keeps all cores busy for minutes, and nobody waits for it but its tests.
    run(["nice", "-n", "19", go, "build", "-trimpath", "-ldflags", "-s -w", "-o", "consul", PACKAGE], folder, CGO_ENABLED="0")


SOURCE = Built(
    name="consul",
    recipe=(MODULE / "go.mod").read_text(),
    build=_build,
    told=f"Go {PACKAGE}",
    tools=(Apt(("golang-go",), _go),),
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
