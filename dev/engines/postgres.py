"""PostgreSQL, run by the user postgres when the tests run as root, which it refuses."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import struct
from pathlib import Path

from dev.engines.engine import Engine
from dev.engines.install import Apt
from redrive.testing.servers import HOST, Place, Program, Server

USER = "postgres"
SWEEP = ["sh", "-c", "test ! -f data/postmaster.pid || ipcrm -m $(sed -n 7p data/postmaster.pid | tr -s ' ' | cut -d ' ' -f 3)"]
"""A killed server leaves a segment of the system's shared memory, whose number stands in its file."""


def programs() -> Path | None:
    """The folder of the newest PostgreSQL's programs; Debian keeps them off the PATH."""
    folders = [folder for folder in Path("/usr/lib/postgresql").glob("*/bin") if (folder / "initdb").exists()]
    if folders:
        return max(folders, key=lambda folder: float(folder.parent.name))
    found = shutil.which("initdb")
    return Path(found).resolve().parent if found else None


def as_postgres() -> list[str]:
    """What to put before a command that root may not run."""
    return ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"] if os.geteuid() == 0 else []


def owner() -> str | None:
    return USER if os.geteuid() == 0 else None


def postgres(*, durable: bool = True, settings: dict[str, str] | None = None) -> Server:
    """One server. Not durable: faster, and a kill of the whole machine (not of the server) could lose writes."""
    folder = programs()
    assert folder is not None, "PostgreSQL is not installed"
    durability = {"fsync": "on" if durable else "off", "full_page_writes": "on" if durable else "off"}
    # Shared memory as files in the data folder: elsewhere a kill would leave it behind.
    kept = {"dynamic_shared_memory_type": "mmap", **durability}
    chosen = {"max_connections": "200", "log_checkpoints": "off", **kept, **(settings or {})}

    def prepare(place: Place) -> list[list[str]]:
        made = ["-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync", "-D", str(place.folder / "data")]
        return [[*as_postgres(), str(folder / "initdb"), *made]]

    def command(place: Place) -> list[str]:
        here = {"listen_addresses": HOST, "port": str(place.port), "unix_socket_directories": str(place.folder)}
        options = [f"--{name}={value}" for name, value in {**here, **chosen}.items()]
        return [*as_postgres(), str(folder / "postgres"), "-D", str(place.folder / "data"), *options]

    return Server(
        Program(
            name="postgres",
            command=command,
            is_ready=lets_in,
            prepare=prepare,
            url=lambda place: f"postgresql://{USER}@{HOST}:{place.port}/postgres",
            stop_signal=signal.SIGINT,
            sweep=SWEEP,
            owner=owner(),
        )
    )


def lets_in(place: Place) -> bool:
    """Does it accept a session? A server that recovers takes connections, but answers with an error."""
    words = b"user\0postgres\0database\0postgres\0\0"
    with socket.create_connection((HOST, place.port), timeout=5) as connection:
        connection.sendall(struct.pack("!ii", 8 + len(words), 3 << 16) + words)
        return connection.recv(1) == b"R"


ENGINE = Engine(
    name="postgres",
    source=Apt(("postgresql",), lambda: str(folder) if (folder := programs()) else None),
    make=postgres,
    shared={"durable": False},
)
