"""What the type of an error tells by itself: types are known by their qualified names, nobody's library is imported.

How firmly a type tells:

- `firm`: it decides at once (`ConnectionResetError` is the network);
- `plain`: it decides for itself, but as the cause of another error only after that error's own words, because it is
  often just what was being handled when the real error came (`KeyError`, `FileNotFoundError`);
- `vague`: a wrapper. Its status, its code and what it came from are asked before (`requests.RequestException`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from redrive.model import known_libraries
from redrive.model.category import Category

Firmness = Literal["firm", "plain", "vague"]


class Known(NamedTuple):
    """What is known of a type."""

    category: Category
    firmness: Firmness


_STANDARD: Mapping[Firmness, Mapping[Category, str]] = {
    "firm": {
        Category.TRANSIENT: """
            builtins.BlockingIOError builtins.InterruptedError builtins.KeyboardInterrupt
            asyncio.exceptions.CancelledError concurrent.futures._base.CancelledError
            concurrent.futures._base.BrokenExecutor threading.BrokenBarrierError ftplib.error_temp
            redrive.model.errors.StoreUnavailable redrive.model.errors.LeaseLost redrive.model.errors.LetterLeased
            redrive.model.errors.AlreadyBegun
            """,
        Category.NETWORK: """
            builtins.ConnectionError builtins.TimeoutError socket.gaierror socket.herror ssl.SSLError
            asyncio.exceptions.IncompleteReadError asyncio.exceptions.TimeoutError
            http.client.BadStatusLine http.client.IncompleteRead urllib.error.ContentTooShortError
            smtplib.SMTPServerDisconnected smtplib.SMTPConnectError ftplib.error_proto imaplib.IMAP4.abort
            subprocess.TimeoutExpired multiprocessing.context.TimeoutError
            """,
        Category.RESOURCE: "builtins.MemoryError queue.Full asyncio.queues.QueueFull redrive.model.errors.StoreFull",
        Category.PERMISSION: """
            builtins.PermissionError multiprocessing.context.AuthenticationError smtplib.SMTPAuthenticationError
            redrive.model.errors.StoreNotWritable
            """,
        Category.VALIDATION: """
            struct.error zlib.error _lzma.LZMAError gzip.BadGzipFile zipfile.BadZipFile zipfile.LargeZipFile tarfile.TarError
            _csv.Error configparser.Error _pickle.PickleError pickle.PickleError decimal.DecimalException
            xml.etree.ElementTree.ParseError xml.parsers.expat.ExpatError xml.sax._exceptions.SAXException
            email.errors.MessageError http.client.InvalidURL asyncio.exceptions.LimitOverrunError
            multiprocessing.context.BufferTooShort sqlite3.IntegrityError sqlite3.DataError
            smtplib.SMTPRecipientsRefused redrive.model.errors.BadSettings redrive.model.errors.BodyTooLarge
            """,
        Category.PERMANENT: """
            smtplib.SMTPNotSupportedError ftplib.error_perm sqlite3.NotSupportedError http.client.ImproperConnectionState
            subprocess.CalledProcessError redrive.model.errors.OutcomeUnknown
            """,
    },
    "plain": {
        Category.TRANSIENT: "_queue.Empty queue.Empty asyncio.queues.QueueEmpty",
        Category.VALIDATION: """
            builtins.AssertionError builtins.LookupError builtins.TypeError builtins.ValueError builtins.EOFError
            """,
        Category.PERMANENT: """
            builtins.ArithmeticError builtins.AttributeError builtins.BufferError builtins.ImportError builtins.NameError
            builtins.NotImplementedError builtins.RecursionError builtins.ReferenceError builtins.StopAsyncIteration
            builtins.StopIteration builtins.SyntaxError builtins.SystemError builtins.SystemExit
            builtins.ChildProcessError builtins.FileExistsError builtins.FileNotFoundError builtins.IsADirectoryError
            builtins.NotADirectoryError builtins.ProcessLookupError
            asyncio.exceptions.InvalidStateError concurrent.futures._base.InvalidStateError sqlite3.ProgrammingError
            """,
    },
    "vague": {Category.NETWORK: "urllib.error.URLError http.client.HTTPException"},
}


def _entries() -> Iterator[tuple[str, Known]]:
    libraries: Sequence[tuple[Firmness, Mapping[Category, str]]] = (
        ("firm", known_libraries.FIRM),
        ("vague", known_libraries.VAGUE),
    )
    for firmness, table in (*_STANDARD.items(), *libraries):
        for category, names in table.items():
            for name in names.split():
                yield name, Known(category, firmness)


KNOWN: Mapping[str, Known] = dict(_entries())
"""By qualified name. An error is what the nearest of its bases is that stands here."""


def known(names: Sequence[str]) -> tuple[str, Known] | None:
    """What the type and its bases tell, and which of them told; None when they say nothing."""
    for name in names:
        if (told := KNOWN.get(name)) is not None:
            return name, told
    return None
