"""A server that speaks MongoDB's wire protocol and keeps its data in a file.

Single commands are atomic. TTL deletion, sessions, transactions, change streams and pipeline updates do not work; `compose.yaml`
has the real MongoDB.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from dev.engines.engine import Engine
from dev.engines.maven import jars, java
from redrive.testing.servers import HOST, Place, Program, Server, accepts

VERSION = "1.47.0"
SOURCE = jars(
    "mongodb",
    [
        f"de.bwaldvogel:mongo-java-server:{VERSION}",
        f"de.bwaldvogel:mongo-java-server-h2-backend:{VERSION}",
    ],
    Path(__file__).parent / "java" / "MongoWire.java",
)


def mongodb() -> Server:
    """One server. What it acknowledged is in its file, and outlives a kill of the server."""

    def command(place: Place) -> list[str]:
        return java(SOURCE.folder, place.folder, "128m", "MongoWire", str(place.folder / "data.mv"), HOST, str(place.port))

    return Server(
        Program(
            name="mongodb",
            command=command,
            is_ready=accepts,
            url=lambda place: f"mongodb://{HOST}:{place.port}",
            patience=timedelta(seconds=60),
        )
    )


ENGINE = Engine(name="mongodb", source=SOURCE, make=mongodb)
