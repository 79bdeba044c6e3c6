"""A letter's body in a person's own editor."""

from __future__ import annotations

import os
import sys
from uuid import UUID

import click
from msgspec.structs import replace

from redrive import blocking
from redrive.engine.verdict import why_not
from redrive.model import plain
from redrive.model.errors import BadSettings, IllegalTransition


def edited(dlq: blocking.DeadLetters, id: UUID) -> bytes | None:
    """The body that a person made of a letter's; None: it is as it was. Pretty JSON where it is JSON, compact again after."""
    letter = dlq.get(id)
    if (no := why_not(letter)) is not None:
        # Before somebody works on what could not be written.
        raise IllegalTransition(f"letter {id} cannot be edited: {no.reason}")
    body = dlq.body(letter)
    whole = replace(letter, body=body, body_ref=None)
    if dlq.shown(whole).body != body:
        raise BadSettings(f"the body of letter {id} has what the rules redact, so no editor may show it; use --patch or --body")
    if not _has_editor():
        raise click.UsageError("There is no terminal for an editor; say what to change: --patch, --function, --header or --body.")
    value, draft = _draft(body, str(id))
    while True:
        text = _typed(draft, ".txt" if value is None else ".json")
        if text is None or text == draft:
            return None
        if value is None:
            # Most editors end the last line, also where it had no end.
            text = text.removesuffix(b"\n") if not body.endswith(b"\n") else text
            return None if text == body else text
        try:
            after = plain.written(plain.read(text, "the new body"))
        except BadSettings as error:
            if not sys.stdin.isatty():
                raise BadSettings(f"{error}; nothing was changed") from error
            click.echo(f"Error: {error}", err=True)
            click.confirm("Edit it again?", default=True, abort=True)
            draft = text
            continue
        return None if after == value else after


def _draft(body: bytes, id: str) -> tuple[bytes | None, bytes]:
    """The body as compact JSON, if it is JSON, and the text to be edited."""
    try:
        value = plain.read(body)
        return plain.written(value), plain.written(value, indent=2) + b"\n"
    except BadSettings:
        pass
    try:
        if "\0" in body.decode():
            raise BadSettings(f"the body of letter {id} is no text; give a new one with --body FILE")
    except UnicodeDecodeError as error:
        raise BadSettings(f"the body of letter {id} is no text; give a new one with --body FILE") from error
    return None, body


def _typed(draft: bytes, suffix: str) -> bytes | None:
    try:
        text = click.edit(draft, extension=suffix)
    except click.ClickException as error:
        raise click.ClickException(f"{error.message}; nothing was changed") from error
    except ValueError as error:
        raise click.ClickException(f"EDITOR cannot be read: {error}; nothing was changed") from error
    return None if text is None else bytes(text)


def _has_editor() -> bool:
    return sys.stdin.isatty() or bool(os.environ.get("VISUAL") or os.environ.get("EDITOR"))
