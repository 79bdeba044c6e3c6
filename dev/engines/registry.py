"""Every engine by its name."""

from __future__ import annotations

from dev.engines import alertmanager, consul, kafka, mongodb, opensearch, pgbouncer, postgres, prometheus, redis, redis_cluster
from dev.engines.engine import Engine

ENGINES: dict[str, Engine] = {
    module.ENGINE.name: module.ENGINE
    for module in (
        redis,
        redis_cluster,
        postgres,
        pgbouncer,
        kafka,
        opensearch,
        mongodb,
        prometheus,
        alertmanager,
        consul,
    )
}
