"""Errors of Python itself, raised for real, and the category that each should have."""

from __future__ import annotations

import asyncio
import csv
import decimal
import gzip
import io
import json
import os
import queue
import resource
import socket
import sqlite3
import ssl
import struct
import subprocess
import tarfile
import tomllib
import xml.etree.ElementTree
import zipfile
import zlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from configparser import ConfigParser
from pathlib import Path

import msgspec
import pydantic

from tests.unit.error_cases import Case, F, N, P, R, T, V
from tests.unit.places import Place


class Order(pydantic.BaseModel):
    id: int


def raising(error: BaseException, behind: BaseException | None = None) -> Callable[[Place], object]:
    def fail(place: Place) -> None:
        raise error from behind

    return fail


def no_files_left(place: Place) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        os.dup(0)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def full_disk(place: Place) -> None:
    with open("/dev/full", "w") as device:  # noqa: PTH123  # a device, not a file
        device.write("x")


def broken_pipe(place: Place) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        os.write(writer, b"x")
    finally:
        os.close(writer)


def hard_link_of_a_folder(place: Place) -> None:
    # Not even root may.
    os.link(place.folder, place.folder / "link")


def endless(place: Place) -> None:
    endless(place)


def would_block(place: Place) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        ours.recv(1)


def address_in_use(place: Place) -> None:
    with socket.socket() as second:
        second.bind(("127.0.0.1", place.silent))


def socket_timeout(place: Place) -> None:
    with socket.create_connection(("127.0.0.1", place.silent), timeout=0.05) as visitor:
        visitor.recv(1)


def tls_to_plain(place: Place) -> None:
    with socket.create_connection(("127.0.0.1", place.babbling)) as plain:
        ssl.create_default_context().wrap_socket(plain, server_hostname="localhost")


def cut_short(place: Place) -> None:
    async def read() -> None:
        reader = asyncio.StreamReader()
        reader.feed_data(b"abc")
        reader.feed_eof()
        await reader.readexactly(10)

    asyncio.run(read())


def waited_too_long(place: Place) -> None:
    async def wait() -> None:
        async with asyncio.timeout(0.01):
            await asyncio.Event().wait()

    asyncio.run(wait())


def cancelled(place: Place) -> None:
    future: Future[int] = Future()
    future.cancel()
    future.result()


def full_queue(place: Place) -> None:
    small: queue.Queue[int] = queue.Queue(1)
    small.put(1)
    small.put_nowait(2)


def after_shutdown(place: Place) -> None:
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    pool.submit(print)


def in_a_group(place: Place) -> None:
    async def work() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(asyncio.to_thread(socket.create_connection, ("127.0.0.1", place.refusing)))

    asyncio.run(work())


def wrapped(place: Place) -> None:
    try:
        socket.create_connection(("127.0.0.1", place.refusing))
    except OSError as error:
        raise RuntimeError("boom") from error


def while_handling(place: Place) -> None:
    try:
        {}["cached"]
    except KeyError:
        raise RuntimeError("service unavailable")  # noqa: B904  # exactly what people write


def sqlite(statement: str, *before: str) -> Callable[[Place], object]:
    def fail(place: Place) -> None:
        with sqlite3.connect(":memory:") as database:
            database.execute("create table one (id integer primary key, name text not null)")
            for earlier in before:
                database.execute(earlier)
            database.execute(statement)

    return fail


def sqlite_locked(place: Place) -> None:
    path = place.folder / "locked.db"
    first, second = (sqlite3.connect(path, timeout=0, isolation_level=None) for _ in range(2))
    try:
        first.execute("begin exclusive")
        second.execute("begin exclusive")
    finally:
        first.close()
        second.close()


def sqlite_file(content: bytes | None, options: str = "") -> Callable[[Place], object]:
    def fail(place: Place) -> None:
        path = place.folder / f"{len(content or b'')}{options[-2:]}.db"
        if content is not None:
            path.write_bytes(content)
        database = sqlite3.connect(f"file:{path}{options}", uri=True)
        try:
            database.execute("create table x (y)")
        finally:
            database.close()

    return fail


REAL = [
    Case("ValueError", V, lambda place: int("x")),
    Case("ValueError about a connection", V, raising(ValueError("connection string invalid"))),
    Case("KeyError", V, lambda place: {}["id"]),
    Case("IndexError", V, lambda place: [][0]),
    Case("TypeError", V, lambda place: len(5)),  # type: ignore[arg-type]  # that is the point
    Case("AssertionError", V, raising(AssertionError())),
    Case("UnicodeDecodeError", V, lambda place: b"\xff".decode()),
    Case("UnicodeEncodeError", V, lambda place: "\ud800".encode()),
    Case("EOFError", V, lambda place: gzip.decompress(gzip.compress(b"x")[:-9])),
    Case("AttributeError", F, lambda place: None.connection),  # type: ignore[attr-defined]  # that is the point
    Case("NameError", F, lambda place: eval("no_such_timeout")),
    Case("ModuleNotFoundError", F, lambda place: __import__("no_such_network")),
    Case("SyntaxError", F, lambda place: compile("1 +", "x", "exec")),
    Case("ZeroDivisionError", F, lambda place: 1 / 0),
    Case("OverflowError", F, lambda place: 2.0**100_000),
    Case("RecursionError", F, endless),
    Case("NotImplementedError", F, raising(NotImplementedError("network"))),
    Case("StopIteration", F, lambda place: next(iter(()))),
    Case("MemoryError", R, lambda place: bytearray(2**62)),
    Case("TimeoutError", N, waited_too_long),
    Case("TimeoutError of a socket", N, socket_timeout),
    Case("TimeoutError of a future", N, lambda place: Future[int]().result(timeout=0)),
    Case("CancelledError of a future", T, cancelled),
    Case("ConnectionRefusedError", N, lambda place: socket.create_connection(("127.0.0.1", place.refusing))),
    Case("BrokenPipeError", N, broken_pipe),
    Case("gaierror", N, lambda place: socket.getaddrinfo("127.0.0.1", "no-such-service")),
    Case("SSLError", N, tls_to_plain),
    Case("IncompleteReadError", N, cut_short),
    Case("BlockingIOError", T, would_block),
    Case("EADDRINUSE", T, address_in_use),
    Case("ENOSPC", R, full_disk),
    Case("EMFILE", R, no_files_left),
    Case("EPERM", P, hard_link_of_a_folder),
    Case("ENAMETOOLONG", V, lambda place: (place.folder / ("x" * 5000)).touch()),
    Case("EINVAL", V, lambda place: os.truncate(place.folder, -1)),
    Case("FileNotFoundError", F, lambda place: (place.folder / "network/timeout").read_text()),
    Case("FileExistsError", F, lambda place: place.folder.mkdir()),
    Case("IsADirectoryError", F, lambda place: place.folder.read_text()),
    Case("NotADirectoryError", F, lambda place: Path("/dev/null/x").stat()),
    Case("ProcessLookupError", F, lambda place: os.kill(2**22 + 1, 0)),
    Case("ChildProcessError", F, lambda place: os.waitpid(os.getpid(), 0)),
    Case("Full", R, full_queue),
    Case("Empty", T, lambda place: queue.Queue[int]().get_nowait()),
    Case("RuntimeError of an executor", F, after_shutdown),
    Case("ExceptionGroup", N, in_a_group),
    Case("RuntimeError from ConnectionRefusedError", N, wrapped),
    Case("RuntimeError while a KeyError is handled", T, while_handling),
    Case("JSONDecodeError", V, lambda place: json.loads("{nonsense")),
    Case("msgspec.DecodeError", V, lambda place: msgspec.json.decode(b"{nonsense")),
    Case("msgspec.ValidationError", V, lambda place: msgspec.json.decode(b"1", type=str)),
    Case("pydantic.ValidationError", V, lambda place: Order.model_validate({"id": "network"})),
    Case("struct.error", V, lambda place: struct.unpack("i", b"x")),
    Case("zlib.error", V, lambda place: zlib.decompress(b"x")),
    Case("BadGzipFile", V, lambda place: gzip.decompress(b"nonsense")),
    Case("BadZipFile", V, lambda place: zipfile.ZipFile(io.BytesIO(b"nonsense"))),
    Case("tarfile.ReadError", V, lambda place: tarfile.TarFile(fileobj=io.BytesIO(b"nonsense"))),
    Case("csv.Error", V, lambda place: list(csv.reader(['"x'], strict=True))),
    Case("ParseError", V, lambda place: xml.etree.ElementTree.fromstring("<x>")),
    Case("TOMLDecodeError", V, lambda place: tomllib.loads("nonsense")),
    Case("configparser.Error", V, lambda place: ConfigParser().read_string("nonsense")),
    Case("InvalidOperation", V, lambda place: decimal.Decimal("nonsense")),
    Case("CalledProcessError", F, lambda place: subprocess.run(["false", "--connect-timeout"], check=True)),
    Case("TimeoutExpired", N, lambda place: subprocess.run(["sleep", "5"], timeout=0.01)),
    Case("sqlite: locked", T, sqlite_locked),
    Case("sqlite: unique", V, sqlite("insert into one values (1, 'b')", "insert into one values (1, 'a')")),
    Case("sqlite: not null", V, sqlite("insert into one values (1, null)")),
    Case("sqlite: no such table", F, sqlite("select * from connection")),
    Case("sqlite: syntax", F, sqlite("nonsense")),
    Case("sqlite: full", R, sqlite("insert into one values (1, zeroblob(100000))", "pragma max_page_count=2")),
    Case("sqlite: too big", V, sqlite("select zeroblob(2000000000)")),
    Case("sqlite: no database", F, sqlite_file(b"nonsense" * 200)),
    Case("sqlite: read only", P, sqlite_file(b"", "?mode=ro")),
    Case("sqlite: no file", F, sqlite_file(None, "?mode=rw")),
    Case("sqlite: wrong number of values", F, lambda place: sqlite3.connect(":memory:").execute("select ?", (1, 2))),
]  # fmt: skip
