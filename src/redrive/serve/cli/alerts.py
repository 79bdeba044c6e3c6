"""`redrive alerts`: try who is told of exhausted letters."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import click

from redrive import wiring
from redrive.model.alert import Alert, AlertFailure, AlertKind, Severity
from redrive.model.category import Category
from redrive.model.errors import BadSettings, NotNotified
from redrive.model.letter import letter_id
from redrive.ports.notifier import Notifier
from redrive.serve.cli.options import config_option, json_option, loaded
from redrive.serve.shape import as_json as to_json

_SUMMARY = "This is a test alert from redrive; nothing is wrong."


@click.group("alerts")
def command() -> None:
    """Try the targets that are told of exhausted letters (the setting `alerts`, REDRIVE_ALERTS)."""


@command.command("test")
@click.argument("url", required=False)
@json_option
@config_option
def test(url: str | None, config: Path | None, as_json: bool) -> int:
    """Send a test alert to URL, or to all that are configured, and say what each answered; exit 1 when one did not take it.

    It is sent once, without further tries. At PagerDuty it opens a real incident, of severity info.
    """
    settings = loaded(None, config).settings
    notifiers = [wiring.notifier(url)] if url is not None else wiring.notifiers(settings)
    if not notifiers:
        raise BadSettings(
            "nobody is told of exhausted letters; name a target: redrive alerts test URL, or set alerts (REDRIVE_ALERTS)"
        )
    errors = asyncio.run(_tried(notifiers, _alert(settings.namespace)))
    has_failed = any(error is not None for error in errors)
    if as_json:
        click.echo(to_json({"delivered": not has_failed, "targets": list(map(_shape, notifiers, errors))}))
        return int(has_failed)
    from rich.table import Table
    from rich.text import Text

    from redrive.serve.cli.paper import console, legible

    table = Table.grid(padding=(0, 2))
    for notifier, error in zip(notifiers, errors, strict=True):
        mark = Text("✓", "green") if error is None else Text("✗", "red")
        table.add_row(mark, notifier.name, Text(legible(_said(notifier, error))))
    console().print(table)
    return int(has_failed)


async def _tried(notifiers: list[Notifier], alert: Alert) -> list[NotNotified | None]:
    return list(await asyncio.gather(*(_error(notifier, alert) for notifier in notifiers)))


async def _error(notifier: Notifier, alert: Alert) -> NotNotified | None:
    try:
        await notifier.notify([alert])
    except NotNotified as error:
        return error
    finally:
        await notifier.close()
    return None


def _said(notifier: Notifier, error: NotNotified | None) -> str:
    if error is None:
        return "took it"
    return str(error).removeprefix(f"{notifier.name} ") + (" (another try may help)" if error.transient else "")


def _shape(notifier: Notifier, error: NotNotified | None) -> dict[str, object]:
    return {
        "target": notifier.name,
        "delivered": error is None,
        "error": None if error is None else str(error),
        "transient": error is not None and error.transient,
    }


def _alert(namespace: str) -> Alert:
    now, key = datetime.now(UTC), letter_id(namespace, "redrive", "test").hex
    return Alert(
        id=letter_id(key, now.isoformat(), "test"),
        kind=AlertKind.TEST,
        key=key,
        namespace=namespace,
        source="redrive",
        at=now,
        since=None,
        severity=Severity.INFO,
        summary=_SUMMARY,
        failure=AlertFailure(type="redrive.Test", message=_SUMMARY, category=Category.PERMANENT, fingerprint="test"),
        count=0,
        letters=(),
    )
