"""Every engine starts, answers, and keeps after a kill what it had acknowledged."""

from __future__ import annotations

import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import textwrap
import urllib.request
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml  # type: ignore[import-untyped]  # its stubs are a package of their own

from dev.engines.engine import EngineMissing, Running
from dev.engines.install import Apt
from dev.engines.postgres import programs
from dev.engines.redis import ask
from dev.engines.redis_cluster import Cluster
from dev.engines.registry import ENGINES
from redrive.testing.servers import Server, is_free
from redrive.testing.watcher import until

OwnEngine = Callable[..., Running]
LONG = timedelta(seconds=30)
ROOT = Path(__file__).parents[2]
heavy = pytest.mark.skipif(
    not os.environ.get("REDRIVE_CHAOS"), reason="no store needs it yet, and it takes minutes to install: `make chaos` runs it"
)


def sql(url: str, *statements: str) -> str:
    folder = programs()
    assert folder is not None
    words = [word for statement in statements for word in ("-c", statement)]
    done = subprocess.run([folder / "psql", "-XAtq", url, *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def http(method: str, url: str, body: object = None) -> object:
    sent = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, sent, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        text = answer.read()
        return json.loads(text) if text else None


def shared_port(name: str) -> int:
    port = urlsplit(os.environ[f"REDRIVE_TEST_{name}"]).port
    assert port is not None
    return port


@pytest.mark.engine("redis")
def test_the_shared_redis_acknowledges_only_what_is_on_the_disk() -> None:
    for name, value in (("appendonly", "yes"), ("appendfsync", "always")):
        with socket.create_connection(("127.0.0.1", shared_port("REDIS")), timeout=5) as connection:
            connection.sendall(f"CONFIG GET {name}\r\n".encode())
            assert value in connection.recv(200).decode().split()


@pytest.mark.engine("redis", own=True)
def test_redis_keeps_after_a_kill_what_it_acknowledged(own_engine: OwnEngine) -> None:
    redis = own_engine("redis", password="secret")
    assert ask(redis.port, "PING").startswith("-NOAUTH")
    assert ask(redis.port, "SET", "word", "kept", password="secret") == "+OK\r\n"
    redis.kill()
    redis.start()
    assert ask(redis.port, "GET", "word", password="secret") == "kept"


@pytest.mark.engine("redis-cluster", own=True)
def test_a_redis_cluster_shares_its_slots_and_survives_a_kill_of_one_node(own_engine: OwnEngine) -> None:
    cluster = own_engine("redis-cluster")
    assert isinstance(cluster, Cluster)
    answers = {node.port: ask(node.port, "SET", "word", "kept") for node in cluster.nodes}
    assert sorted(answer.split()[0] for answer in answers.values()) == ["+OK", "-MOVED", "-MOVED"]
    (holder,) = (node for node in cluster.nodes if answers[node.port] == "+OK\r\n")
    holder.kill()
    assert not cluster.is_alive
    cluster.start()
    assert ask(holder.port, "GET", "word") == "kept"


@pytest.mark.engine("postgres", own=True)
def test_postgres_keeps_after_a_kill_what_it_committed(own_engine: OwnEngine) -> None:
    postgres = own_engine("postgres", durable=True, settings={"max_connections": "20"})
    assert sql(postgres.url, "SHOW fsync", "SHOW max_connections").split() == ["on", "20"]
    sql(postgres.url, "CREATE TABLE t (word text)", "INSERT INTO t VALUES ('kept')")
    postgres.kill()
    postgres.start()
    assert sql(postgres.url, "SELECT word FROM t") == "kept"


@pytest.mark.engine("postgres", own=True)
def test_of_a_killed_postgres_no_shared_memory_is_left(own_engine: OwnEngine) -> None:
    postgres = own_engine("postgres", durable=False)
    assert isinstance(postgres, Server)
    segment = (postgres.place.folder / "data/postmaster.pid").read_text().splitlines()[6].split()[1]

    def segments() -> list[str]:
        return [line.split()[1] for line in Path("/proc/sysvipc/shm").read_text().splitlines()]

    postgres.kill()
    assert segment in segments()
    postgres.close()
    # It is removed when the last of the killed server's processes has ended, which may take them a moment on a busy machine.
    assert until(lambda: segment not in segments(), LONG)


@pytest.mark.engine("postgres", "pgbouncer")
def test_pgbouncer_hands_out_sessions_of_the_shared_postgres_by_transaction(namespace: str) -> None:
    through, direct = os.environ["REDRIVE_TEST_PGBOUNCER"], os.environ["REDRIVE_TEST_POSTGRES"]
    sql(through, f"CREATE TABLE {namespace} (word text)", f"INSERT INTO {namespace} VALUES ('kept')")
    assert sql(direct, f"SELECT word FROM {namespace}", f"DROP TABLE {namespace}") == "kept"
    assert "transaction" in sql(f"{through.rpartition('/')[0]}/pgbouncer", "SHOW CONFIG")


@pytest.mark.engine("prometheus", own=True)
def test_prometheus_follows_rules(own_engine: OwnEngine) -> None:
    rules = "groups: [{name: g, rules: [{record: one, expr: vector(1)}]}]"
    config = "global: {evaluation_interval: 1s}\nrule_files: [rules.yml]\n"
    prometheus = own_engine("prometheus", config=config, files={"rules.yml": rules})

    def is_recorded() -> bool:
        found = http("GET", f"{prometheus.url}/api/v1/query?query=one")
        assert isinstance(found, dict)
        return bool(found["data"]["result"])

    assert until(is_recorded, LONG)


@pytest.mark.engine("alertmanager")
def test_alertmanager_takes_alerts(namespace: str) -> None:
    url = f"{os.environ['REDRIVE_TEST_ALERTMANAGER']}/api/v2/alerts"
    http("POST", url, [{"labels": {"alertname": namespace}}])
    found = http("GET", f"{url}?filter=alertname={namespace}")
    assert isinstance(found, list)
    assert [alert["labels"]["alertname"] for alert in found] == [namespace]


@pytest.mark.engine("opensearch", own=True)
def test_opensearch_keeps_after_a_kill_what_it_acknowledged(own_engine: OwnEngine) -> None:
    opensearch = own_engine("opensearch")
    http("PUT", f"{opensearch.url}/words/_doc/1", {"word": "kept", "count": 1})
    script = {"script": {"source": "ctx._source.count += params.n", "params": {"n": 2}}, "query": {"match_all": {}}}
    http("POST", f"{opensearch.url}/words/_refresh")
    http("POST", f"{opensearch.url}/words/_update_by_query", script)
    opensearch.kill()
    opensearch.start()
    found = http("GET", f"{opensearch.url}/words/_doc/1")
    assert isinstance(found, dict)
    assert found["_source"] == {"word": "kept", "count": 3}


@heavy
@pytest.mark.engine("kafka", own=True)
def test_kafka_keeps_its_topics_after_a_kill(own_engine: OwnEngine) -> None:
    def told(key: int, version: int, body: bytes) -> bytes:
        message = struct.pack("!hhih", key, version, 1, -1) + body
        with socket.create_connection(("127.0.0.1", kafka.port), timeout=30) as connection, connection.makefile("rb") as answer:
            connection.sendall(struct.pack("!i", len(message)) + message)
            return answer.read(*struct.unpack("!i", answer.read(4)))

    kafka = own_engine("kafka")
    topic = struct.pack("!ih5sihiiib", 1, 5, b"words", 1, 1, 0, 0, 10_000, 0)
    assert told(19, 2, topic)[-4:] == struct.pack("!hh", 0, -1), "made, without an error"
    kafka.kill()
    kafka.start()
    assert b"words" in told(3, 0, struct.pack("!i", 0))


@heavy
@pytest.mark.engine("mongodb", own=True)
def test_mongodb_keeps_after_a_kill_what_it_acknowledged(own_engine: OwnEngine) -> None:
    def bson(document: dict[str, object]) -> bytes:
        body = b""
        for name, value in document.items():
            match value:
                case str():
                    kind, held = 2, struct.pack("<i", len(value) + 1) + value.encode() + b"\0"
                case int():
                    kind, held = 16, struct.pack("<i", value)
                case list():
                    kind, held = 4, bson({str(number): one for number, one in enumerate(value)})
                case dict():
                    kind, held = 3, bson(value)
            body += bytes([kind]) + name.encode() + b"\0" + held
        return struct.pack("<i", len(body) + 5) + body + b"\0"

    def told(command: dict[str, object]) -> bytes:
        message = struct.pack("<iiiib", 1, 0, 2013, 0, 0) + bson({**command, "$db": "words"})
        with socket.create_connection(("127.0.0.1", mongodb.port), timeout=30) as connection, connection.makefile("rb") as answer:
            connection.sendall(struct.pack("<i", len(message) + 4) + message)
            (length,) = struct.unpack("<i", answer.read(4))
            return answer.read(length - 4)

    mongodb = own_engine("mongodb")
    assert b"writeErrors" not in told({"insert": "c", "documents": [{"_id": 1, "word": "kept"}]})
    mongodb.kill()
    mongodb.start()
    assert b"kept" in told({"find": "c", "filter": {"_id": 1}})


@heavy
@pytest.mark.engine("consul")
def test_consul_takes_keys(namespace: str) -> None:
    url = f"{os.environ['REDRIVE_TEST_CONSUL']}/v1/kv/{namespace}"
    assert http("PUT", url, "kept") is True
    assert http("GET", f"{url}?raw") == "kept"


FAKE = """
import sys
from dev.engines.engine import Engine, EngineMissing
from dev.engines.registry import ENGINES

class Nowhere:
    is_installed, told, lacks = False, "nowhere", ("fake-server",)
    def install(self):
        raise EngineMissing("run: sudo apt-get install -y fake-server")

ENGINES["fake"] = Engine(name="fake", source=Nowhere(), make=None)
"""


def run_of(folder: Path, tests: str, *words: str, **environment: str) -> str:
    """What pytest says of these tests, in a run of their own that knows of an engine which cannot be installed."""
    (folder / "conftest.py").write_text(FAKE)
    (folder / "test_it.py").write_text("import os, pathlib, pytest\n" + textwrap.dedent(tests))
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("REDRIVE_", "PYTEST_", "CI"))}
    command = [sys.executable, "-m", "pytest", "-p", "xdist", "-p", "tests.engines", "-p", "no:cacheprovider", "-c", os.devnull]
    done = subprocess.run(
        [*command, "--rootdir", str(folder), *words, str(folder)],
        env={**inherited, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.stdout + done.stderr


@pytest.mark.engine("redis", own=True)
def test_all_workers_share_one_instance_which_ends_with_the_run(tmp_path: Path) -> None:
    tests = """
        @pytest.mark.parametrize("number", [pytest.param(n, marks=pytest.mark.engine("redis")) for n in range(4)])
        def test_it(number, worker_id):
            pathlib.Path(f"{worker_id}-{number}").write_text(os.environ["REDRIVE_TEST_REDIS"])
    """
    assert "8 passed" in run_of(tmp_path, tests, "--dist", "each", "--tx", "2*popen")
    told = {file.name[:3]: file.read_text() for file in tmp_path.glob("gw*")}
    assert told.keys() == {"gw0", "gw1"}
    (url,) = set(told.values())
    assert is_free(int(urlsplit(url).port or 0))


NEEDS_FAKE = """
    @pytest.mark.engine("fake")
    def test_shared():
        pass

    def test_own(own_engine):
        own_engine("fake")
"""


def test_without_an_engine_its_tests_skip_and_the_run_ends_with_the_line_to_run(tmp_path: Path) -> None:
    told = run_of(tmp_path, NEEDS_FAKE)
    assert "2 skipped" in told
    assert "!! ENGINES ARE MISSING: NOT EVERYTHING WAS TESTED !!" in told
    assert "2 skipped: fake: run: sudo apt-get install -y fake-server\n" in told
    assert "for all of them, run: sudo apt-get install -y fake-server\n" in told


def test_under_ci_they_fail(tmp_path: Path) -> None:
    told = run_of(tmp_path, NEEDS_FAKE, CI="true")
    assert "1 failed, 1 error" in told
    assert "engine missing: fake: run: sudo apt-get install -y fake-server" in told


def test_an_engine_that_is_given_is_used_as_it_is(tmp_path: Path) -> None:
    tests = """
        @pytest.mark.engine("fake")
        def test_it():
            assert os.environ["REDRIVE_TEST_FAKE"] == "fake://mine"
    """
    assert "1 passed" in run_of(tmp_path, tests, REDRIVE_TEST_FAKE="fake://mine")


def test_nothing_is_installed_for_tests_that_are_skipped_or_not_selected(tmp_path: Path) -> None:
    tests = """
        @pytest.mark.skipif(True, reason="not today")
        @pytest.mark.engine("fake")
        def test_skipped():
            pass

        @pytest.mark.engine("fake")
        def test_other():
            pass

        def test_selected():
            pass
    """
    told = run_of(tmp_path, tests, "-k", "skipped or selected")
    assert "1 passed, 1 skipped, 1 deselected" in told
    assert "installing" not in told


def test_an_unknown_engine_is_told(tmp_path: Path) -> None:
    told = run_of(tmp_path, "@pytest.mark.engine('rediss')\ndef test_it(): pass")
    assert "test_it.py::test_it needs the engine 'rediss'; there are: redis, " in told


def test_an_ordinary_user_is_told_the_line_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    with pytest.raises(EngineMissing, match=r"^run: sudo apt-get install -y redis-server$"):
        Apt(("redis-server",), lambda: None).install()


BUILD = """
import os, sys
from dev.engines.install import Built

def build(folder):
    with open(sys.argv[2], "a") as log:
        log.write("built ")
    (folder / "program").write_text("half")
    if sys.argv[1] == "cut short":
        os._exit(9)
    (folder / "program").write_text("whole")

thing = Built(name="thing", recipe="1", build=build, told="")
print(thing.is_installed, flush=True)
thing.install()
print(thing.is_installed, (thing.folder / "program").read_text(), len(list(thing.folder.parent.glob(".thing*"))))
"""


def test_a_build_that_was_cut_short_does_not_count_and_two_at_once_build_once(tmp_path: Path) -> None:
    def begun(how: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(tmp_path)}
        command = [sys.executable, "-c", BUILD, how, str(tmp_path / "log")]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)

    assert begun("cut short").communicate()[0] == "False\n"
    assert [file.read_text() for file in tmp_path.glob("redrive-engines/.thing-*/program")] == ["half"]
    told = [process.communicate()[0].splitlines()[-1] for process in [begun("to the end"), begun("to the end")]]
    assert told == ["True whole 0"] * 2
    assert (tmp_path / "log").read_text() == "built built "


def test_compose_has_the_same_engines_on_loopback_only() -> None:
    if shutil.which("docker") and subprocess.run(["docker", "compose", "version"], capture_output=True).returncode == 0:
        subprocess.run(["docker", "compose", "config", "-q"], cwd=ROOT, check=True)
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    assert services.keys() == ENGINES.keys()
    for name, service in services.items():
        assert all(str(port).startswith("127.0.0.1:") for port in service["ports"]), name
        assert service["image"].partition(":")[2] not in ("", "latest"), name
        assert service["healthcheck"]["test"], name
