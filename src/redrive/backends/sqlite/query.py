"""Questions as SQL. Three-valued logic is kept out: a comparison with what is not there is false, never NULL."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from functools import lru_cache, partial
from typing import Any, assert_never
from uuid import UUID

from msgspec import msgpack

from redrive.backends.columns import COLUMN, NULLABLE
from redrive.model.instant import micros
from redrive.model.query import And, At, Field, Has, Is, Not, Or, Query, Scalar, Text, conjuncts, last_name, matches, phrases
from redrive.model.status import OPEN, Status
from redrive.model.stored import restored
from redrive.model.texts import IN_BODY, IN_TRACEBACK, NOWHERE, Where
from redrive.model.words import needle, words

WITH_CONTENT = "letters l CROSS JOIN contents t ON t.seq = l.seq"
WHOLE = "CAST(t.data || l.standing AS BLOB)"
"""A letter in its stored form, where its content is joined to it."""
DATA = f"(SELECT {WHOLE} FROM contents t WHERE t.seq = l.seq)"
"""The same where it is not."""
IS_LEASED = "EXISTS (SELECT 1 FROM claims c WHERE c.seq = l.seq AND c.until > ?)"
IS_OPEN = f"+l.status IN ({', '.join(repr(status.value) for status in sorted(OPEN))})"
IS_FREE = f"{IS_OPEN} AND NOT {IS_LEASED}"
"""It can be claimed."""

ON_EVERY_SHELF = "(SELECT group_concat(replace(?, '_', '_' || shelf), ' OR ') FROM shelves)"
"""What to look for in the index of messages: a phrase as `shelved` gives it, wherever it may be."""
_IN_MESSAGE = f"SELECT rowid FROM message_words WHERE message_words MATCH {ON_EVERY_SHELF}"
# The former index is searched for what the new one does not have yet. It is joined behind the row that tells whether there is one: while what is
# left of it is removed page by page, SQLite must not even begin to search it.
_IN_TEXTS = """
    SELECT rowid FROM letter_texts WHERE letter_texts MATCH ?
    UNION ALL SELECT f.rowid FROM indexed i CROSS JOIN former_texts f WHERE i.former AND f.former_texts MATCH ?
        AND f.rowid > i.seq AND f.rowid NOT IN (SELECT seq FROM unindexed)
"""
SEARCHED = "+l.seq <= (SELECT max(seq, former) FROM indexed)"
"""Letters that are not indexed yet are passed over before anything is looked up."""
_HAS_IN_TEXTS = f"""({SEARCHED} AND (
    +l.seq <= (SELECT seq FROM indexed) AND EXISTS (SELECT 1 FROM letter_texts WHERE letter_texts MATCH ? AND rowid = l.seq)
    OR +l.seq > (SELECT seq FROM indexed) AND l.seq NOT IN (SELECT seq FROM unindexed)
        AND EXISTS (SELECT 1 FROM former_texts WHERE former_texts MATCH ? AND rowid = l.seq)
))"""

AT = "redrive_at"
"""A function that every connection knows: does a stored letter match this comparison inside its documents?"""

_decode_at = lru_cache(maxsize=256)(msgpack.Decoder(At).decode)


def at(data: bytes, query: bytes) -> bool:
    """`AT` as Python does it."""
    return matches(_decode_at(query), restored(data))


Condition = tuple[str, list[Any]]
"""A condition on `letters l`, and its parameters."""

INDEXED = frozenset({Field.STATUS, Field.SOURCE, Field.ERROR, Field.GROUP})
"""Fields whose letters lie in an index by their age."""
_MOST_ARGUMENTS = 100
"""Of a function; SQLite takes 127."""


def compiled(
    query: Query,
    now: datetime,
    *,
    rare: Collection[Text] | None = None,
    by: Collection[Field] = INDEXED,
    either: Collection[Field] = (),
) -> Condition:
    """The question as a condition.

    Phrases that are `rare` are looked up once for all letters, others in each letter that comes up; without, all are looked up.
    Of the fields that are `INDEXED`, letters are to be found only `by` these; and only by `either` where one of several parts is enough, for
    those that several indexes give have to be sorted.
    """
    inner = partial(compiled, now=now, rare=rare, by=by, either=either)
    match query:
        case Is(field=Field.STATUS, value=value, op=op) if op == "=":
            if value == Status.RETRYING:
                return "l.seq IN (SELECT c.seq FROM claims c INDEXED BY claims_held WHERE c.until > ?)", [micros(now)]
            return f"({_column(Field.STATUS, by)} = ? AND NOT {IS_LEASED})", [str(value), micros(now)]
        case Is(field=Field.STATUS, value=value, op=op):
            status = f"CASE WHEN {IS_LEASED} THEN 'retrying' ELSE l.status END"
            return f"{status} {op.value} ?", [micros(now), str(value)]
        case Is(field=Field.TAG, value=value, op=op):
            return f"EXISTS (SELECT 1 FROM json_each(l.tags) WHERE value {op.value} ?)", [as_hex(value)]
        case Is(field=Field.ERROR, value=value, op=op):
            # An error's full name ends with the name that its index has.
            if op == "=" and "." in value:
                return f"({_column(Field.ERROR, by)} = ? AND l.error = ?)", [last_name(value), value]
            column = "l.error" if "." in value else _column(Field.ERROR, by)
            return f"{column} {op.value} ?", [value]
        case Is(field=field, value=value, op=op):
            plain = _plain(value)
            condition = f"{_column(field, by)} {op.value} ?"
            if field in NULLABLE:
                condition = f"({COLUMN[field]} IS NOT NULL AND {condition})"
            return condition, [plain]
        case Text():
            return _worded(query, is_rare=rare is None or query in rare)
        case Has(field=field):
            return f"{'l.tags' if field is Field.TAG else COLUMN[field]} IS NOT NULL", []
        case At():
            return f"{AT}({DATA}, ?)", [msgpack.encode(query)]
        case And(parts=parts):
            return _joined(parts, " AND ", "1", inner)
        case Or(parts=parts):
            return _joined(parts, " OR ", "0", partial(inner, by=either))
        case Not(part=Not(part=part)):
            # SQLite's parser takes only so many levels.
            return inner(part)
        case Not(part=part):
            condition, parameters = inner(part)
            return f"NOT ({condition})", parameters
        case _:
            assert_never(query)


def compiled_for_few(query: Query, now: datetime) -> Condition:
    """The same for a few letters that are at hand: all is looked for in each, and no index is of use."""
    return compiled(query, now, rare=(), by=())


def matching(text: Text) -> Condition | None:
    """The numbers of the letters that have a phrase, by the indexes of words; None when it has no word."""
    found = words(text.phrase)
    if not found:
        return None
    match text.where:
        case Where.MESSAGE:
            return _IN_MESSAGE, [shelved(found)]
        case Where.ANYWHERE:
            sql, parameters = in_texts(text)
            return f"{_IN_MESSAGE} UNION ALL {sql}", [shelved(found), *parameters]
        case Where.TRACEBACK | Where.BODY:
            return in_texts(text)


def in_texts(text: Text) -> Condition:
    """The numbers of the letters that have a phrase in their texts; it has a word."""
    phrase = f'"{" ".join(words(text.phrase))}"'
    wanted = phrase if text.where is Where.ANYWHERE else f"{text.where} : {phrase}"
    return _IN_TEXTS, [wanted, wanted]


def shelved(phrase: Sequence[str]) -> str:
    """The words of a phrase as the index of messages has them, but for the number of the shelf."""
    return f'"{"_ ".join(phrase)}_"'


def distance(query: Query) -> Condition:
    """How far a letter is from the nearest of the question's phrases; see `redrive.model.query.distance_of`."""
    wanted = phrases(query)
    if len(wanted) == 1 and wanted[0].where is Where.MESSAGE and wanted[0] in conjuncts(query):
        # Whatever is found has it in its message.
        return "length(l.words)", []
    parts, parameters = [str(NOWHERE)], []
    for text in wanted:
        cases = []
        for where, far in ((Where.MESSAGE, "length(l.words)"), (Where.TRACEBACK, IN_TRACEBACK), (Where.BODY, IN_BODY)):
            if text.where in (where, Where.ANYWHERE):
                condition, more = _worded(Text(text.phrase, where), is_rare=True)
                cases.append(f"WHEN {condition} THEN {far}")
                parameters += more
        parts.append(f"CASE {' '.join(cases)} ELSE {NOWHERE} END")
    return _least(parts), parameters


def _least(parts: Sequence[str]) -> str:
    """The least of numbers, which SQLite tells of a hundred at a time."""
    if len(parts) > _MOST_ARGUMENTS:
        parts = [_least(parts[start : start + _MOST_ARGUMENTS]) for start in range(0, len(parts), _MOST_ARGUMENTS)]
        return _least(parts)
    return f"min({', '.join(parts)}, {NOWHERE})"


def _worded(text: Text, *, is_rare: bool) -> Condition:
    found = matching(text)
    if found is None:
        return "0", []
    if is_rare:
        return f"l.seq IN ({found[0]})", found[1]
    in_message = "instr(l.words, ?)"
    match text.where:
        case Where.MESSAGE:
            return in_message, [needle(text.phrase)]
        case Where.ANYWHERE:
            return f"({in_message} OR {_HAS_IN_TEXTS})", [needle(text.phrase), *found[1][1:]]
        case _:
            return _HAS_IN_TEXTS, found[1]


def _column(field: Field, by: Collection[Field]) -> str:
    """The field's column, kept from its index when others are to be used."""
    column = "l.error_name" if field is Field.ERROR else COLUMN[field]
    return column if field in by or field not in INDEXED else f"+{column}"


def as_hex(tag: str) -> str:
    """A tag as its column's JSON holds it: SQLite's JSON ends a text at a NUL, and hexadecimal sorts as the text does."""
    return tag.encode("utf-8", "surrogatepass").hex()


def _plain(value: Scalar) -> str | int | float | bytes:
    """The value as the column holds it."""
    if isinstance(value, datetime):
        return micros(value)
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        # Beyond what SQLite's integers hold; as a float it compares as it should.
        return float(value)
    return value.bytes if isinstance(value, UUID) else value


def _joined(parts: tuple[Query, ...], word: str, empty: str, inner: Callable[[Query], Condition]) -> Condition:
    """The parts as a balanced tree: SQLite refuses a chain of more than a thousand."""
    if not parts:
        return empty, []
    if len(parts) == 1:
        return inner(parts[0])
    half = len(parts) // 2
    left, first = _joined(parts[:half], word, empty, inner)
    right, second = _joined(parts[half:], word, empty, inner)
    return f"({left}{word}{right})", [*first, *second]
