"""Letters as CloudEvents 1.0, one event in structured JSON a line: what brokers and other tools take, and back without loss.

The body is the event's data, in its own content type: a JSON value where it is JSON, else base64. All else that a letter has
travels in the extension attribute `redriveletter`: its line, as `redrive.serve.cli.lines` writes it, in base64. Whoever passes
events on may write JSON anew, with other blanks, numbers or order; so a body that is JSON is in that line too, to the byte. By
`redrivesha256`, the digest of the body, it is seen when any other was changed. All other attributes are for others to read.
"""

from __future__ import annotations

import re
from datetime import datetime
from hashlib import sha256
from typing import Any
from urllib.parse import quote

from msgspec import DecodeError, Raw, Struct, json
from msgspec.structs import replace

from redrive.model.errors import BadSettings
from redrive.model.letter import Letter
from redrive.serve.cli.lines import letter_of, line_of

TYPE = "io.redrive.letter.v1"
"""The number is raised when an event changes its meaning."""

_SPECVERSION = "1.0"
_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # noqa: S105 - the word of RFC 2045, no secret
_MEDIA_TYPE = re.compile(rf"(?P<kind>{_TOKEN}/{_TOKEN})(?:[ \t]*;[ -~]*)?")
_NO_CHARACTERS = "".join(chr(plane << 16 | last) for plane in range(17) for last in (0xFFFE, 0xFFFF))
_UNSAYABLE = re.compile(f"[\0-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef{_NO_CHARACTERS}]")
"""What the specification allows in no attribute: controls, halves of pairs, and what is no character."""
_LINE_ENDS = bytes.maketrans(b"\r\n", b"  ")
_NO_DATA = Raw()
_DEEPEST = 100


class _Event(Struct, frozen=True, kw_only=True, omit_defaults=True):
    specversion: str
    id: str
    source: str
    type: str
    time: datetime
    redrivesha256: str
    redriveletter: bytes
    subject: str | None = None
    datacontenttype: str | None = None
    data: Raw = _NO_DATA
    data_base64: bytes | None = None


class _Kind(Struct, frozen=True):
    """As much of an event as says whether it is one of ours."""

    specversion: Any = None
    type: Any = None


def event_of(letter: Letter) -> bytes:
    """The letter, which has its bodies inside, as one line."""
    data = _as_data(letter)
    rest = replace(letter, body=b"") if data is None else letter
    event = _Event(
        specversion=_SPECVERSION,
        id=f"{letter.id}.{letter.generation}",
        source=f"redrive:{quote(letter.namespace, safe='')}/{quote(letter.source, safe='')}",
        type=TYPE,
        time=letter.dead_lettered_at,
        subject=_sayable(letter.source_id),
        datacontenttype=letter.content_type if _MEDIA_TYPE.fullmatch(letter.content_type) else None,
        redrivesha256=sha256(letter.body).hexdigest(),
        redriveletter=line_of(rest).rstrip(),
        data=_NO_DATA if data is None else Raw(data),
        data_base64=letter.body if data is None else None,
    )
    return json.encode(event) + b"\n"


def letter_of_event(line: bytes) -> Letter:
    """The letter in an event that `event_of` made, with its bodies inside; `BadSettings` when it holds none."""
    try:
        _ensure_ours(json.decode(line, type=_Kind))
        event = json.decode(line, type=_Event)
        letter = letter_of(event.redriveletter)
        body = letter.body or _body(event)
    except (DecodeError, ValueError, RecursionError) as error:
        raise BadSettings(f"this event holds no letter: {error}") from error
    if sha256(body).hexdigest() != event.redrivesha256:
        raise BadSettings("this event's data was changed on its way: it is not the body that was exported")
    return replace(letter, body=body)


def _ensure_ours(kind: _Kind) -> None:
    if kind.specversion != _SPECVERSION:
        raise BadSettings(f"this event has specversion {kind.specversion}, this redrive knows {_SPECVERSION}")
    if kind.type != TYPE:
        is_newer = isinstance(kind.type, str) and re.fullmatch(r"io\.redrive\.letter\.v\d+", kind.type)
        hint = "upgrade redrive" if is_newer else "only what redrive export wrote can be imported"
        raise BadSettings(f"this event is of type {kind.type}, this redrive knows {TYPE}; {hint}")


def _as_data(letter: Letter) -> bytes | None:
    """The body as a JSON value on one line; None when it is none or does not say that it is."""
    declared = _MEDIA_TYPE.fullmatch(letter.content_type)
    if declared is None or not declared["kind"].lower().endswith(("/json", "+json")):
        return None
    try:
        value = json.decode(letter.body)
    except (DecodeError, ValueError, RecursionError):
        return None
    if _is_deep(value):
        return None
    # In JSON, a bare line end stands only where a blank may stand.
    return letter.body.translate(_LINE_ENDS).strip()


def _is_deep(value: Any) -> bool:
    """Is it nested so deep that a reader may give up, who has the event around it too?"""
    inner = [value]
    for _ in range(_DEEPEST):
        inner = [
            part for one in inner if isinstance(one, list | dict) for part in (one.values() if isinstance(one, dict) else one)
        ]
    return bool(inner)


def _body(event: _Event) -> bytes:
    """The body that is no JSON; a text may have become one on its way, which the specification allows."""
    if event.data_base64 is not None:
        return event.data_base64
    data = bytes(event.data)
    return json.decode(data, type=str).encode() if data.startswith(b'"') else b""


def _sayable(text: str) -> str | None:
    """The text, where an attribute may hold it."""
    return None if not text or _UNSAYABLE.search(text) else text
