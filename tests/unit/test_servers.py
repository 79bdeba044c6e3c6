"""A server starts, is killed, paused and restarted at will, and never outlives whoever started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import urllib.request
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from redrive.testing.servers import HOST, Place, Program, Server, ServerFailed, accepts, answers, free_port, is_free
from redrive.testing.watcher import until

SHORT = timedelta(milliseconds=300)
LONG = timedelta(seconds=20)


def files(**changes: object) -> Program:
    """A program that serves its folder by HTTP."""
    usual = {
        "name": "files",
        "command": lambda place: [sys.executable, "-m", "http.server", str(place.port), "--bind", HOST],
        "is_ready": answers("/"),
        "url": lambda place: f"http://{HOST}:{place.port}",
    }
    return Program(**{**usual, **changes})  # type: ignore[arg-type]  # a test says only what differs


def python(source: str) -> Program:
    """A program that runs this, knowing its port; ready when it listens."""
    return files(command=lambda place: [sys.executable, "-c", textwrap.dedent(source), str(place.port)], is_ready=accepts)


def is_running(pid: int | None) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def fetch(server: Server, name: str) -> bytes:
    with urllib.request.urlopen(f"{server.url}/{name}", timeout=10) as answer:
        body: bytes = answer.read()
        return body


def test_a_started_server_is_ready() -> None:
    with Server(files()) as server:
        assert server.is_alive
        (server.place.folder / "word").write_text("ready")
        assert fetch(server, "word") == b"ready"
        assert timedelta() < server.ready_in < LONG


def test_after_a_kill_it_goes_on_with_its_data_at_its_port() -> None:
    with Server(files()) as server:
        (server.place.folder / "kept").write_text("still here")
        url, pid = server.url, server.pid
        server.kill()
        assert not server.is_alive
        assert is_free(server.port)
        server.start()
        assert server.url == url
        assert server.pid != pid
        assert fetch(server, "kept") == b"still here"


def test_it_is_prepared_once() -> None:
    def prepare(place: Place) -> Sequence[Sequence[str]]:
        return [[sys.executable, "-c", "open('prepared', 'a').write('once ')"]]

    with Server(files(prepare=prepare)) as server:
        server.kill()
        server.start()
        assert fetch(server, "prepared") == b"once "


def test_a_paused_server_lives_but_does_not_answer() -> None:
    with Server(files()) as server:
        (server.place.folder / "kept").write_text("still here")
        server.pause()
        assert server.is_alive
        with pytest.raises(TimeoutError), urllib.request.urlopen(f"{server.url}/kept", timeout=SHORT.total_seconds()):
            pass
        server.resume()
        assert fetch(server, "kept") == b"still here"


def test_a_paused_server_can_be_stopped() -> None:
    with Server(files()) as server:
        server.pause()
        server.stop()
        assert not server.is_alive


def test_a_server_that_does_not_stop_is_killed() -> None:
    stubborn = """
        import signal, socket, sys
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with socket.create_server(("127.0.0.1", int(sys.argv[1]))):
            while True:
                signal.pause()
    """
    with Server(python(stubborn)) as server:
        pid = server.pid
        server.stop(within=SHORT)
        assert not server.is_alive
        assert not is_running(pid)


def test_a_kill_reaches_children_in_sessions_of_their_own() -> None:
    parent = """
        import signal, socket, subprocess, sys
        child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], start_new_session=True)
        open("child", "w").write(str(child.pid))
        with socket.create_server(("127.0.0.1", int(sys.argv[1]))):
            signal.pause()
    """
    with Server(python(parent)) as server:
        child = int((server.place.folder / "child").read_text())
        assert is_running(child)
        server.kill()
        assert until(lambda: not is_running(child), LONG)


def test_nothing_is_left_of_a_closed_server() -> None:
    with Server(files()) as server:
        pid, folder = server.pid, server.place.folder
        assert folder.is_dir()
    assert not is_running(pid)
    assert not folder.exists()
    server.close()
    with pytest.raises(ServerFailed, match="was closed"):
        server.start()


def test_a_server_that_ends_by_itself_is_told_with_the_end_of_its_log() -> None:
    with (
        pytest.raises(ServerFailed, match=r"files ended by itself \(exit code 1\)[^$]*no such luck"),
        Server(python("exit('no such luck')")),
    ):
        pass


def test_a_server_that_does_not_get_ready_is_told_and_ended() -> None:
    server = Server(files(is_ready=lambda place: False, patience=SHORT))
    with pytest.raises(ServerFailed, match=r"was not ready after 0\.3 s"):
        server.start()
    assert not server.is_alive
    server.close()


def test_a_failed_preparation_is_told() -> None:
    prepare = [[sys.executable, "-c", "exit('disk is full')"]]
    with (
        pytest.raises(ServerFailed, match=r"could not be prepared[^$]*disk is full"),
        Server(files(prepare=lambda place: prepare)),
    ):
        pass


def test_a_program_that_is_not_there_is_told() -> None:
    with pytest.raises(ServerFailed, match="No such file or directory: 'no-such-program'"):
        Server(files(command=lambda place: ["no-such-program"])).__enter__()


def test_a_running_server_is_not_started_twice() -> None:
    with Server(files()) as server, pytest.raises(ServerFailed, match="runs already"):
        server.start()


def test_ports_are_not_among_those_of_outgoing_connections() -> None:
    assert all(1024 < free_port() < 32768 for _ in range(100))


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize("forks", [False, True], ids=["alone", "survived by a fork"])
def test_it_ends_with_whoever_started_it_even_by_kill_9(forks: bool) -> None:
    master = f"""
        import os, signal, sys
        sys.path.insert(0, {str(Path(__file__).parents[2])!r})
        from redrive.testing.servers import Server
        from tests.unit.test_servers import files
        server = Server(files())
        server.start()
        fork = os.fork() if {forks} else 0
        if {forks} and fork == 0:
            os.close(1)
            signal.pause()
        print(server.pid, fork, server.place.folder, flush=True)
        signal.pause()
    """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(master)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid, fork, folder = process.stdout.readline().split()
        assert is_running(int(pid))
        process.kill()
    is_gone = until(lambda: not is_running(int(pid)) and not Path(folder).exists(), LONG)
    if forks:
        os.kill(int(fork), signal.SIGKILL)  # it was there all the time, or this raises
    assert is_gone
