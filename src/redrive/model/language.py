"""The query language, read: `status:exhausted error:TimeoutError age>1d "connection refused"` becomes a tree.

Conditions side by side must all hold; `and`, `or`, `not` and parentheses say more. Instants are read against the `now` that is
given, so that a tree means the same for ever. `redrive.model.spelling` writes it back.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn
from uuid import UUID

from msgspec import DecodeError, Struct, json

from redrive.model.category import Category
from redrive.model.duration import duration
from redrive.model.errors import BadQuery
from redrive.model.hint import hint
from redrive.model.query import EVERYTHING, NOTHING, And, At, Field, Has, Is, JsonScalar, Not, Op, Or, Place, Query, Text
from redrive.model.status import Status
from redrive.model.texts import Where
from redrive.model.words import words

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<bracket>[()])
      | (?P<quoted>"(?:[^"\\]|\\.)*")
      | (?P<name>[A-Za-z_][\w-]*(?:\.(?:[\w-]+|"(?:[^"\\]|\\.)*")|\[\d+\])*) \s* (?P<op>>=|<=|:|=|>|<|~) \s*
        (?P<value>"(?:[^"\\]|\\.)*"|[^\s()"]*)
      | (?P<word>[^\s()"]+)
    )""",
    re.VERBOSE,
)
_STEP = re.compile(r'\.([\w-]+)|\.("(?:[^"\\]|\\.)*")|\[(\d+)\]')
_OPS = {":": Op.EQ, "=": Op.EQ, ">": Op.GT, ">=": Op.GE, "<": Op.LT, "<=": Op.LE}
_OLDER = {Op.GT: Op.LT, Op.GE: Op.LE, Op.LT: Op.GT, Op.LE: Op.GE}
"""The older a letter is, the earlier it died."""

_NUMBERS = frozenset({Field.PRIORITY, Field.ATTEMPTS, Field.GENERATION})
_INSTANTS = frozenset({Field.DEAD_LETTERED_AT, Field.UPDATED_AT, Field.NEXT_RETRY_AT, Field.EXPIRES_AT})
HAS = {
    "key": Field.KEY, "kind": Field.KIND, "tag": Field.TAG, "retry": Field.NEXT_RETRY_AT, "expiry": Field.EXPIRES_AT,
}  # fmt: skip
_SPECIAL = ("age", "since", "until", "has")
ALL, NONE = "all", "none"
_DEEPEST = 50
_INTEGERS = range(-(2**63), 2**64)
"""What stores can be asked for inside documents."""
_DIGITS = 20


class _Token(Struct, frozen=True):
    kind: str
    text: str
    column: int
    """Counted from 1."""
    op: str = ""
    value: str = ""
    value_column: int = 0


def parse(text: str, now: datetime) -> Query:
    """The question that a text asks; `BadQuery` points at the column where it cannot be read. An empty text asks for all."""
    reader = _Reader(text, now)
    return reader.read()


class _Reader:
    """Reads one text from left to right."""

    def __init__(self, text: str, now: datetime) -> None:
        self._text = text
        self._now = now
        self._tokens = list(_tokens(text))
        self._next = 0

    def read(self) -> Query:
        if not self._tokens:
            return EVERYTHING
        query = self._either(0)
        if (left := self._peek()) is not None:
            raise self._wrong("there is no '(' for this ')'", left.column, left.text)
        return query

    def _either(self, depth: int) -> Query:
        parts = [self._all(depth)]
        while self._takes("or"):
            parts.append(self._all(depth))
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def _all(self, depth: int) -> Query:
        parts = [self._one(depth)]
        while True:
            if self._takes("and"):
                parts.append(self._one(depth))
            elif (token := self._peek()) is None or token.text == ")" or _is_word(token, "or"):
                return parts[0] if len(parts) == 1 else And(tuple(parts))
            else:
                parts.append(self._one(depth))

    def _one(self, depth: int) -> Query:
        token = self._peek()
        if token is None:
            raise self._wrong("something is missing at the end", len(self._text) + 1, "")
        if depth > _DEEPEST:
            raise self._wrong(f"more than {_DEEPEST} levels of parentheses or 'not'", token.column, token.text)
        self._next += 1
        match token:
            case _Token(kind="bracket", text="("):
                inner = self._either(depth + 1)
                closing = self._peek()
                if closing is None or closing.text != ")":
                    raise self._wrong("this '(' is not closed", token.column, token.text)
                self._next += 1
                return inner
            case _Token(kind="bracket"):
                raise self._wrong("nothing stands before this ')'", token.column, token.text)
            case _Token(kind="name"):
                return self._condition(token)
            case _Token(kind="quoted"):
                return self._phrase(_unquoted(token.text), token)
            case _ if _is_word(token, "not"):
                return Not(self._one(depth + 1))
            case _ if _is_word(token, ALL):
                return EVERYTHING
            case _ if _is_word(token, NONE):
                return NOTHING
            case _ if _is_word(token, "and") or _is_word(token, "or"):
                raise self._wrong(
                    f"nothing stands before this '{token.text}'; for the word itself write \"{token.text}\"",
                    token.column,
                    token.text,
                )
            case _:
                return self._phrase(token.text, token)

    def _phrase(self, phrase: str, token: _Token) -> Query:
        if not words(phrase):
            raise self._wrong("there is no word in this text", token.column, token.text)
        return Text(phrase)

    def _words(self, token: _Token, name: str, value: str) -> Query:
        if name not in set(Where):
            raise self._wrong(f"words are not looked for in '{token.text}'; {hint(name, list(Where))}", token.column, token.text)
        if not words(value):
            raise self._wrong("there is no word in this text", token.value_column, token.value)
        return Text(value, Where(name))

    def _condition(self, token: _Token) -> Query:
        name, value = token.text.lower(), token.value
        value = _unquoted(value) if value.startswith('"') else value
        if not value and not token.value:
            raise self._wrong(f"what should {token.text} be? Nothing stands behind the '{token.op}'", token.value_column, "")
        if token.op == "~":
            return self._words(token, name, value)
        op = _OPS[token.op]
        place = re.match(r"\w+", name)
        if place is not None and place[0] in set(Place):
            return At(Place(place[0]), self._path(token), self._json(token, value), op)
        match name:
            case "age":
                return Is(Field.DEAD_LETTERED_AT, self._now - self._duration(token, value), _OLDER.get(op) or self._no_op(token))
            case "since":
                return Is(Field.DEAD_LETTERED_AT, self._instant(token, value), Op.GE if op is Op.EQ else self._no_op(token))
            case "until":
                return Is(Field.DEAD_LETTERED_AT, self._instant(token, value), Op.LT if op is Op.EQ else self._no_op(token))
            case "has":
                return Has(HAS[self._chosen(token, value, HAS)])
        if name not in set(Field):
            known = [*Field, *_SPECIAL, *(f"{place}.…" for place in Place)]
            raise self._wrong(f"there is no field '{token.text}'; {hint(name, known)}", token.column, token.text)
        return Is(Field(name), self._value(token, Field(name), value), op)

    def _value(self, token: _Token, field: Field, value: str) -> Any:
        if field in _NUMBERS:
            if not re.fullmatch(r"[+-]?\d{1,30}", value):
                raise self._wrong(f"{field} is a whole number, not '{value}'", token.value_column, token.value)
            return int(value)
        if field in _INSTANTS:
            return self._instant(token, value)
        match field:
            case Field.STATUS:
                return self._chosen(token, value, list(Status))
            case Field.CATEGORY:
                return self._chosen(token, value, list(Category))
            case Field.KEY:
                return self._key(token, value)
            case Field.ID:
                try:
                    return UUID(value)
                except ValueError:
                    raise self._wrong(
                        f"'{value}' is not a letter's whole id, such as {UUID(int=0)}", token.value_column, token.value
                    ) from None
            case _:
                return value

    def _key(self, token: _Token, value: str) -> bytes:
        if not value.startswith("0x") or token.value.startswith('"'):
            return value.encode("utf-8", "surrogatepass")
        try:
            return bytes.fromhex(value[2:])
        except ValueError:
            raise self._wrong(
                f"'{value}' begins as hexadecimal, but is not; quote a key that is a text", token.value_column, token.value
            ) from None

    def _path(self, token: _Token) -> tuple[str | int, ...]:
        return tuple(self._step(token, step) for step in _STEP.finditer(token.text))

    def _step(self, token: _Token, step: re.Match[str]) -> str | int:
        plain, quoted, number = step.groups()
        if number is None:
            return plain if quoted is None else _unquoted(quoted)
        if len(number) > _DIGITS or int(number) not in _INTEGERS:
            raise self._wrong("no list has so many elements", token.column + step.start(3), number)
        return int(number)

    def _json(self, token: _Token, value: str) -> JsonScalar:
        """A quoted value is a text; a number, true, false and null are what they look like; all else is a text."""
        if token.value.startswith('"'):
            return value
        try:
            plain = json.decode(value)
        except DecodeError:
            return value
        if isinstance(plain, int) and plain not in _INTEGERS:
            raise self._wrong("this number is beyond 64 bits; write it as 1e20, or quote a text", token.value_column, token.value)
        return plain if isinstance(plain, str | int | float | bool) or plain is None else value

    def _instant(self, token: _Token, value: str) -> datetime:
        if (span := duration(value.removeprefix("+"))) is not None:
            return self._shifted(token, span if value.startswith("+") else -span)
        try:
            instant = datetime.fromisoformat(value)
        except ValueError:
            raise self._wrong(
                f"'{value}' is no instant; write 2025-06-01, 2025-06-01T12:00:00Z, 7d (ago) or +2h (from now)",
                token.value_column,
                token.value,
            ) from None
        return instant if instant.tzinfo is not None else instant.replace(tzinfo=UTC)

    def _shifted(self, token: _Token, by: timedelta) -> datetime:
        try:
            return self._now + by
        except OverflowError:
            raise self._wrong(f"'{token.value}' lies beyond the calendar", token.value_column, token.value) from None

    def _duration(self, token: _Token, value: str) -> timedelta:
        if (span := duration(value)) is None:
            raise self._wrong(f"'{value}' is no duration; write 30s, 15m, 12h, 7d or 2w", token.value_column, token.value)
        self._shifted(token, -span)
        return span

    def _no_op(self, token: _Token) -> NoReturn:
        how = "age>1d or age<1d" if token.text.lower() == "age" else f"{token.text.lower()}:1d"
        raise self._wrong(f"{token.text} does not take '{token.op}'; write {how}", token.column, token.text + token.op)

    def _chosen(self, token: _Token, value: str, known: Any) -> str:
        if value in known:
            return value
        raise self._wrong(f"{token.text} cannot be '{value}'; {hint(value, known)}", token.value_column, token.value)

    def _wrong(self, what: str, column: int, at: str) -> BadQuery:
        return BadQuery(what, text=self._text, column=column, width=max(len(at), 1))

    def _peek(self) -> _Token | None:
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    def _takes(self, word: str) -> bool:
        token = self._peek()
        if token is None or not _is_word(token, word):
            return False
        self._next += 1
        return True


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while position < len(text.rstrip()):
        found = _TOKEN.match(text, position)
        if found is None:
            start = len(text) - len(text[position:].lstrip())
            raise BadQuery("this quotation is not closed", text=text, column=start + 1, width=1)
        position = found.end()
        kind = next(kind for kind in ("bracket", "quoted", "name", "word") if found[kind] is not None)
        yield _Token(kind, found[kind], found.start(kind) + 1, found["op"] or "", found["value"] or "", found.start("value") + 1)


def _is_word(token: _Token, word: str) -> bool:
    return token.kind == "word" and token.text.lower() == word


def _unquoted(text: str) -> str:
    try:
        return str(json.decode(text))
    except DecodeError:
        # Not an escape that JSON knows: take the sign itself.
        return re.sub(r"\\(.)", r"\1", text[1:-1])
