"""Alertmanager, alone: no gossip."""

from __future__ import annotations

import shutil

from dev.engines.engine import Engine
from dev.engines.install import Apt
from redrive.testing.servers import HOST, Place, Program, Server, answers

SILENT = "route: {receiver: nobody, group_wait: 0s, group_interval: 1s}\nreceivers: [{name: nobody}]\n"


def found() -> str | None:
    return shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")


def alertmanager(*, config: str = SILENT) -> Server:
    """With this configuration; the usual one takes alerts and tells nobody."""
    executable = found()
    assert executable is not None, "Alertmanager is not installed"

    def prepare(place: Place) -> list[list[str]]:
        (place.folder / "alertmanager.yml").write_text(config)
        return []

    def command(place: Place) -> list[str]:
        return [
            executable,
            f"--config.file={place.folder / 'alertmanager.yml'}",
            f"--storage.path={place.folder / 'data'}",
            f"--web.listen-address={HOST}:{place.port}",
            "--cluster.listen-address=",
        ]

    return Server(
        Program(
            name="alertmanager",
            command=command,
            is_ready=answers("/-/ready"),
            prepare=prepare,
            url=lambda place: f"http://{HOST}:{place.port}",
        )
    )


ENGINE = Engine(name="alertmanager", source=Apt(("prometheus-alertmanager",), found), make=alertmanager)
