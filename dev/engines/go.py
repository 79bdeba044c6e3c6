"""Go, with which some engines and the client of queues are built."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from dev.engines.install import Apt, run

OLDEST = (1, 21)
"""From here on Go fetches for itself the release that a module asks for."""


def program() -> str | None:
    """The Go that is new enough, if there is one."""
    found = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if found is None:
        return None
    told = subprocess.run([found, "env", "GOVERSION"], capture_output=True, text=True, cwd="/").stdout
    version = re.match(r"go(\d+)\.(\d+)", told)
    return found if version and (int(version[1]), int(version[2])) >= OLDEST else None


TOOL = Apt(("golang-go",), program)


def build(folder: Path, package: str, name: str) -> None:
    """Build a package of the module in this folder."""
    go = program()
    assert go is not None, "Go is one of the tools that were installed before"
    # It keeps all cores busy, for minutes perhaps, and nobody waits for it but its tests.
    command = ["nice", "-n", "19", go, "build", "-trimpath", "-ldflags", "-s -w", "-o", name, package]
    run(command, folder, CGO_ENABLED="0")
