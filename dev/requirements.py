"""Print the development requirements of pyproject.toml, for pip releases that do not know dependency groups."""

import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())
print(" ".join(project["dependency-groups"]["dev"]))
