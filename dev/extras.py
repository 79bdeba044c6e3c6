"""Install the wheel with one set of extras at a time into an empty environment and see that it does what it says.

`python -m dev.extras` tries each single extra; the tests try the bare install and `all`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent
SURFACES = {
    "http": "import redrive.serve.http.server, redrive.engine.prometheus; redrive.engine.prometheus.PrometheusMeter()",
    "otel": "import redrive.engine.otel; redrive.engine.otel.OtelMeter()",
    "yaml": "import yaml",
    "testing": "import redrive.testing",
    "postgres": "import redrive; redrive.open('postgres://127.0.0.1/shop')",
    "redis": "import redrive; redrive.open('redis://127.0.0.1')",
    "opensearch": "import redrive; redrive.open('opensearch://127.0.0.1')",
    "kafka": "import redrive.wiring; redrive.wiring.transport('kafka://127.0.0.1/orders')",
    "schema": "import redrive.engine.alter; redrive.engine.alter.by_schema({})",
}
"""What works with an extra, and only with it."""


def wheel(folder: Path) -> Path:
    """The project's wheel, built."""
    _run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT))
    (built,) = folder.glob("*.whl")
    return built


def installed(built: Path, folder: Path, extras: str) -> Path:
    """An empty environment with only the wheel and these extras in it; answers with its programs' folder."""
    venv.create(folder)
    name = f"{built}[{extras}]" if extras else str(built)
    install = ("install", "--quiet", "--constraint", str(ROOT / "dev/constraints.txt"), name)
    _run(sys.executable, "-m", "pip", "--python", str(folder / "bin/python"), *install)
    return folder / "bin"


def works(programs: Path, extra: str) -> bool:
    """Does what this extra brings work there?"""
    return subprocess.run([programs / "python", "-W", "error", "-c", SURFACES[extra]], capture_output=True).returncode == 0


def extras() -> list[str]:
    """The single extras that the project offers."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return [name for name in project["project"]["optional-dependencies"] if name != "all"]


def _run(*command: str) -> None:
    subprocess.run(command, check=True)


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        built = wheel(Path(folder))
        wrong = 0
        for extra in extras():
            programs = installed(built, Path(folder) / extra, extra)
            wrong += not works(programs, extra)
            print(f"{'ok' if works(programs, extra) else 'WRONG'}  redrive[{extra}]")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
