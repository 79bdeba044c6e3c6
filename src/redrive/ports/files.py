"""What journal and bodies both need of the file system: durable names, and what an `OSError` means."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from redrive.model.errors import StoreError, StoreFull, StoreNotWritable

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR, errno.EEXIST, errno.EISDIR, errno.ELOOP}


def meaning(error: OSError) -> type[StoreError]:
    """Which of our errors this is: no space, no right to write there, or something else."""
    if error.errno in _FULL:
        return StoreFull
    return StoreNotWritable if error.errno in _FORBIDDEN else StoreError


def sync_folder(folder: Path) -> None:
    """Make the coming and going of names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
