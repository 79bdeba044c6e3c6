"""The server as it really runs: `redrive up`, asked over HTTP, told to stop by signals."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from redrive import blocking

BAD = ValueError("bad")
GRACE_SECONDS = 5


class Server:
    """A running `redrive up` on a free port."""

    def __init__(self, folder: Path, *args: str) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-m", "redrive", "up", "--listen", "127.0.0.1:0", "--json", *args],
            cwd=folder,
            env={"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONWARNINGS": "error"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1]
        self.hello: dict[str, Any] = json.loads(line)
        self.address = self.hello["listening"].removeprefix("http://")

    def ask(
        self, path: str, method: str = "GET", body: bytes | None = None, **headers: str
    ) -> tuple[http.client.HTTPResponse, bytes]:
        with closing(http.client.HTTPConnection(self.address, timeout=30)) as connection:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer, answer.read()

    def json(self, path: str) -> tuple[int, dict[str, Any]]:
        answer, body = self.ask(path)
        return answer.status, json.loads(body)

    def stop(self, number: signal.Signals) -> tuple[int, str, str, float]:
        """Exit status, output, stderr, and how long it took."""
        started = time.monotonic()
        self.process.send_signal(number)
        try:
            out, err = self.process.communicate(timeout=3 * GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            out, err = self.process.communicate()
        return self.process.returncode, out, err, time.monotonic() - started

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all who only ask."""
    server = Server(tmp_path_factory.mktemp("up"))
    yield server
    server.kill()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    yield server
    server.kill()


def test_it_says_where_it_listens_and_on_what(shared: Server) -> None:
    assert shared.hello["schema"] == 1
    assert shared.hello["store"] == "sqlite:redrive.db"
    assert shared.hello["listening"].startswith("http://127.0.0.1:")
    assert (shared.folder / "redrive.db").exists()


def test_it_is_alive_and_ready(shared: Server) -> None:
    for path in ("/health/live", "/health/ready", "/health/ready?verbose=1"):
        answer, body = shared.ask(path)
        assert (answer.status, json.loads(body)) == (200, {"status": "pass"})
        assert answer.getheader("content-type") == "application/health+json"


def test_metrics_count_the_letters_by_status(shared: Server) -> None:
    with blocking.open(f"sqlite:{shared.folder}/redrive.db") as dlq:
        before = dlq.letters.count()
        dlq.capture("x", BAD, source="orders")
    answer, body = shared.ask("/metrics")
    text = body.decode()
    assert answer.status == 200
    assert (answer.getheader("content-type") or "").startswith("text/plain")
    assert f'redrive_letters{{status="pending"}} {before + 1}.0' in text
    assert all(line.startswith(("#", "redrive_", "python_", "process_")) for line in text.splitlines() if line)


def test_metrics_come_in_the_format_that_was_asked_for(shared: Server) -> None:
    answer, body = shared.ask("/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert (answer.getheader("content-type") or "").startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")


@pytest.mark.parametrize("path", ["/", "/health/live/", "/../etc/passwd", "/%00", "//metrics"])
def test_what_is_not_there_is_not_found(path: str, shared: Server) -> None:
    answer, body = shared.ask(path)
    assert answer.status == 404
    assert json.loads(body)["code"] == "not_found"
    assert b"Traceback" not in body


def test_another_method_is_not_allowed_and_the_right_one_is_named(shared: Server) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        answer, body = shared.ask("/health/live", method, b"x" * 1000)
        assert answer.status == 405
        assert json.loads(body) == {"code": "method_not_allowed", "message": f"/health/live takes GET, not {method}"}
        assert "GET" in (answer.getheader("allow") or ""), "RFC 9110 wants the allowed methods in a header"


def test_head_answers_without_a_body(shared: Server) -> None:
    answer, body = shared.ask("/health/ready", "HEAD")
    assert (answer.status, body) == (200, b"")
    assert int(answer.getheader("content-length") or 0) > 0


def test_it_does_not_say_what_it_is_made_of(shared: Server) -> None:
    answer, _ = shared.ask("/health/live")
    assert answer.getheader("server") is None


def test_a_body_without_end_is_cut_off(shared: Server) -> None:
    with closing(socket.create_connection(shared.address.split(":"), timeout=30)) as connection:
        connection.sendall(b"GET /nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n")
        try:
            for _ in range(200):
                connection.sendall(b"x" * 65536)
        except OSError:
            pass
        connection.settimeout(10)
        try:
            head = connection.recv(4096)
        except ConnectionResetError:
            head = b""
    assert head == b"" or b" 413 " in head.splitlines()[0]
    assert shared.json("/health/live")[0] == 200


def test_noise_on_the_port_does_no_harm(shared: Server) -> None:
    for noise in (b"\x16\x03\x01\x02\x00", b"GET\r\n\r\n", b"\0" * 100, b""):
        with closing(socket.create_connection(shared.address.split(":"), timeout=10)) as connection:
            connection.sendall(noise)
    assert shared.json("/health/live") == (200, {"status": "pass"})


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_0_and_without_a_traceback(number: signal.Signals, server: Server) -> None:
    assert server.json("/health/ready")[0] == 200
    status, out, err, took = server.stop(number)
    assert (status, out, err) == (0, "", "")
    assert took < GRACE_SECONDS
    assert [path.name for path in server.folder.iterdir()] == ["redrive.db"]


def test_a_signal_ends_it_while_somebody_keeps_a_connection_open(server: Server) -> None:
    with (
        closing(socket.create_connection(server.address.split(":"))) as idle,
        closing(socket.create_connection(server.address.split(":"))) as half,
    ):
        half.sendall(b"GET /health/live HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n")
        idle.sendall(b"")
        assert server.json("/health/live")[0] == 200
        status, out, err, took = server.stop(signal.SIGTERM)
    assert (status, out, err) == (0, "", "")
    assert took < GRACE_SECONDS


def test_a_signal_ends_it_while_its_store_is_locked(server: Server) -> None:
    with closing(sqlite3.connect(server.folder / "redrive.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert server.json("/health/ready")[0] == 503
        status, out, err, took = server.stop(signal.SIGTERM)
    assert (status, out, err) == (0, "", "")
    assert took < GRACE_SECONDS


def test_it_is_not_ready_while_its_store_is_locked_and_says_why(server: Server) -> None:
    with closing(sqlite3.connect(server.folder / "redrive.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        status, answer = server.json("/health/ready")
        assert (status, answer["status"]) == (503, "fail")
        assert "did not answer within 2 s" in answer["output"]
        assert server.json("/health/live") == (200, {"status": "pass"})
        other.execute("ROLLBACK")
    assert server.json("/health/ready") == (200, {"status": "pass"})


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_it_is_not_ready_when_its_store_was_taken_away_for_good_and_says_why(how: str, server: Server) -> None:
    """What housekeeping writes may open a file anew; here it cannot: the folder is gone, or the file is another program's."""
    assert server.json("/health/ready")[0] == 200
    path = server.folder / "redrive.db"
    if how == "removed":
        shutil.rmtree(server.folder)
    else:
        other = server.folder / "notes"
        other.write_bytes(b"another program's notes\n" * 100)
        for file in server.folder.glob("redrive.db-*"):
            file.unlink()
        other.replace(path)
    for _ in range(3):
        status, answer = server.json("/health/ready")
        assert status == 503
        assert answer["status"] == "fail"
        assert "redrive.db" in answer["output"]
        assert "\n" not in answer["output"]
    assert how == "removed" or path.read_bytes().startswith(b"another program's notes")


def test_a_port_in_use_gets_one_clear_sentence(shared: Server, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "redrive", "up", "--listen", shared.address],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"Error: cannot listen on {shared.address}: ")
    assert "in use" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("listen", ["no-such-host.invalid:0", "203.0.113.7:0", "[::zz]:0"])
def test_an_address_that_is_not_ours_gets_one_clear_sentence(listen: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "redrive", "up", "--listen", listen],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Error: ")
    assert done.stderr.count("\n") == 1
    assert listen in done.stderr


def test_a_store_that_cannot_be_opened_gets_one_clear_sentence(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "redrive", "up", "--listen", "127.0.0.1:0", "--store", "sqlite:nowhere/x.db"],
        cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.endswith("nowhere/x.db; does its folder exist, and may you write there?\n")
    assert done.stderr.startswith("Error: cannot open /")


def test_people_are_told_in_words(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "redrive", "up", "--listen", "[::1]:0" if socket.has_ipv6 and _has_loopback6() else "127.0.0.1:0", "--store", "memory:"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    first, second, third = (process.stdout.readline() for _ in range(3))
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert first.startswith("redrive is up on http://")
    assert first.endswith(" with memory:\n")
    assert "/health/ready" in second
    assert third.startswith("  queues are served under http://")
    assert (out, err, process.returncode) == ("redrive is down.\n", "", 0)


def _has_loopback6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False
