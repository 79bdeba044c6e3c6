"""Rules at work: a `Redaction`, compiled, over texts, bytes, JSON and plain values. Never raises, whatever it is given.

JSON is read token by token, not parsed: so a body that breaks off in the middle, which may be why it failed, is redacted as
far as it goes, and all that is not redacted stays byte for byte as it was.
"""

from __future__ import annotations

import codecs
import hashlib
import re
from bisect import bisect_right
from functools import lru_cache
from typing import Any

import msgspec

from redrive.model.redaction import MARK, Redaction, is_mark, mark, steps_of
from redrive.model.redaction_json import Inside, Places, States, redacted_json
from redrive.model.redaction_presets import NAME_STEMS, SECRET_NAME, Span, finders, lowered

_DEEPEST = 100
_CONTROLS = bytes({*range(32), 127} - set(b"\t\n\r\f\x1b"))
_CHARSET = re.compile(r"charset\s*=\s*\"?([\w.:-]{1,40})", re.IGNORECASE)
_TEXTUAL = re.compile(r"text/|.*(?:json|xml|yaml|csv|urlencoded|javascript|graphql)", re.IGNORECASE)
_CALL = "application/vnd.redrive.call"
_BARE_MARK = re.compile(r"(\[redacted:[a-z]+)\]")
_CHARSETS = re.compile(r"utf-(?:16|32)|iso8859|cp12|koi8|shift_jis|euc|gb|big5")
"""Codecs that read bytes as text, and nothing else."""
_CUT = re.compile(r"\n… \d+ characters cut …\n")


class Rules:
    """What a `Redaction` does to values."""

    def __init__(self, redaction: Redaction) -> None:
        self._key = redaction.key.encode("utf-8", "surrogatepass")
        self._patterns = [re.compile(pattern) for pattern in redaction.patterns]
        known = finders() if redaction.presets else {}
        self._finders = [(name, find) for name, find in known.items() if name in redaction.presets]
        self._names_tell = "tokens" in redaction.presets
        self._header = _names(redaction.headers)
        paths = [steps_of(path) for path in redaction.paths]
        # A call keeps its arguments in a list and a table: a path leads into each of them.
        inside = [("args", "[*]"), ("kwargs",), ("kwargs", "*")]
        stems = NAME_STEMS if self._names_tell else ()
        self._places = Places(paths, self._is_secret, stems)
        self._call_places = Places([*paths, *((*way, *path) for way in inside for path in paths)], self._is_secret, stems)
        self.has_texts = bool(self._patterns or self._finders)
        self.has_places = bool(paths) or self._names_tell

    def _is_secret(self, name: str) -> bool:
        return self._names_tell and SECRET_NAME.fullmatch(name) is not None

    def text(self, text: str) -> str:
        """The text with what patterns and presets find in it marked."""
        for pattern in self._patterns:
            text = _searched(pattern, text)
        for name, find in self._finders:
            text = _marked(text, find(text), name)
        return text

    def identity(self, text: str) -> str:
        """An id, which stays another one for each other value: one of its marks holds a digest of what the id was."""
        changed = self.text(text)
        if changed == text:
            return text
        digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12, key=self._key).hexdigest()
        return _BARE_MARK.sub(rf"\1:{digest}]", changed, count=1)

    def prose(self, text: str) -> str:
        """A message or traceback: like `text`; and where its middle was cut out, the words that the cut tore go too."""
        if text and self.has_texts and (cut := _CUT.search(text)) is not None:
            before, after = text[: cut.start()], text[cut.end() :]
            before = before if before[-1:].isspace() else "".join(before.rpartition(" ")[:2])
            after = after if after[:1].isspace() else "".join(after.partition(" ")[1:])
            text = f"{before}{cut[0]}{after}"
        return self.text(text)

    def header(self, name: str, value: bytes) -> bytes:
        """A header's value: hidden whole by its name, else what is found in it."""
        if not value or MARK.fullmatch(value.decode("latin-1")):
            return value
        if self._header is not None and self._header.fullmatch(name):
            return mark("header").encode()
        if self._is_secret(name):
            return mark("tokens").encode()
        return self.body(value, "")

    def body(self, body: bytes, content_type: str) -> bytes:
        """A body: JSON by paths and patterns, MessagePack likewise, other text by patterns; binary stays as it is."""
        if not body or not (self.has_texts or self.has_places):
            return body
        places = self._call_places if content_type.startswith(_CALL) else self._places
        if "msgpack" in content_type:
            return self._packed(body, places)
        codec, errors = _decoding(body, content_type)
        if codec is None:
            return body
        text = body.decode(codec, errors)
        changed = self._document(text, "json" in content_type, places)
        return body if changed == text else changed.encode(codec, errors)

    def _document(self, text: str, is_json: bool, places: Places) -> str:
        if not is_json and text.lstrip("\ufeff \t\r\n")[:1] not in ("{", "["):
            return self.text(text)
        is_escaped = "\\" in text
        suspects = sorted(span for _, find in self._finders for span in find(text))
        # Where no preset finds anything, there is nothing inside the strings either, unless escapes hide it there.
        inside = None
        if suspects or self._patterns or (is_escaped and self._finders):
            everywhere = [(0, len(text))] if self._patterns else suspects
            inside = Inside(text=self.text, name=self.identity, suspects=everywhere, is_sound=_is_sound(text))
        if inside is None and not is_escaped and not places.may_be_in(lowered(text)):
            return text
        changed = redacted_json(text, places, inside)
        # What only begins as JSON does, a line of a log or what broke off, is text too.
        return changed if inside is None or inside.is_sound else self.text(changed)

    def _packed(self, body: bytes, places: Places) -> bytes:
        try:
            value = msgspec.msgpack.decode(body)
            changed = self.value(value, places)
            return body if changed == value else msgspec.msgpack.encode(changed)
        except (msgspec.DecodeError, ValueError, TypeError, OverflowError, RecursionError):
            return body

    def value(self, value: Any, places: Places | None = None) -> Any:
        """A plain value such as metadata: names by paths, texts by patterns, at any depth."""
        places = places or self._places
        return self._walked(value, places, places.start, 0)

    def _walked(self, value: Any, places: Places, states: States, depth: int) -> Any:
        if depth > _DEEPEST:
            return mark("depth")
        match value:
            case None | bool() | float():
                return value
            case str():
                return self.text(value)
            case int():
                return value if self.text(text := str(value)) == text else self.text(text)
            case bytes() | bytearray() | memoryview():
                return self.body(bytes(value), "")
            case dict():
                return {
                    self.identity(name) if isinstance(name, str) else name: self._stepped(item, places, states, name, depth)
                    for name, item in value.items()
                }
            case list() | tuple():
                before = (None, *value)
                items = [
                    mark(rule)
                    if isinstance(item, str | int) and isinstance(flag, str) and (rule := places.follows_flag(flag))
                    else self._stepped(item, places, states, number, depth)
                    for number, (flag, item) in enumerate(zip(before, value, strict=False))
                ]
                return items if isinstance(value, list) else tuple(items)
            case _:
                return self._opened(value, places, states, depth)

    def _stepped(self, item: Any, places: Places, states: States, step: Any, depth: int) -> Any:
        step = step if isinstance(step, str | int) else ""
        inner, rule = places.step(states, step, is_leaf=not isinstance(item, dict | list | tuple))
        if rule is not None and item not in (None, "", b"") and not (isinstance(item, str) and is_mark(item)):
            return mark(rule)
        return self._walked(item, places, inner, depth + 1)

    def _opened(self, value: Any, places: Places, states: States, depth: int) -> Any:
        """A value of another type, which is stored as what it consists of."""
        try:
            plain = msgspec.to_builtins(value, builtin_types=(bytes,))
        except Exception:
            # Whoever stores it says what is wrong with it.
            return value
        if type(plain) is type(value):
            return value
        changed = self._walked(plain, places, states, depth + 1)
        return value if changed == plain else changed


@lru_cache(maxsize=64)
def rules_of(redaction: Redaction) -> Rules:
    """The rules, compiled once."""
    return Rules(redaction)


def _names(names: tuple[str, ...]) -> re.Pattern[str] | None:
    if not names:
        return None
    return re.compile("|".join(re.escape(name).replace(r"\*", ".*") for name in names), re.IGNORECASE | re.DOTALL)


def _is_sound(text: str) -> bool:
    """Is it JSON to its end, in one document or one a line?"""
    raw = text.encode("utf-8", "surrogatepass")
    decoder = msgspec.json.Decoder()
    for decode in (decoder.decode, decoder.decode_lines):
        try:
            decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        return True
    return False


class _Marks:
    """The marks that a text has already; asked in any order, answered at once."""

    def __init__(self, text: str) -> None:
        spans = [found.span() for found in MARK.finditer(text)] if "[redacted:" in text else []
        self._starts = [start for start, _ in spans]
        self._ends = [end for _, end in spans]

    def touch(self, begin: int, end: int) -> bool:
        """Does one of them share a sign with this part of the text?"""
        at = bisect_right(self._ends, begin)
        return at < len(self._starts) and self._starts[at] < end

    def enclose(self, begin: int, end: int) -> bool:
        """Is this part of the text within one of them?"""
        at = bisect_right(self._ends, begin)
        return at < len(self._starts) and self._starts[at] <= begin and end <= self._ends[at]


def _searched(pattern: re.Pattern[str], text: str) -> str:
    """What the pattern finds, marked; marks that are there already stay, unless more than a mark was found."""
    marks = _Marks(text)

    def hidden(found: re.Match[str]) -> str:
        begin, end = found.span()
        return found[0] if begin == end or marks.enclose(begin, end) else mark("pattern")

    return pattern.sub(hidden, text)


def _marked(text: str, spans: list[Span], rule: str) -> str:
    """The text with these parts of it marked, unless a mark is there already."""
    if not spans:
        return text
    marks = _Marks(text)
    told, done = [], 0
    for begin, end in spans:
        if not marks.touch(begin, end):
            told += [text[done:begin], mark(rule)]
            done = end
    return "".join([*told, text[done:]])


def _decoding(body: bytes, content_type: str) -> tuple[str | None, str]:
    """How the bytes are read as text so that they can be written again as they were; no codec: they are not text."""
    if (named := _CHARSET.search(content_type)) is not None:
        try:
            codec = codecs.lookup(named[1]).name
            if _CHARSETS.match(codec) and body.decode(codec).encode(codec) == body:
                return codec, "strict"
        except (LookupError, ValueError, TypeError):
            pass
    try:
        body.decode()
    except UnicodeDecodeError:
        # One bad byte may be why it failed: text is text still. Bytes with control signs among them are another thing.
        is_text = _TEXTUAL.match(content_type) is not None or len(body.translate(None, _CONTROLS)) == len(body)
        return ("utf-8" if is_text else None), "surrogateescape"
    return "utf-8", "strict"
