"""`redrive capture`: make a letter from the shell."""

from __future__ import annotations

import base64
import binascii
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from msgspec import UNSET, DecodeError, Raw, Struct, UnsetType, ValidationError, json

from redrive.engine.capture import Labels, Try, captured
from redrive.engine.describe import clean, told
from redrive.engine.extract import BYTES, JSON, TEXT
from redrive.engine.redact import Redactor
from redrive.model.errors import BadSettings
from redrive.model.letter import Letter, headers
from redrive.model.message import Message
from redrive.serve.cli.options import config_option, json_option, loaded, store_option
from redrive.serve.shape import as_json as to_json


class Line(Struct, forbid_unknown_fields=True, kw_only=True):
    """One line of `--lines`."""

    source_id: str | None = None
    source: str | None = None
    body: Raw | UnsetType = UNSET
    body_base64: str | UnsetType = UNSET
    headers: dict[str, str] = {}
    error: str | None = None
    message: str | None = None


@click.command("capture")
@click.option("--source", required=True, help="Where the message came from.")
@click.option("--source-id", help="The message's own id; without one, each capture is a letter of its own.")
@click.option("--error", default="Error", show_default=True, help="The error's type.")
@click.option("--message", default="", help="The error's text.")
@click.option("--header", "header_list", multiple=True, metavar="NAME=VALUE", help="A header; may be given often.")
@click.option("--content-type", help="The body's type. [default: by its looks]")
@click.option("--tag", "tags", multiple=True, help="A tag; may be given often.")
@click.option("--lines", is_flag=True, help="One JSON object a line: source_id, body (or body_base64), headers, error, message.")
@json_option
@store_option
@config_option
def command(lines: bool, as_json: bool, store: str | None, config: Path | None, **given: Any) -> None:
    """Make a letter from the message on standard input.

    With --lines each line is a letter, all or none: nothing is held when one line is wrong.
    """
    if lines and given["source_id"] is not None:
        raise click.UsageError("With --lines each line has its own source_id; leave --source-id out.")
    for name in ("source", "error", "message"):
        given[name] = clean(given[name])
    if sys.stdin is not None and sys.stdin.isatty():
        click.echo("Reading the body from the terminal; end it with Ctrl-D.", err=True)
    raw = sys.stdin.buffer.read() if sys.stdin is not None else b""
    settings = loaded(store, config).settings
    labels = {"namespace": settings.namespace, "source": given["source"], "tags": tuple(map(clean, given["tags"]))}
    if lines:
        letters = [_from_line(text, number, given, labels) for number, text in enumerate(raw.splitlines(), 1) if text.strip()]
    else:
        message = Message(
            body=raw,
            content_type=given["content_type"] or _looks(raw),
            id=given["source_id"],
            headers=headers(_pairs(given["header_list"])),
        )
        letters = [_letter(message, given["error"], given["message"], Labels(**labels))]
    from redrive import blocking, wiring

    with blocking.DeadLetters(wiring.connect(settings)) as dlq:
        if settings.redact:
            # Here already, for the ids that are told below: one that is redacted is another one.
            letters = Redactor(settings.redact).letters(letters)
        held = dlq.hold(letters)
    if as_json:
        click.echo(
            to_json({"letters": [{"id": str(letter.id), "held": how.value} for letter, how in zip(letters, held, strict=True)]})
        )
    elif len(letters) == 1:
        click.echo(f"{letters[0].id}  {held[0]}")
    else:
        click.echo(f"{len(letters)} letters held.")


def _from_line(text: bytes, number: int, given: dict[str, Any], labels: dict[str, Any]) -> Letter:
    try:
        line = json.decode(text, type=Line)
        body, content_type = _body(line)
    except (DecodeError, ValidationError, binascii.Error, UnicodeDecodeError) as error:
        raise BadSettings(f"line {number} cannot be read: {error}; nothing was held") from error
    merged = headers([*_pairs(given["header_list"]), *line.headers.items()])
    message = Message(body=body, content_type=given["content_type"] or content_type, id=line.source_id, headers=merged)
    return _letter(
        message,
        line.error or given["error"],
        line.message or given["message"],
        Labels(**{**labels, "source": line.source or labels["source"]}),
    )


def _body(line: Line) -> tuple[bytes, str]:
    if line.body_base64 is not UNSET and line.body is not UNSET:
        raise ValidationError("give body or body_base64, not both")
    if line.body_base64 is not UNSET:
        return base64.b64decode(line.body_base64, validate=True), BYTES
    if line.body is UNSET:
        return b"", BYTES
    raw = bytes(line.body)
    return (json.decode(raw, type=str).encode(), TEXT) if raw.startswith(b'"') else (raw, JSON)


def _letter(message: Message, error: str, text: str, labels: Labels) -> Letter:
    now = datetime.now(UTC)
    failure = told(error, text, known_as=[error, f"builtins.{error}"])
    return captured(message, [Try(at=now, failure=failure)], labels, now=now)


def _looks(raw: bytes) -> str:
    """JSON when it reads as an object or a list, text when it is UTF-8, else bytes."""
    if raw.lstrip()[:1] in (b"{", b"["):
        try:
            json.decode(raw)
        except DecodeError:
            pass
        else:
            return JSON
    try:
        raw.decode()
    except UnicodeDecodeError:
        return BYTES
    return TEXT


def _pairs(given: tuple[str, ...]) -> list[tuple[str, str]]:
    pairs = []
    for pair in given:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise click.UsageError(f"'{pair}' is not a header; write NAME=VALUE")
        pairs.append((name, value))
    return pairs
