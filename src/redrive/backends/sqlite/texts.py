"""Words found by an index: those of messages at once, those of tracebacks and bodies when they have been indexed."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from itertools import accumulate

from redrive.backends.sqlite import counts
from redrive.backends.sqlite.query import WHOLE, WITH_CONTENT, matching
from redrive.backends.sqlite.rows import Numbered, listed, read_all, write_rows
from redrive.model.census import Scope
from redrive.model.query import And, Not, Or, Query, Text
from redrive.model.stored import restored
from redrive.model.texts import Where, body_words, traceback_words

FEW = 10_000
"""Up to so many letters, it is quicker to sort all that have a phrase than to look for it in one letter after another. At a million
letters a phrase that more of them have is in every hundredth."""
_SHARE = 4
"""What one letter in so many has is soon found by looking, wherever these are; but for texts, which take long to look into."""
_MOST_BYTES = 1024 * 1024
"""Of letters that are indexed at once: as much as two hundred that are usual."""
_MERGED_PAGES = 64
MERGED_LETTERS = 16
"""After so many letters the index of messages is merged by some pages: at every letter it would be little and often, and a capture waits
for what is merged at once."""
_FEW_GHOSTS = 1000
"""Up to so many letters that are gone, their words do not matter."""
_PARTS = "id > 10"
"""Which rows of the table below an index are its parts; the first few tell of them."""


def few(connection: sqlite3.Connection) -> int:
    """So many letters are few among all that there are."""
    (letters,) = connection.execute("SELECT coalesce(sum(count), 0) FROM counts WHERE facet = 'all'").fetchone()
    return min(FEW, int(letters) // _SHARE)


def rare(connection: sqlite3.Connection, query: Query) -> frozenset[Text]:
    """Those of the question's phrases that few letters have."""
    return frozenset(text for text in _texts(query) if _is_rare(connection, text))


def behind(query: Query) -> frozenset[Text]:
    """Those of the question's phrases that are looked for in what is indexed behind."""
    return frozenset(text for text in _texts(query) if text.where is not Where.MESSAGE)


def _is_rare(connection: sqlite3.Connection, text: Text) -> bool:
    return has_at_most(connection, text, few(connection) if text.where is Where.MESSAGE else FEW)


def has_at_most(connection: sqlite3.Connection, text: Text, most: int) -> bool:
    """Do no more letters have the phrase?"""
    found = matching(text)
    if found is None:
        return True
    sql, parameters = found
    (count,) = connection.execute(f"SELECT count(*) FROM ({sql} LIMIT {most + 1})", parameters).fetchone()
    return bool(count <= most)


def _texts(query: Query) -> Iterable[Text]:
    match query:
        case Text():
            yield query
        case And(parts=parts) | Or(parts=parts):
            for part in parts:
                yield from _texts(part)
        case Not(part=part):
            yield from _texts(part)


def unsearched(connection: sqlite3.Connection) -> int:
    """How many letters no search in texts finds yet."""
    (found,) = connection.execute("SELECT letters + former_letters FROM indexed").fetchone()
    return counts.counted(connection, Scope(), 0) - int(found)


def waiting(connection: sqlite3.Connection) -> int:
    """How many letters are to be indexed, for the first time or again."""
    (done,) = connection.execute("SELECT letters FROM indexed").fetchone()
    return counts.counted(connection, Scope(), 0) - (0 if _is_worn(connection) else int(done))


def index(connection: sqlite3.Connection, most: int) -> None:
    """Index tracebacks and bodies of some letters: those that have changed, then those that have waited the longest."""
    mark, former = connection.execute("SELECT seq, former FROM indexed").fetchone()
    again, is_more = _load(connection, "SELECT seq FROM unindexed WHERE seq <= ? ORDER BY seq LIMIT ?", [mark, most])
    new: list[Numbered] = []
    if not is_more:
        new, is_more = _load(connection, "SELECT seq FROM letters WHERE seq > ? ORDER BY seq LIMIT ?", [mark, most - len(again)])
    told = [(seq, traceback_words(letter), body_words(letter)) for seq, letter in again + new]
    write_rows(connection, "letter_texts", ("rowid", "traceback", "body"), told, "")
    last = new[-1][0] if new else mark
    changed = "SELECT count(*) FROM unindexed WHERE seq > ? AND seq <= ?"
    (not_found,) = connection.execute(changed, [mark, min(last, former)]).fetchone()
    found_before = sum(seq <= former for seq, _ in new) - not_found
    connection.execute(
        "DELETE FROM unindexed WHERE seq <= ? OR (seq > ? AND seq <= ?)", [again[-1][0] if again else 0, mark, last]
    )
    connection.execute(
        "UPDATE indexed SET seq = ?, letters = letters + ?, former_letters = former_letters - ?",
        [last, len(again) + len(new), found_before],
    )
    if former and (last >= former or (len(again) + len(new) < most and not is_more)):
        connection.execute("UPDATE indexed SET former = 0, former_letters = 0")


def _load(connection: sqlite3.Connection, numbers: str, parameters: Sequence[int]) -> tuple[list[Numbered], bool]:
    """The first of the letters whose numbers a statement gives, as many as are not too large together; are there more?"""
    sql = f"SELECT t.seq, length(t.data) FROM ({numbers}) n CROSS JOIN contents t ON t.seq = n.seq"
    sizes = connection.execute(sql, parameters).fetchall()
    fitting = sum(total <= _MOST_BYTES for total in accumulate(size for _, size in sizes))
    wanted = [seq for seq, _ in sizes[: max(1, fitting)]]
    sql = f"SELECT l.seq AS note, {WHOLE} AS data FROM json_each(?) n CROSS JOIN {WITH_CONTENT} WHERE l.seq = n.value"
    letters = [Numbered(int(seq), restored(data)) for seq, data in read_all(connection, sql, [listed(wanted)])]
    return letters, len(wanted) < len(sizes)


def forget(connection: sqlite3.Connection, letters: Sequence[Numbered]) -> None:
    """Letters, still stored as they are given here, are about to read otherwise: they wait to be indexed again."""
    by_number = dict(letters)
    (mark,) = connection.execute("SELECT seq FROM indexed").fetchone()
    numbers = _found(connection, list(by_number))
    gone = [("delete", seq, traceback_words(by_number[seq]), body_words(by_number[seq])) for seq in numbers if seq <= mark]
    # In the index that is given up they stay: there, what waits to be indexed again is passed over.
    write_rows(connection, "letter_texts", ("letter_texts", "rowid", "traceback", "body"), gone, "")
    write_rows(connection, "unindexed", ("seq",), [(seq,) for seq in numbers], "")
    _count_out(connection, len(gone), len(numbers) - len(gone))


def leave(connection: sqlite3.Connection, numbers: Sequence[int]) -> None:
    """Letters are about to be removed. Their words stay, and lead to nothing: numbers are never given out again."""
    (mark,) = connection.execute("SELECT seq FROM indexed").fetchone()
    found = _found(connection, numbers)
    here = sum(seq <= mark for seq in found)
    _count_out(connection, here, len(found) - here)
    if here:
        connection.execute("UPDATE indexed SET ghosts = ghosts + ?", [here])


def _found(connection: sqlite3.Connection, numbers: Sequence[int]) -> list[int]:
    """Those of the letters that are found by their texts."""
    sql = """
        SELECT value FROM json_each(?)
        WHERE value <= (SELECT max(seq, former) FROM indexed) AND value NOT IN (SELECT seq FROM unindexed)
    """
    return [seq for (seq,) in connection.execute(sql, [listed(numbers)])]


def _count_out(connection: sqlite3.Connection, letters: int, former: int) -> None:
    if letters or former:
        sql = "UPDATE indexed SET letters = letters - ?, former_letters = former_letters - ?"
        connection.execute(sql, [letters, former])


def merge(connection: sqlite3.Connection, requests: list[None]) -> list[None]:
    """Merge some of the index's parts: as much as a step of indexing has added, times the levels there are."""
    connection.execute("INSERT INTO letter_texts (letter_texts, rank) VALUES ('merge', ?)", [_MERGED_PAGES])
    return requests


def merge_messages(connection: sqlite3.Connection, requests: list[int]) -> list[bool]:
    """Merge the index of messages by what so many letters make necessary that have come or left; is there so much to merge? A page holds the
    words of some thirty letters, each of which is merged some ten times."""
    before = connection.total_changes
    connection.execute("INSERT INTO message_words (message_words, rank) VALUES ('merge', ?)", [sum(requests) // 2])
    # To ask for it counts as one change.
    return [connection.total_changes > before + 1] * len(requests)


def merge_for_new(connection: sqlite3.Connection, numbers: Sequence[int]) -> None:
    """Letters of these numbers have come: merge the index of messages, if it is time to."""
    if len(numbers) >= MERGED_LETTERS or (numbers and numbers[-1] % MERGED_LETTERS < len(numbers)):
        merge_messages(connection, [max(MERGED_LETTERS, len(numbers))])


def renew(connection: sqlite3.Connection) -> None:
    """Give up an index that is mostly about letters that are gone: it is searched until the new one has all that it has."""
    if not _is_worn(connection) or left_over(connection):
        return
    for old, new in (("letter_texts", "spare_texts"), ("former_texts", "letter_texts"), ("spare_texts", "former_texts")):
        connection.execute(f"ALTER TABLE {old} RENAME TO {new}")
    connection.execute("UPDATE indexed SET former = seq, former_letters = letters, seq = 0, letters = 0, ghosts = 0")


def _is_worn(connection: sqlite3.Connection) -> bool:
    """Is the index mostly about letters that are gone?"""
    (is_worn,) = connection.execute("SELECT ghosts > max(letters, ?) AND NOT former FROM indexed", [_FEW_GHOSTS]).fetchone()
    return bool(is_worn)


def left_over(connection: sqlite3.Connection) -> int:
    """About how many pages there are of an index that was given up and is not searched any more."""
    (is_searched,) = connection.execute("SELECT former FROM indexed").fetchone()
    if is_searched or not connection.execute(f"SELECT 1 FROM former_texts_data WHERE {_PARTS} LIMIT 1").fetchone():
        return 0
    (pages,) = connection.execute("SELECT count(*) FROM former_texts_idx").fetchone()
    return max(1, int(pages))


def clear(connection: sqlite3.Connection, pages: int) -> None:
    """Remove some of what is left over, from the tables below the index: to remove all of it at once would take long."""
    some = f"SELECT id FROM former_texts_data WHERE {_PARTS} LIMIT ?"
    connection.execute(f"DELETE FROM former_texts_data WHERE id IN ({some})", [pages])
    some = "SELECT segid, term FROM former_texts_idx LIMIT ?"
    connection.execute(f"DELETE FROM former_texts_idx WHERE (segid, term) IN ({some})", [pages])
    if not left_over(connection):
        connection.execute("INSERT INTO former_texts (former_texts) VALUES ('delete-all')")
