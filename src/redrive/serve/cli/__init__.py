"""The command line."""

from __future__ import annotations

from redrive.serve.cli.app import main

__all__ = ["main"]
