"""Questions as SQL. Three-valued logic is kept out: a comparison with what is not there is false, never NULL."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, assert_never

from redrive.backends.columns import COLUMN, NULLABLE
from redrive.backends.postgres.database import CLOCK
from redrive.backends.postgres.rows import plain
from redrive.backends.postgres.terms import length, term, terms
from redrive.model.errors import BadSettings, Unsupported
from redrive.model.instant import micros
from redrive.model.query import And, At, Field, Has, Is, Not, Op, Or, Query, Text, conjuncts, last_name, looks_behind, phrases
from redrive.model.spelling import spelled
from redrive.model.status import Status
from redrive.model.texts import IN_BODY, IN_TRACEBACK, NOWHERE, Where
from redrive.model.words import needle, words

NOW = f"(SELECT coalesce($1::bigint, {CLOCK}))"
"""For statements whose first parameter is the instant, or NULL for the server's clock. A query of its own: worked out once."""


_INDEXED = 64
"""Characters of a text that an index has."""


class Condition:
    """A question about `letters l` as SQL, and the parameters it brings, behind those that a statement has already.

    The instant stands in the text: a number when a test gave it, else the server's clock, which is the same text always.
    """

    def __init__(
        self,
        schema: str,
        query: Query,
        now: int | None,
        *,
        behind: Sequence[Any] = (),
        is_for_few: bool = False,
    ) -> None:
        """`is_for_few`: asked of a few letters that are at hand, where no index is of use."""
        self._schema = schema
        self._is_for_few = is_for_few
        self.now = f"(SELECT {CLOCK})" if now is None else str(now)
        self.is_leased = f"EXISTS (SELECT 1 FROM {schema}.claims c WHERE c.id = l.id AND c.until > {self.now})"
        self.seen_status = f"CASE WHEN {self.is_leased} THEN 'retrying' ELSE l.status END"
        """A letter's status as people see it."""
        self.is_of_texts = looks_behind(query)
        self.arguments: list[Any] = [*behind]
        self.sql = self._compiled(query, is_must=not is_for_few)

    def parameter(self, value: Any) -> str:
        """A place in the statement for one more value."""
        self.arguments.append(value)
        return f"${len(self.arguments)}"

    def distance(self, query: Query) -> str:
        """How far a letter is from the nearest of the question's phrases; see `redrive.model.query.distance_of`."""
        far = [self._distance(text) for text in phrases(query)]
        return f"least({', '.join(far)})" if far else str(NOWHERE)

    def text(self, value: str) -> str:
        """A place for a text that somebody asks for, as columns hold it."""
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise BadSettings(f"the question holds text that is no valid Unicode: {value!r}") from error
        return f"{self.parameter(plain(value))}::text"

    def _compiled(self, query: Query, *, is_must: bool = False) -> str:
        """The question as SQL. `is_must`: no letter is wanted for which this is false."""
        match query:
            case Is(field=Field.STATUS, value=value, op=op) if op == "=":
                if value == Status.RETRYING:
                    return f"l.id IN (SELECT {self._schema}.held({self.now}))" if is_must else self.is_leased
                return f"(l.status = {self._place(str(value))} AND NOT {self.is_leased})"
            case Is(field=Field.STATUS, value=value, op=op):
                return f'({self.seen_status}) COLLATE "C" {op.value} {self._place(str(value))}'
            case Is(field=Field.TAG, value=value, op=op):
                tags = "jsonb_array_elements_text(coalesce(l.tags, '[]'))"
                return f'EXISTS (SELECT 1 FROM {tags} AS t (tag) WHERE t.tag COLLATE "C" {op.value} {self._place(value)})'
            case Is(field=Field.ERROR, value=value, op=op) if op == "=" and "." in value:
                return f"({self._same('error_name', last_name(value))} AND {likely(f'l.error = {self._place(value)}')})"
            case Is(field=Field.ERROR, value=value, op=op) if op == "=":
                return self._same("error_name", value)
            case Is(field=Field.ERROR, value=value, op=op):
                return f"{'l.error' if '.' in value else 'l.error_name'} {op.value} {self._place(value)}"
            case Is(field=Field.GROUP, value=value, op=op) if op == "=":
                return self._same("fingerprint", value)
            case Is(field=Field.SOURCE, value=value, op=op) if op == "=":
                return self._same("source", value)
            case Is(field=field, value=value, op=op):
                condition = f"{COLUMN[field]} {op.value} {self._place(value)}"
                return f"({COLUMN[field]} IS NOT NULL AND {condition})" if field in NULLABLE else condition
            case Text():
                return self._found(query, is_must=is_must)
            case Has(field=field):
                return f"{'l.tags' if field is Field.TAG else COLUMN[field]} IS NOT NULL"
            case At():
                raise Unsupported(f"PostgreSQL cannot look into bodies and metadata: {spelled(query)}")
            case And(parts=parts):
                return f"({' AND '.join(self._compiled(part, is_must=is_must) for part in parts)})" if parts else "true"
            case Or(parts=parts):
                return f"({' OR '.join(self._compiled(part) for part in parts)})" if parts else "false"
            case Not(part=part):
                return f"NOT ({self._compiled(part)})"
            case _:
                assert_never(query)

    def of_column(self, part: Is) -> str:
        """A part of the question as far as a column tells: whoever holds a letter is not looked for."""
        return f"l.status = {self._place(str(part.value))}" if part.field is Field.STATUS else self._compiled(part)

    def _same(self, column: str, value: str) -> str:
        """Equality with a text of any length, of which an index has the beginning; what is shorter is there as a whole."""
        place = self._place(value)
        begins = f"left(l.{column}, 64) = left({place}, 64)"
        return begins if len(plain(value)) < _INDEXED else f"({begins} AND {likely(f'l.{column} = {place}')})"

    def _found(self, text: Text, *, is_must: bool) -> str:
        told, behind = _has("l.words", text.phrase), _behind(text)
        match text.where:
            case Where.MESSAGE:
                return told
            case Where.TRACEBACK | Where.BODY:
                return self._is_behind(behind)
            case Where.ANYWHERE if is_must:
                # No index helps with either this or that of two tables; two lists of ids do.
                return (
                    f"l.id IN (SELECT w.id FROM {self._schema}.letters w WHERE {_has('w.words', text.phrase)}"
                    f" UNION ALL SELECT t.id FROM {self._schema}.texts t WHERE {behind})"
                )
            case Where.ANYWHERE:
                return f"({told} OR {self._is_behind(behind)})"

    def _is_behind(self, condition: str) -> str:
        """Does what is indexed behind of a letter meet a condition on `texts t`?"""
        if self._is_for_few:
            # For a thousand letters the planner would rather look for all that meet it, in all texts.
            return f"coalesce((SELECT {condition} FROM {self._schema}.texts t WHERE t.id = l.id), false)"
        return f"EXISTS (SELECT 1 FROM {self._schema}.texts t WHERE t.id = l.id AND {condition})"

    def _distance(self, text: Text) -> str:
        steps = []
        if text.where in (Where.MESSAGE, Where.ANYWHERE):
            steps.append(f"WHEN {_has('l.words', text.phrase)} THEN {length('l.words')}")
        for where, far in ((Where.TRACEBACK, IN_TRACEBACK), (Where.BODY, IN_BODY)):
            if text.where in (where, Where.ANYWHERE):
                steps.append(f"WHEN {self._found(Text(text.phrase, where), is_must=False)} THEN {far}")
        return f"CASE {' '.join(steps)} ELSE {NOWHERE} END"

    def _place(self, value: Any) -> str:
        """A place for a value that somebody asks for, as its column holds it."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, datetime):
            return f"{self.parameter(micros(value))}::bigint"
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            return f"{self.parameter(Decimal(value))}::numeric"
        return self.parameter(value)


def likely(condition: str) -> str:
    """What holds for most of those for which a condition before it holds: else the planner takes both for independent, and the
    letters that are found for so few that it would rather sort them all than go along an index.
    """
    return f"coalesce({condition}, false)"


def few_with(schema: str, text: Text, most: int) -> str:
    """A statement that gives the ids of letters that have this phrase, and no more than it takes to know that they are many; nothing where no index
    tells of all of them."""
    if not words(text.phrase):
        return ""
    match text.where:
        case Where.MESSAGE:
            # The newest first: of a common phrase that is by their age, and soon over.
            newest = f"ORDER BY l.dead_lettered_at DESC, l.id DESC LIMIT {most}"
            return f"SELECT l.id FROM {schema}.letters l WHERE {_has('l.words', text.phrase)} {newest}"
        case Where.ANYWHERE:
            told = f"SELECT w.id FROM {schema}.letters w WHERE {_has('w.words', text.phrase)} LIMIT {most}"
            return f"({told}) UNION ALL (SELECT t.id FROM {schema}.texts t WHERE {_behind(text)} LIMIT {most})"
        case Where.TRACEBACK | Where.BODY:
            return ""


_NARROWEST = (Field.GROUP, Field.ERROR, Field.SOURCE, Field.STATUS)
"""Fields of which there is an index, those first of whose values there are most."""


def narrowest(query: Query) -> Is | None:
    """The part of a question that the fewest letters meet, as far as can be told, of those that an index by age has."""
    known = {part.field: part for part in conjuncts(query) if isinstance(part, Is) and part.op is Op.EQ}
    parts = [known[field] for field in _NARROWEST if field in known and known[field].value != Status.RETRYING]
    return parts[0] if parts else None


def is_unsure(query: Query) -> bool:
    """Does the question have a part of which the planner cannot tell how many letters meet it: a phrase that may be anywhere, or in texts of one that
    need not be met? If they are many, they are found sooner by looking at some letters first."""
    for part in conjuncts(query):
        if isinstance(part, Text):
            if part.where is Where.ANYWHERE:
                return True
        elif looks_behind(part):
            return True
    return False


def _behind(text: Text) -> str:
    """Is the phrase in what is indexed behind, of `texts t`?"""
    match text.where:
        case Where.TRACEBACK:
            return _has("t.traceback", text.phrase)
        case Where.BODY:
            return _has("t.body", text.phrase)
        case _:
            return f"({_has('t.traceback', text.phrase)} OR {_has('t.body', text.phrase)})"


def _has(column: str, phrase: str) -> str:
    """Are these words in this column, one after another? First all of them in any order, which an index knows.

    They stand in the text of the statement, and not behind it, so that the planner sees how common they are: a page of a
    common word is found by going through the newest letters, one of a rare word by the index. A word is letters and digits only,
    and a long one is its length and digest.
    """
    exact = f"strpos({column}, '{terms(needle(phrase))}') > 0"
    found = words(phrase)
    if not found:
        return exact
    wanted = ", ".join(f"'{term(word)}'" for word in sorted(set(found)))
    among = f"string_to_array(btrim({column}), ' ') @> ARRAY[{wanted}]"
    # Of one word there is no order to look at.
    return among if len(found) == 1 else f"({among} AND {likely(exact)})"
