"""`redrive completion`: the completion script for your shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script for SHELL; e.g. add `eval "$(redrive completion bash)"` to ~/.bashrc."""
    from redrive.serve.cli.app import redrive

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(redrive, {}, "redrive", "_REDRIVE_COMPLETE").source())
