"""A pytest plugin: tests say which engines they need, and find them started.

- `@pytest.mark.engine("redis", "postgres")`, on a test or in the marks of a `pytest.param`: an instance that all tests share; its
  URL is in `os.environ["REDRIVE_TEST_REDIS"]`, for child processes too. `own=True`: only installed, for `own_engine`.
- `own_engine("postgres", durable=True)`: an instance of the test's own, to be killed and restarted.
- `namespace`: a name that no other test has, to keep apart what tests put into a shared engine.

A variable that is set beforehand is used as it is, and nothing is started for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, NoReturn
from uuid import uuid4

import pytest

from dev.engines.engine import EngineMissing, Running, Source
from dev.engines.install import in_ci
from dev.engines.registry import ENGINES
from dev.engines.shared import Answer, Need, Shared, ask, union, variable

MISSING = "engine missing: "

OwnEngine = Callable[..., Running]
"""`own_engine(name, **options)`."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "engine(*names, own=False): needs these engines, shared (or, with own=True, only installed)"
    )
    work: dict[str, Any] | None = getattr(config, "workerinput", None)
    if work is not None:
        address = work["engines"]
        config.pluginmanager.register(Engines(lambda need: ask(address, need)))
        return

    def say(text: str) -> None:
        reporter = config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.write_line(f"engines: {text}")

    shared = Shared(ENGINES, dict(os.environ), say)
    config.pluginmanager.register(Owner(shared))
    config.pluginmanager.register(Engines(shared.need))


class Owner:
    """Only where the run was begun: ends what was started, and says what was missing."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput["engines"] = self._shared.address()

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        reasons = [
            report.longrepr[2].removeprefix("Skipped: ").removeprefix(MISSING)
            for report in terminalreporter.stats.get("skipped", [])
            if isinstance(report.longrepr, tuple) and MISSING in report.longrepr[2]
        ]
        if not reasons:
            return
        terminalreporter.section("ENGINES ARE MISSING: NOT EVERYTHING WAS TESTED", sep="!", red=True, bold=True)
        for reason in sorted(set(reasons)):
            terminalreporter.line(f"{reasons.count(reason)} skipped: {reason}", red=True)
        names = {reason.partition(":")[0] for reason in reasons}
        packages = sorted({package for name in names & ENGINES.keys() for package in ENGINES[name].source.lacks})
        if packages:
            terminalreporter.line(f"for all of them, run: sudo apt-get install -y {' '.join(packages)}", red=True, bold=True)

    def pytest_unconfigure(self) -> None:
        self._shared.close()


class Engines:
    """Where tests run: asks for what the selected ones need, and lets no test begin without it."""

    def __init__(self, provide: Callable[[Need], dict[str, Answer]]) -> None:
        self._provide = provide
        self._answers: dict[str, Answer] = {}
        self._set: list[str] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        # All at once and before the first test, since a fork server gives its children the environment that it began with.
        need = union(pair for item in session.items if not _is_skipped(item) for pair in _needs(item))
        if session.config.option.collectonly or not any(need):
            return
        self._answers = self._provide(need)
        for name, answer in self._answers.items():
            if answer.url is not None and variable(name) not in os.environ:
                os.environ[variable(name)] = answer.url
                self._set.append(variable(name))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        for name, _ in _needs(item):
            answer = self._answers.get(name, Answer())
            if answer.missing:
                _without(name, answer.missing)
            if answer.failed:
                pytest.fail(answer.failed, pytrace=False)

    def pytest_unconfigure(self) -> None:
        for name in self._set:
            os.environ.pop(name, None)


@pytest.fixture
def own_engine() -> Iterator[OwnEngine]:
    """Starts an engine for this test alone: `own_engine("redis", password="x")` has `url`, `kill()`, `start()` and so on."""
    with ExitStack() as running:

        def start(name: str, **options: Any) -> Running:
            engine = ENGINES[name]
            try:
                engine.source.install()
            except EngineMissing as error:
                _without(name, str(error))
            return running.enter_context(engine.make(**options))

        yield start


@pytest.fixture
def namespace() -> str:
    return f"t{uuid4().hex[:12]}"


def _needs(item: pytest.Item) -> list[tuple[str, bool]]:
    needs = [(name, bool(mark.kwargs.get("own"))) for mark in item.iter_markers("engine") for name in mark.args]
    for name, _ in needs:
        if name not in ENGINES:
            raise pytest.UsageError(f"{item.nodeid} needs the engine {name!r}; there are: {', '.join(ENGINES)}")
    return needs


def _is_skipped(item: pytest.Item) -> bool:
    """Known to be skipped already? Then nothing is built and started for it."""
    conditions = [condition for mark in item.iter_markers("skipif") for condition in mark.args]
    return item.get_closest_marker("skip") is not None or any(condition is True for condition in conditions)


def installed(source: Source, name: str) -> None:
    """Have something built that is no engine; without it, a test is skipped here and fails in CI."""
    try:
        source.install()
    except EngineMissing as error:
        _without(name, str(error))


def _without(name: str, sentence: str) -> NoReturn:
    if in_ci():
        pytest.fail(f"{MISSING}{name}: {sentence}", pytrace=False)
    pytest.skip(f"{MISSING}{name}: {sentence}")
