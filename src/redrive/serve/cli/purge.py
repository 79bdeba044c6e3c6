"""`redrive purge`: remove letters for good."""

from __future__ import annotations

from typing import Any

import click

from redrive.engine.bulk import BulkAct
from redrive.serve.cli.acts import act, act_options


@click.command("purge")
@act_options
def command(**options: Any) -> int:
    """Remove the letters that answer QUERY for good, with their bodies; for all of them write all.

    It counts them first and asks. Letters that somebody holds are left alone. Archive what you may still need.
    """
    return act(BulkAct.PURGE, **options)
