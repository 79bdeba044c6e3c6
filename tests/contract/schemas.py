"""Schemas of PostgreSQL for tests: to make one takes a fifth of a second, to empty one a few milliseconds."""

from __future__ import annotations

import asyncio
import os
from hashlib import sha256
from itertools import count
from pathlib import Path
from threading import Thread

import asyncpg

_KEPT = 4
"""So many are in use in turns: whoever used one before had time to let go of it."""
_PATIENCE = "2s"
_turns = count()


def own_name(place: Path) -> str:
    """What keeps this test apart from all others on a server that they share: the name of a schema, or a prefix."""
    return f"t{sha256(str(place).encode()).hexdigest()[:12]}"


def schema_of(place: Path) -> str:
    """The schema of this place: one that was used some stores before, emptied. Several processes that are to make one at once, and
    who finds it still in use, get one that nobody has used."""
    if place.name == "fresh":
        return own_name(place)
    note = place / "schema"
    if not note.exists():
        name = f"shared_{os.environ.get('PYTEST_XDIST_WORKER', 'here')}_{os.getpid()}_{next(_turns) % _KEPT}"
        note.write_text(name if _is_emptied(name) else own_name(place))
    return note.read_text()


def _is_emptied(name: str) -> bool:
    answers: list[bool] = []
    # In a thread: a store may be opened where an event loop runs.
    emptying = Thread(target=lambda: answers.append(asyncio.run(_emptied(name))))
    emptying.start()
    emptying.join()
    return bool(answers and answers[0])


async def _emptied(schema: str) -> bool:
    connection = await asyncpg.connect(os.environ["REDRIVE_TEST_POSTGRES"])
    try:
        await connection.execute(f"SET lock_timeout = '{_PATIENCE}'")
        found = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = $1", schema)
        tables = {row["tablename"] for row in found} - {"redrive", "queue_catalogue"}
        if tables:
            names = ", ".join(f'{schema}."{table}"' for table in sorted(tables))
            await connection.execute(f"TRUNCATE {names} RESTART IDENTITY")
        if any(row["tablename"] == "queue_catalogue" for row in found):
            await connection.execute(f"UPDATE {schema}.queue_catalogue SET version = 0")
    except asyncpg.PostgresError:
        return False
    else:
        return True
    finally:
        await connection.close()
