"""Prometheus."""

from __future__ import annotations

import shutil

from dev.engines.engine import Engine
from dev.engines.install import Apt
from redrive.testing.servers import HOST, Place, Program, Server, answers

QUIET = "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"


def prometheus(*, config: str = QUIET, files: dict[str, str] | None = None) -> Server:
    """With this configuration; `files` (rules, for instance) lie beside it. `POST /-/reload` reads them again."""

    def prepare(place: Place) -> list[list[str]]:
        for name, text in {"prometheus.yml": config, **(files or {})}.items():
            (place.folder / name).write_text(text)
        return []

    def command(place: Place) -> list[str]:
        return [
            "prometheus",
            f"--config.file={place.folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={place.folder / 'data'}",
            f"--web.listen-address={HOST}:{place.port}",
            "--web.enable-lifecycle",
            "--rules.alert.resend-delay=1s",
        ]

    return Server(
        Program(
            name="prometheus",
            command=command,
            is_ready=answers("/-/ready"),
            prepare=prepare,
            url=lambda place: f"http://{HOST}:{place.port}",
        )
    )


ENGINE = Engine(name="prometheus", source=Apt(("prometheus",), lambda: shutil.which("prometheus")), make=prometheus)
