"""SQLite's write-ahead log, looked at from outside: how far it reaches since it began anew.

Its file does not tell: it keeps its length when the log begins anew, for to write over what is there is quicker than to append (an
append changes the file's length, which the file system has to make durable too, together with what others have written). So the frames are
looked at: those of the log as it is now carry the salt of its header. The layout is SQLite's documented file format.
"""

from __future__ import annotations

import os

_READING = os.O_RDONLY | getattr(os, "O_BINARY", 0)
_HEADER_BYTES = 32
_PAGE_SIZE = slice(8, 12)
_SALT = slice(16, 24)
_FRAME_HEADER_BYTES = 24
_FRAME_SALT_AT = 8


class Log:
    """Of one file. It is asked after every transaction, so that it is asked with few calls."""

    def __init__(self, path: str) -> None:
        self._path = f"{path}-wal"

    def look(self, length: int) -> tuple[bytes, bool]:
        """Which log it is, as another one begins whenever it begins anew (empty: there is none); and does it reach so far, in bytes?"""
        try:
            file = os.open(self._path, _READING)
        except OSError:
            return b"", False
        try:
            header = os.read(file, _HEADER_BYTES)
            salt = header[_SALT]
            frame = _FRAME_HEADER_BYTES + int.from_bytes(header[_PAGE_SIZE])
            os.lseek(file, _HEADER_BYTES + length // frame * frame + _FRAME_SALT_AT, os.SEEK_SET)
            return salt, bool(salt) and os.read(file, len(salt)) == salt
        except OSError:
            return b"", False
        finally:
            os.close(file)
