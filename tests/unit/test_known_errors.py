"""A table of real exceptions of real libraries and the category of each: raised for real where that is possible."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from redrive import Category
from redrive.model.classify import classify
from redrive.model.evidence import read
from redrive.model.known_errors import KNOWN
from tests.unit import real_client_errors, real_errors, real_web_errors
from tests.unit.error_cases import Case, F, N, P, R, T, V
from tests.unit.made_errors import MADE
from tests.unit.places import Place, opened

# Errors that are raised on purpose leave sockets open behind them.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")

REAL = [*real_errors.REAL, *real_web_errors.REAL, *real_client_errors.REAL]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with opened(tmp_path_factory.mktemp("errors")) as there:
        yield there
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(autouse=True)
def _no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_PROFILE", "AWS_DEFAULT_REGION", "AWS_REGION", "OPENAI_API_KEY", "OPENAI_ADMIN_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("case", REAL, ids=lambda case: case.name)
def test_an_error_raised_for_real_has_the_category_that_helps(case: Case, place: Place) -> None:
    with pytest.raises(BaseException) as caught:
        case.fail(place)
    found = classify(read(caught.value))
    assert found.category is case.category, (found.why, read(caught.value))


@pytest.mark.parametrize(
    ("error", "category"), MADE, ids=[f"{number} {type(error).__name__}" for number, (error, _) in enumerate(MADE)]
)
def test_an_error_made_by_hand_has_the_category_that_helps(error: BaseException, category: Category) -> None:
    found = classify(read(error))
    assert found.category is category, (found.why, read(error))


def test_the_table_is_large_and_most_of_it_is_real() -> None:
    assert len(REAL) >= 150
    assert len({case.name for case in REAL}) == len(REAL)
    assert {case.category for case in REAL} == set(Category)


RPC = """
import json, socket
from concurrent.futures import ThreadPoolExecutor
import grpc, kafka
from redrive.model.evidence import read
from redrive.model.classify import classify

class Aborting(grpc.GenericRpcHandler):
    def service(self, call):
        name = call.method.rpartition("/")[2]
        return grpc.unary_unary_rpc_method_handler(lambda request, context: context.abort(grpc.StatusCode[name], "told"))

def of(function, *arguments, **options):
    try:
        function(*arguments, **options)
    except Exception as error:
        return classify(read(error)).category

probe = socket.socket()  # bound, and nobody listens
probe.bind(("127.0.0.1", 0))
refusing = probe.getsockname()[1]
server = grpc.server(ThreadPoolExecutor(2), handlers=[Aborting()])
port = server.add_insecure_port("127.0.0.1:0")
server.start()
with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
    found = {code.name: of(channel.unary_unary(f"/shop/{code.name}"), b"") for code in grpc.StatusCode if code.name != "OK"}
server.stop(None)
with grpc.insecure_channel(f"127.0.0.1:{refusing}") as channel:
    found["refused"] = of(channel.unary_unary("/shop/x"), b"", timeout=5)
    found["late"] = of(channel.unary_unary("/shop/x"), b"", timeout=0.2, wait_for_ready=True)
    found["not ready"] = of(grpc.channel_ready_future(channel).result, timeout=0.1)
found["kafka refused"] = of(kafka.KafkaAdminClient, bootstrap_servers=f"127.0.0.1:{refusing}", bootstrap_timeout_ms=200)
found["kafka settings"] = of(kafka.KafkaProducer, nonsense=1)
print(json.dumps(found))
"""


def test_grpc_and_kafka_errors_raised_for_real() -> None:
    # In a process of their own: their threads stay, and tests that fork would suffer from them.
    ran = subprocess.run([sys.executable, "-c", RPC], capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(ran.stdout) == {
        "UNAVAILABLE": T, "ABORTED": T, "INTERNAL": T, "CANCELLED": T, "DEADLINE_EXCEEDED": N, "RESOURCE_EXHAUSTED": R,
        "PERMISSION_DENIED": P, "UNAUTHENTICATED": P, "INVALID_ARGUMENT": V, "OUT_OF_RANGE": V, "NOT_FOUND": F,
        "ALREADY_EXISTS": F, "FAILED_PRECONDITION": F, "UNIMPLEMENTED": F, "DATA_LOSS": F, "UNKNOWN": F,
        "refused": T, "late": N, "not ready": N, "kafka refused": N, "kafka settings": V,
    }  # fmt: skip


LIBRARIES = {
    "aiohttp", "asyncpg", "botocore", "bson", "grpc", "httpcore", "httpx", "kafka", "msgspec", "openai", "psycopg", "pymongo", "redis",
    "redrive", "requests", "sqlalchemy", "urllib3",
}  # fmt: skip

OF_OTHER_RELEASES = {
    "kafka.errors": "other names of the same errors in other releases, and in aiokafka",
    "httpcore": "httpx has more names than it",
}


def test_every_name_in_the_table_is_a_type_of_the_installed_libraries() -> None:
    unknown = []
    for name in KNOWN:
        package, _, last = name.rpartition(".")
        if package.partition(".")[0] not in LIBRARIES or package in OF_OTHER_RELEASES:
            continue
        module = __import__(package, fromlist=[last])
        if getattr(module, last, None) is None:
            unknown.append(name)
    assert unknown == []


def test_nobodys_library_is_imported_to_know_its_errors() -> None:
    program = "import sys, redrive.model.evidence; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=Path(__file__).parent)
    imported = {name.partition(".")[0] for name in ran.stdout.split()}
    assert not imported & (LIBRARIES - {"redrive", "msgspec"})
