"""PostgreSQL: letters, desk and queues for teams."""

from functools import partial

from redrive.model.errors import MissingExtra
from redrive.ports.opening import Opened

try:
    import asyncpg as _driver  # noqa: F401 - only to see that it is there
except ModuleNotFoundError as error:
    raise MissingExtra("postgres: needs asyncpg; install it with: pip install 'redrive[postgres]'") from error

from redrive.backends.postgres.address import address
from redrive.backends.postgres.database import Database
from redrive.backends.postgres.desk import PostgresDesk
from redrive.backends.postgres.examine import examine
from redrive.backends.postgres.letters import PostgresLetters
from redrive.backends.postgres.queues import PostgresQueues

__all__ = ["Database", "PostgresDesk", "PostgresLetters", "PostgresQueues", "address", "opened"]


def opened(location: str) -> Opened:
    """`postgres://user@host:5432/database?schema=redrive`: a database of yours, in a schema of ours.

    With `partitions=month`, which is chosen when the schema is made, letters lie in a partition for each month that they came
    in: the space of a past month is given back as soon as its last letter is removed.
    """
    where = address(location)
    database = Database(where)
    return Opened(
        letters=PostgresLetters(database),
        desk=PostgresDesk(database),
        examine=partial(examine, database),
        # By connections of their own: whoever has no queues has no tables for them either.
        queues=PostgresQueues(Database(where, has_queues=True)),
    )
