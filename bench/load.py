"""`import redrive`: the whole process, from start to end, and what it loaded."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

from msgspec.structs import replace

from bench.harness import Effort, Goal, Row, Watch, alone, compared

HEAVY = (
    "sqlite3",
    "asyncio",
    "httptools",
    "uvloop",
    "google.protobuf",
    "rich",
    "click",
    "prometheus_client",
    "opentelemetry",
    "yaml",
    "hypothesis",
    "pytest",
)
"""What `import redrive` must not load."""

_LOADED = f"import sys, redrive; print(*(name for name in {HEAVY!r} if name in sys.modules))"


def rows(effort: Effort) -> Iterator[Row]:
    starts = effort.of(10)
    row = compared(
        "import redrive, whole process",
        lambda: _milliseconds("import redrive", starts),
        lambda: _milliseconds("pass", starts),
        effort,
        against="bare Python",
        goal=Goal("at most", 60),
        unit="ms",
        figure=alone,
    )
    loaded = subprocess.run([sys.executable, "-c", _LOADED], check=True, capture_output=True, text=True).stdout.split()
    yield replace(row, note=f"loads {', '.join(loaded)}" if loaded else "no driver loaded")


def _milliseconds(code: str, starts: int) -> float:
    with Watch() as watch:
        for _ in range(starts):
            subprocess.run([sys.executable, "-c", code], check=True)
    return 1000 * watch.seconds / starts
