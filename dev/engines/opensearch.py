"""OpenSearch: one embedded node with the modules that redrive needs."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from dev.engines.engine import Engine
from dev.engines.maven import jars, java
from redrive.testing.servers import HOST, Place, Program, Server, answers

VERSION = "2.19.5"
SOURCE = jars(
    "opensearch",
    [
        f"org.opensearch:opensearch:{VERSION}",
        f"org.opensearch.plugin:transport-netty4-client:{VERSION}",
        f"org.opensearch.plugin:reindex-client:{VERSION}",
        f"org.opensearch.plugin:lang-painless:{VERSION}",
        f"org.opensearch.plugin:analysis-common:{VERSION}",
        "org.apache.logging.log4j:log4j-core:2.25.3",  # the release of the log4j-api that OpenSearch brings
    ],
    Path(__file__).parent / "java" / "OpenSearchNode.java",
)


def opensearch() -> Server:
    """One node, without replicas of anything."""

    def command(place: Place) -> list[str]:
        words = ["OpenSearchNode", str(place.folder), HOST, *map(str, place.ports)]
        return java(SOURCE.folder, place.folder, "512m", *words)

    def prepare(place: Place) -> list[list[str]]:
        # This collector cleans up only when the heap is full, which the breaker would take for a lack of memory.
        (place.folder / "config").mkdir()
        (place.folder / "config/opensearch.yml").write_text("indices.breaker.total.use_real_memory: false\n")
        return []

    return Server(
        Program(
            name="opensearch",
            prepare=prepare,
            command=command,
            is_ready=answers("/_cluster/health?wait_for_status=yellow&timeout=1s"),
            url=lambda place: f"http://{HOST}:{place.port}",
            ports=2,
            patience=timedelta(seconds=90),
        )
    )


ENGINE = Engine(name="opensearch", source=SOURCE, make=opensearch)
