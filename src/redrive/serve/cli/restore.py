"""`redrive restore`: bring letters back that were put away."""

from __future__ import annotations

from typing import Any

import click

from redrive.engine.bulk import BulkAct
from redrive.serve.cli.acts import act, act_options


@click.command("restore")
@act_options
def command(**options: Any) -> int:
    """Bring back the letters that answer QUERY and that were archived or discarded. They are pending then.

    It counts them first and asks.
    """
    return act(BulkAct.RESTORE, **options)
