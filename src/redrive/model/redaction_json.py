"""JSON with the values at given places, and what is found in its texts, marked; the rest stays sign for sign."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence

from msgspec import Struct

from redrive.model.redaction import MARK, is_mark, mark

Path = tuple[str | int, ...]
States = tuple[tuple[Path, int], ...]
"""How far each path has been followed."""

_TOKEN = re.compile(MARK.pattern + r'|"(?:[^"\\]++|\\.)*+"?|[{}\[\],:]|[^\s{}\[\],:"]++', re.DOTALL)


class Places:
    """Where values are redacted: at the end of a path, or under a name that tells."""

    def __init__(self, paths: Sequence[Path], is_secret: Callable[[str], bool], stems: Sequence[str] = ()) -> None:
        self.start: States = tuple((path, 0) for path in paths)
        self._is_secret = is_secret
        self._needles = [*stems, *(_longest_name(path) for path in paths)]

    def may_be_in(self, lowered: str) -> bool:
        """Can a document in which nothing is escaped have such a place? A look that is much cheaper than reading it."""
        return any(needle in lowered for needle in self._needles)

    def step(self, states: States, step: str | int, *, is_leaf: bool) -> tuple[States, str | None]:
        """One step down: how far the paths are then, and the rule that takes the value there, if one does."""
        inner: dict[tuple[Path, int], None] = {}
        is_taken = False
        name = step.casefold() if isinstance(step, str) else step
        for path, at in states:
            if path[at] == "**":
                inner[path, at] = None
                if at + 1 == len(path):
                    is_taken = True
                    continue
                at += 1
            if _fits(path[at], name):
                if at + 1 == len(path):
                    is_taken = True
                else:
                    inner[path, at + 1] = None
        if is_taken:
            return tuple(inner), "path"
        return tuple(inner), "tokens" if is_leaf and isinstance(step, str) and self._is_secret(step) else None

    def follows_flag(self, before: str | None) -> str | None:
        """The rule that takes an item of a list because of the one before it: `["--password", "hunter2"]`."""
        return "tokens" if before is not None and before[:1] == "-" and self._is_secret(before.lstrip("-")) else None


def _longest_name(path: Path) -> str:
    # What is not ASCII may look otherwise in another case: then only reading tells.
    return max((step for step in path if isinstance(step, str) and step.isascii() and step.strip("[*]")), key=len, default="")


def _fits(wanted: str | int, step: str | int) -> bool:
    if isinstance(step, int):
        return wanted in ("*", "[*]") or wanted == step
    return wanted in ("*", step)


class Inside(Struct, frozen=True, kw_only=True):
    """What is done to texts and numbers, and to the names of an object: those must stay different from each other."""

    text: Callable[[str], str]
    name: Callable[[str], str]
    suspects: Sequence[tuple[int, int]]
    """Parts of the document, in order, in which something was found; texts elsewhere are seen only when they are escaped."""
    is_sound: bool
    """It is JSON to its end. Of one that is not, only what stands in quotes is surely a value."""


class _Level:
    """An object or list that is being read."""

    __slots__ = ("is_list", "name", "number", "states")

    def __init__(self, is_list: bool, states: States) -> None:
        self.is_list = is_list
        self.states = states
        self.number = 0
        self.name: str | None = None
        """In an object the key whose value comes next, None when a key comes next; in a list the text before this item."""


def redacted_json(text: str, places: Places, inside: Inside | None) -> str:
    """The document after `places` took their values, and `inside` saw every text and number that is left."""
    told: list[str] = []
    done = 0
    levels: list[_Level] = []
    suspects = inside.suspects if inside else ()
    suspect = 0
    seen: dict[tuple[States, str | int, bool], tuple[States, str | None]] = {}
    hidden_from: tuple[int, int, str] | None = None
    """Where a container began that goes as a whole, how deep that was, and by which rule."""

    def put(begin: int, end: int, value: str) -> None:
        nonlocal done
        told.append(text[done:begin])
        told.append(value)
        done = end

    def entered(is_leaf: bool) -> tuple[States, str | None]:
        if not levels:
            return places.start, None
        level = levels[-1]
        step = level.number if level.is_list else level.name or ""
        known = seen.get((level.states, step, is_leaf))
        if known is None:
            known = seen[level.states, step, is_leaf] = places.step(level.states, step, is_leaf=is_leaf)
        return known

    for found in _TOKEN.finditer(text):
        token = found[0]
        if token[0] == "[" and len(token) > 1:
            continue
        match token[0]:
            case "{" | "[":
                states, rule = entered(is_leaf=False)
                if rule is not None and hidden_from is None:
                    hidden_from = (found.start(), len(levels), rule)
                levels.append(_Level(found[0] == "[", states))
            case "}" | "]":
                if levels:
                    levels.pop()
                if hidden_from is not None and len(levels) <= hidden_from[1]:
                    put(hidden_from[0], found.end(), f'"{mark(hidden_from[2])}"')
                    hidden_from = None
            case ",":
                if levels:
                    levels[-1].number += 1
                    levels[-1].name = levels[-1].name if levels[-1].is_list else None
            case ":":
                pass
            case _ if hidden_from is not None:
                continue
            case _:
                level = levels[-1] if levels else None
                rule, change = None, inside.text if inside else None
                if level is not None and not level.is_list and level.name is None:
                    level.name, change = _unescaped(token), inside.name if inside else None
                else:
                    rule = entered(is_leaf=True)[1]
                    if level is not None and level.is_list:
                        rule = rule or places.follows_flag(level.name)
                        level.name = _unescaped(token) if token[:2] == '"-' else None
                begin, end = found.span()
                while suspect < len(suspects) and suspects[suspect][1] <= begin:
                    suspect += 1
                is_suspect = suspect < len(suspects) and suspects[suspect][0] < end
                is_value = token[0] == '"' or (inside is not None and inside.is_sound)
                if not is_value or ("\\" not in token and not is_suspect):
                    change = None
                if (value := _scalar(token, rule, change)) is not None:
                    put(*found.span(), value)
    if hidden_from is not None:
        # It broke off in there: all the rest was the value.
        put(hidden_from[0], len(text), f'"{mark(hidden_from[2])}"')
    return "".join([*told, text[done:]])


def _scalar(token: str, rule: str | None, change: Callable[[str], str] | None) -> str | None:
    """What stands for this token; None: the token itself."""
    is_text = token[0] == '"'
    if rule is not None and token not in ('""', "null") and not (is_text and is_mark(token.strip('"'))):
        return f'"{mark(rule)}"'
    if change is None or (not is_text and len(token) < 3):
        return None
    plain = _unescaped(token) if is_text else token
    changed = change(plain)
    return None if changed == plain else _escaped(changed, token)


def _unescaped(token: str) -> str:
    """The text in a token of JSON; what cannot be read is taken as it stands."""
    if "\\" not in token:
        return token.strip('"')
    try:
        return str(json.loads(token, strict=False))
    except ValueError:
        return token.strip('"')


def _escaped(text: str, token: str) -> str:
    """The text as a token, with the signs that were written out in the old one written out again, and the others escaped."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    as_they_were = {sign for sign in token if not sign.isascii()}
    signs = (sign if _is_plain(sign) or sign in as_they_were else json.dumps(sign)[1:-1] for sign in text)
    return f'"{"".join(signs)}"'


def _is_plain(sign: str) -> bool:
    return " " <= sign <= "~" and sign not in '"\\'
