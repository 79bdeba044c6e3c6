"""`redrive discard`: give letters up, for a reason."""

from __future__ import annotations

from typing import Any

import click

from redrive.engine.bulk import BulkAct
from redrive.serve.cli.acts import act, act_options


@click.command("discard")
@click.option("--reason", required=True, metavar="TEXT", help="Why; it is kept with each letter.")
@act_options
def command(reason: str, **options: Any) -> int:
    """Give up the letters that answer QUERY: the record of each stays, with the reason, until it is purged.

    It counts them first and asks. Letters that somebody holds are left alone.
    """
    return act(BulkAct.DISCARD, reason=reason, **options)
