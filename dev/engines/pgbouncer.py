"""pgbouncer with transaction pooling and a small pool, in front of a PostgreSQL."""

from __future__ import annotations

import shutil
import signal
from urllib.parse import urlsplit

from dev.engines.engine import Engine
from dev.engines.install import Apt
from dev.engines.postgres import as_postgres, lets_in, owner
from redrive.testing.servers import HOST, Place, Program, Server


def found() -> str | None:
    return shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin") or shutil.which("pgbouncer")


def pgbouncer(*, target: str, pool: int = 4) -> Server:
    """In front of the PostgreSQL at that URL: each transaction may get another of `pool` sessions."""
    executable = found()
    assert executable is not None, "pgbouncer is not installed"
    behind = urlsplit(target)
    password = f" password={behind.password}" if behind.password else ""

    def prepare(place: Place) -> list[list[str]]:
        settings = {
            "listen_addr": HOST,
            "listen_port": place.port,
            "unix_socket_dir": "",
            "auth_type": "any",
            "pool_mode": "transaction",
            "default_pool_size": pool,
            "max_client_conn": 500,
        }
        lines = [
            "[databases]",
            f"* = host={behind.hostname} port={behind.port or 5432} user={behind.username or 'postgres'}{password}",
            "[pgbouncer]",
            *(f"{name} = {value}" for name, value in settings.items()),
        ]
        file = place.folder / "pgbouncer.ini"
        file.write_text("\n".join(lines) + "\n")
        if user := owner():
            shutil.chown(file, user)
        return []

    return Server(
        Program(
            name="pgbouncer",
            command=lambda place: [*as_postgres(), executable, str(place.folder / "pgbouncer.ini")],
            is_ready=lets_in,
            prepare=prepare,
            url=lambda place: f"postgresql://{behind.username or 'postgres'}@{HOST}:{place.port}{behind.path or '/postgres'}",
            stop_signal=signal.SIGKILL,  # it keeps nothing, and its releases do not agree on what the other signals mean
            owner=owner(),
        )
    )


ENGINE = Engine(name="pgbouncer", source=Apt(("pgbouncer", "postgresql"), found), make=pgbouncer, behind="postgres")
