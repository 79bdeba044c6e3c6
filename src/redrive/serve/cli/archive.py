"""`redrive archive`: put letters away."""

from __future__ import annotations

from typing import Any

import click

from redrive.engine.bulk import BulkAct
from redrive.serve.cli.acts import act, act_options


@click.command("archive")
@act_options
def command(**options: Any) -> int:
    """Put away the letters that answer QUERY: out of the way, and kept. `redrive restore` brings them back.

    It counts them first and asks. Letters that somebody holds, or that are put away already, are left alone.
    """
    return act(BulkAct.ARCHIVE, **options)
