"""What is secret everywhere: payment cards, e-mail addresses, tokens and passwords, found in any text.

Each is looked for by a few signs that it must have (an `@`, `://`, `password`), which is fast, and then read from there by a
pattern that never goes back: so no text, however it was made, takes more than linear time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache

Span = tuple[int, int]
Finder = Callable[[str], list[Span]]
"""Where the secrets in a text begin and end: in order, none inside another."""

_STRONG = (
    r"pass(?:word|wd|phrase|code)|pwd|secret(?:[_-]?(?:access[_-]?)?key)?|api[_-]?key|access[_-]?key|private[_-]?key"
    r"|(?:access|refresh|auth|id|session|bearer|api|csrf)[_-]?token|credentials?"
)
SECRET_NAME = re.compile(rf".*(?:{_STRONG})|(?:.*[_.-])?(?:token|cvv|cvc|authorization|cookie)", re.IGNORECASE | re.DOTALL)
"""Of a header or a key in JSON whose value is secret."""
NAME_STEMS = ("pass", "pwd", "secret", "key", "token", "credential", "cvv", "cvc", "authorization", "cookie")
"""One of these is in every such name."""

_OPENED = r"""(?:\s{0,8}+:[\w.| ]{1,40}+=\s{0,8}+(?=["'])|[\\"']{0,4}\s{0,8}+(?:[=:]{1,2}+>?+)\s{0,8}+\\{0,3})"""
"""Between a name and its value: in texts, URLs, JSON, and in the lines of source (`password: str = "…"`) that tracebacks quote."""
_SCHEME = r"(?:(?:bearer|basic|digest|token|apikey|negotiate)\s{1,8}+)?+"
_VALUE = r"""(?:"[^"\n]++"|'[^'\n]++'|[^\s"'&,;<>{}\[\]()\\]++)"""
_LATER = r"""(?:[\\"']{0,3},?\s{1,4}+\\{0,3}(?!-))"""
_NAMES = {
    "pass": r"pass(?:word|wd|phrase|code)",
    "pwd": "pwd",
    "secret": r"secret(?:[_-]?(?:access[_-]?)?key)?+",
    "key": r"(?:(?<=api)|(?<=api[_-])|(?<=access)|(?<=access[_-])|(?<=private)|(?<=private[_-]))key",
    "credential": "credentials?+",
    "authorization": "authorization",
}
_ANY_CASE = {
    **{stem: rf"{name}(?:{_OPENED}{_SCHEME}({_VALUE})|{_LATER}(?P<later>{_VALUE}))" for stem, name in _NAMES.items()},
    "token": rf"token(?:{_OPENED}((?=\S{{8}}){_VALUE})|{_LATER}(?P<later>{_VALUE}))",
    "bearer": r"(?<!\w)bearer\s{1,8}+((?=[\w.~+/=-]{0,64}?(?:[0-9=]|(?-i:[a-z][A-Z])))[\w.~+/=-]{8,}+)",
    "basic": r"(?<!\w)basic\s{1,8}+((?=[\w.~+/=-]{0,64}?(?:[0-9=]|(?-i:[a-z][A-Z])))[\w.~+/=-]{8,}+)",
}
_EXACT = {
    "://": r"""://[^\s/?#:@"'<>]*+:([^\s/?#@"'<>]++)@""",
    "eyJ": r"(?<![\w-])(eyJ[\w-]{8,}+\.[\w-]{8,}+(?:\.[\w-]*+){1,3}+)",
    **{start: rf"(?<![A-Za-z0-9])({start}[0-9A-Z]{{16}})(?![A-Za-z0-9])" for start in ("AKIA", "ASIA")},
    "AIza": r"(?<![A-Za-z0-9])(AIza[\w-]{35})(?![\w-])",
    "SG.": r"(?<![A-Za-z0-9])(SG\.[\w-]{16,}+\.[\w-]{16,}+)",
    "ya29.": r"(?<![A-Za-z0-9])(ya29\.[\w-]{16,}+)",
    "-----BEGIN": r"(-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[^-]*+(?:-(?!----)[^-]*+)*+(?:-----END [A-Z ]{0,40}PRIVATE KEY-----)?+)",
    **{
        start: rf"(?<![A-Za-z0-9])({start}[\w-]{{16,}}+)"
        for start in (
            *("sk-", "sk_live_", "sk_test_", "rk_live_", "rk_test_", "github_pat_", "glpat-", "npm_", "pypi-", "hf_", "dop_v1_"),
            *("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "xoxa-", "xoxb-", "xoxe-", "xoxp-", "xoxr-", "xoxs-", "shpat_", "whsec_"),
        )
    },
}

_LOCAL = re.compile(r"[\w.+%-]")
_LONGEST_LOCAL = 254
_DOMAIN = re.compile(r"(?:@|%40)((?:[^\W_](?:[\w-]{0,62}+)\.)+[^\W\d_]{2,63})")

_NUMBER = r"(?<![0-9A-Za-z])(?<![0-9]\.)(?:[0-9]{13,19}+|[0-9]{4}(?:[ -][0-9]{3,6}+)++)(?![0-9A-Za-z])"
_ISSUER = (
    r"4|5[1-5]|2(?:22[1-9]|2[3-9]|[3-6]|7[01]|720)|3[47]|6(?:011|4[4-9]|5|2)|3(?:0[0-5]|6|8|9)|35(?:2[89]|[3-8])"
    r"|50(?:18|20|38)|5893|6304|67(?:59|6[1-3])"
)
_DIGITS = bytes.maketrans(b"0123456789", bytes(range(10)))
_DOUBLED = bytes.maketrans(bytes(range(10)), bytes([0, 2, 4, 6, 8, 1, 3, 5, 7, 9]))


@lru_cache(maxsize=1)
def finders() -> dict[str, Finder]:
    """Each preset by its name, compiled when it is first wanted."""
    return {"tokens": _tokens(), "cards": _cards(), "emails": _emails}


def lowered(text: str) -> str:
    """The text in lower case, sign for sign as long as it was."""
    lower = text.lower()
    return lower if len(lower) == len(text) else "".join(sign.lower() if sign.isascii() else sign for sign in text)


def _starts(text: str, stem: str) -> Iterator[int]:
    at = text.find(stem)
    while at >= 0:
        yield at
        at = text.find(stem, at + len(stem))


def _tokens() -> Finder:
    any_case = {stem: re.compile(pattern, re.IGNORECASE) for stem, pattern in _ANY_CASE.items()}
    exact = {stem: re.compile(pattern) for stem, pattern in _EXACT.items()}

    def find(text: str) -> list[Span]:
        spans: list[Span] = []
        for seen, announced in ((lowered(text), any_case), (text, exact)):
            for stem, pattern in announced.items():
                at = seen.find(stem)
                while at >= 0:
                    span = _value(pattern, text, at)
                    if span is not None:
                        spans.append(span)
                    # What is within a secret announces no other one; and reading it again and again would take for ever.
                    at = seen.find(stem, max(at + len(stem), span[1] if span else 0))
        return _joined(spans)

    return find


def _value(pattern: re.Pattern[str], text: str, at: int) -> Span | None:
    """Where the secret is that is announced here."""
    found = pattern.match(text, at)
    if found is None or found.lastindex is None:
        return None
    if found.lastgroup == "later" and not _is_flag(text, at):
        return None
    begin, end = found.span(found.lastindex)
    if end - begin > 2 and text[begin] == text[end - 1] and text[begin] in "\"'":
        # The quotes stay: what was a text in source or JSON is one still.
        return begin + 1, end - 1
    return begin, end


def _is_flag(text: str, at: int) -> bool:
    """Does an option of a program stand here: `--password hunter2`, `--db-password`?"""
    begin = text.rfind("--", max(0, at - 40), at)
    return begin >= 0 and text[begin:at].replace("-", "").replace("_", "").isalnum() | (begin + 2 == at)


def _joined(spans: list[Span]) -> list[Span]:
    joined: list[Span] = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return joined


def _emails(text: str) -> list[Span]:
    spans: list[Span] = []
    floor = 0
    for at in sorted([*_starts(text, "@"), *_starts(text, "%40")]):
        found = _DOMAIN.match(text, at)
        begin, least = at, max(floor, at - _LONGEST_LOCAL)
        while found is not None and begin > least and _LOCAL.match(text, begin - 1):
            begin -= 1
        floor = at + 1
        if found is not None and begin < at:
            spans.append((begin, found.end()))
            floor = found.end()
    return spans


def _cards() -> Finder:
    number, issuer, group = re.compile(_NUMBER), re.compile(_ISSUER), re.compile("[0-9]+")

    def find(text: str) -> list[Span]:
        spans = []
        for found in number.finditer(text):
            groups = [piece.span() for piece in group.finditer(text, *found.span())]
            first = 0
            while first < len(groups):
                last = _card_end(text, groups, first) if issuer.match(text, groups[first][0]) else None
                if last is not None:
                    spans.append((groups[first][0], groups[last][1]))
                first = first + 1 if last is None else last + 1
        return spans

    return find


def _card_end(text: str, groups: list[Span], first: int) -> int | None:
    """The last group of the card number that begins with this one, if there is one."""
    digits = ""
    for number in range(first, min(first + 5, len(groups))):
        digits += text[slice(*groups[number])]
        if len(digits) > 19:
            return None
        if len(digits) >= 13 and _passes_luhn(digits.encode().translate(_DIGITS)):
            return number
    return None


def _passes_luhn(digits: bytes) -> bool:
    return (sum(digits[-1::-2]) + sum(digits[-2::-2].translate(_DOUBLED))) % 10 == 0
