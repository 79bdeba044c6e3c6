"""Where what is written goes: standard output, a pipe or a device as it comes, or a file that is there when it is whole."""

from __future__ import annotations

import io
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import click

from redrive.ports.files import sync_folder
from redrive.settings import Settings

_SQLITE = "sqlite:"
_SYNCED_BYTES = 4 * 1024 * 1024
_BESIDE = ("", "-wal", "-shm", "-journal")


class _Steady(io.FileIO):
    """A file that is made durable as it is written: all of it at once, at the end, would hold up whoever commits on the same disk meanwhile."""

    def __init__(self, descriptor: int, mode: str, *, is_durable: bool) -> None:
        super().__init__(descriptor, mode)
        self._is_durable = is_durable
        self._written = 0

    def write(self, data: Any, /) -> int:
        written = super().write(data)
        self._written += written
        if self._is_durable and self._written >= _SYNCED_BYTES:
            self._written = 0
            os.fsync(self.fileno())
        return written


class NotWritten(click.ClickException):
    """There is no room, or the like. What was there before is still there."""


def named(ctx: click.Context, param: click.Parameter, value: str | None) -> Path | None:
    """The path that an option names."""
    if value == "":
        raise click.BadParameter("the name is empty; name a file, e.g. letters.jsonl", ctx, param)
    return None if value is None else Path(value)


@contextmanager
def place(output: Path | None, settings: Settings) -> Iterator[BinaryIO]:
    """Where bytes go. A file is written aside and put where the name leads when it is whole; the files of a store are refused."""
    if output is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with _translated(output, click.UsageError):
        is_whole = is_put_in_place(output)
        end = Path(os.path.realpath(output)) if is_whole else output
        aside = end.with_name(f"{end.name}.part") if is_whole else output
        _ensure_nobodys(output, [end, aside], settings)
        # For the owner's eyes alone: what was redacted for display is not redacted here.
        flags = os.O_WRONLY | (os.O_CREAT | os.O_TRUNC if is_whole else 0)
        file = io.BufferedWriter(_Steady(os.open(aside, flags, 0o600), "wb", is_durable=is_whole), buffer_size=1 << 20)
    try:
        with _translated(output, NotWritten):
            with file:
                yield file
                file.flush()
                if is_whole:
                    os.fsync(file.fileno())
            if is_whole:
                aside.replace(end)
    except BaseException:
        if is_whole:
            aside.unlink(missing_ok=True)
        raise
    if is_whole:
        sync_folder(end.parent)


def is_put_in_place(output: Path) -> bool:
    """Does it become a file when it is whole, rather than go into a pipe or a device as it comes?"""
    try:
        mode = output.stat().st_mode
    except FileNotFoundError:
        return True
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


@contextmanager
def _translated(output: Path, kind: type[click.ClickException]) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise kind(f"{output} cannot be written: {error.strerror or error}") from error


def _ensure_nobodys(output: Path, paths: list[Path], settings: Settings) -> None:
    """Refuse a directory, and what a store needs."""
    for path in paths:
        if path.is_dir():
            raise click.UsageError(f"{output if path == paths[0] else path} is a directory; name a file, e.g. letters.jsonl")
        for url in (settings.store, settings.desk, *settings.queues.values()):
            if url.startswith(_SQLITE) and _is_of(path, Path(url.removeprefix(_SQLITE).removeprefix("//")).expanduser()):
                raise click.UsageError(f"{output} would overwrite the store {url}; name another file")


def _is_of(path: Path, store: Path) -> bool:
    """Is it the file of a store on SQLite, by whatever name, one that SQLite puts beside it, or inside the folder of its bodies?"""
    real = os.path.realpath(path)
    for name in {str(store), os.path.realpath(store)}:
        if real in (os.path.realpath(f"{name}{end}") for end in _BESIDE):
            return True
        if Path(real).is_relative_to(os.path.realpath(f"{name}.bodies")):
            return True
    with suppress(OSError):
        return path.samefile(store)
    return False
