"""The released Go client of the queues' interface, in two small programs; and the original's server, to be measured beside ours."""

from __future__ import annotations

import shutil
from pathlib import Path

from dev.engines import go
from dev.engines.install import Built

MODULE = Path(__file__).parent
SERVER = "github.com/kapetan-io/querator/cmd/querator"
_FILES = ("go.mod", "go.sum", "journey/main.go", "load/main.go")


def _copied(folder: Path) -> None:
    for name in _FILES:
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(MODULE / name, folder / name)


def _journey(folder: Path) -> None:
    _copied(folder)
    go.build(folder, "./journey", "way")


def _peer(folder: Path) -> None:
    _copied(folder)
    go.build(folder, "./load", "cycles")
    go.build(folder, SERVER, "server")


_recipe = "\n".join((MODULE / name).read_text() for name in _FILES)
JOURNEY = Built(name="queue-client", recipe=_recipe, build=_journey, told="Go client of queues", tools=(go.TOOL,))
"""`way ENDPOINT`: an item's way through a queue and its dead queue."""
PEER = Built(name="queue-peer", recipe=_recipe, build=_peer, told="Go server of queues", tools=(go.TOOL,))
"""`cycles ENDPOINT SECONDS BATCH...`: a load by that client; `server`: the original's."""
