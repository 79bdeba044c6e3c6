"""Where letters lie: in one table, or in a partition for each month, so that the space of a month is given back at once.

A partition is chosen by when a letter first came (`born`), which never changes, so that no letter ever moves from one to
another. No index spans partitions: the table of keys sees to it that each letter is there once, and tells which partition it
is in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime

from msgspec import Struct

from redrive.model.instant import instant, micros
from redrive.model.letter import Letter

_EARLIEST, _LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
"""Whatever came before or will come after has no month of its own."""
_GENTLY = "WITH (autovacuum_vacuum_cost_delay = 10, toast.autovacuum_vacuum_cost_delay = 10)"
"""Of tables that hold much. What autovacuum writes stays in the system's memory until a checkpoint has it made durable, all at once, which all who write
wait for. At its usual pace that is 40 MB a second behind a purge; so it is 8."""
_PLACEHOLDER = re.compile(r"\{(letter_of|key_of|is_of_key) ?(\w*)\}")


class Month(Struct, frozen=True, order=True):
    """A month, by its first instant and that of the next, in microseconds."""

    begins: int
    ends: int

    @property
    def table(self) -> str:
        return f"letters_{instant(self.begins):%Y_%m}"


class Tables(Struct, frozen=True):
    """How to find letters by their ids."""

    schema: str
    is_parted: bool = False

    def joined(self, other: str) -> str:
        """`letters l` joined with what has their ids."""
        if not self.is_parted:
            return f"JOIN {self.schema}.letters l ON l.id = {other}.id"
        return f"{self.keyed(other)} JOIN {self.schema}.letters l ON l.id = k.id{self.is_of_key}"

    def keyed(self, other: str) -> str:
        """The keys that belong to what has ids, where there are keys."""
        return f"JOIN {self.schema}.keys k ON k.id = {other}.id" if self.is_parted else ""

    @property
    def is_of_key(self) -> str:
        """Beside the id, what finds a letter by its key."""
        return " AND l.born = k.born" if self.is_parted else ""

    def among(self, ids: str) -> str:
        """`letters l` with these ids, an expression: what follows FROM, to be gone on with AND."""
        if not self.is_parted:
            return f"{self.schema}.letters l WHERE l.id = ANY ({ids})"
        return f"{self.schema}.keys k JOIN {self.schema}.letters l ON l.id = k.id{self.is_of_key} WHERE k.id = ANY ({ids})"

    def written(self, text: str) -> str:
        """The text of a migration for this schema."""

        def placed(found: re.Match[str]) -> str:
            match found[1]:
                case "letter_of":
                    return self.joined(found[2])
                case "key_of":
                    return self.keyed(found[2])
                case _:
                    return self.is_of_key

        filled = _PLACEHOLDER.sub(placed, text)
        id = (
            "id               uuid NOT NULL,\n    born             bigint NOT NULL"
            if self.is_parted
            else "id               uuid PRIMARY KEY"
        )
        by = "PARTITION BY RANGE (born)" if self.is_parted else _GENTLY  # which its partitions have then
        return (
            filled.replace("{id}", id).replace("{partitions}", by).replace("{gently}", _GENTLY).replace("{schema}", self.schema)
        )


def months(letters: Iterable[Letter]) -> set[Month]:
    """The months that these letters came in."""
    firsts = {
        (one.dead_lettered_at.year, one.dead_lettered_at.month) for one in letters if _EARLIEST <= one.dead_lettered_at < _LATEST
    }
    return {_month(year, month) for year, month in firsts}


def coming(now: datetime) -> set[Month]:
    """The month that it is, and the next one."""
    return {_month(now.year, now.month), _month(now.year + now.month // 12, now.month % 12 + 1)}


def _month(year: int, month: int) -> Month:
    following = datetime(year + month // 12, month % 12 + 1, 1, tzinfo=UTC)
    return Month(micros(datetime(year, month, 1, tzinfo=UTC)), micros(following))
