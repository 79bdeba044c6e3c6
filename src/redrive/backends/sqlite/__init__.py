"""One SQLite file: the embedded default."""

from functools import partial
from pathlib import Path

from redrive.backends.sqlite.database import Database
from redrive.backends.sqlite.desk import SqliteDesk
from redrive.backends.sqlite.examine import examine
from redrive.backends.sqlite.letters import SqliteLetters
from redrive.backends.sqlite.queues import SqliteQueues
from redrive.model.errors import BadSettings
from redrive.ports.opening import Opened

__all__ = ["Database", "SqliteDesk", "SqliteLetters", "SqliteQueues", "opened"]


def opened(location: str) -> Opened:
    """`sqlite:redrive.db`, `sqlite:/var/lib/redrive.db` or `sqlite:///var/lib/redrive.db`: a path."""
    path = location.removeprefix("//")
    if not path or path == ":memory:" or "\0" in path:
        raise BadSettings("sqlite: needs a path, e.g. sqlite:redrive.db; letters in memory are memory:")
    # Absolute, so that a process which changes its folder (a daemon does) goes on with the same file.
    path = str(Path(path).expanduser().absolute())
    database = Database(path)
    return Opened(
        letters=SqliteLetters(database),
        desk=SqliteDesk(database),
        examine=partial(examine, database),
        bodies_folder=Path(f"{path}.bodies"),
        queues=SqliteQueues(database),
    )
