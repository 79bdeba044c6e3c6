"""The workflow DLQ's settings: names, ranges and defaults as its guide has them, from files, the environment, or as given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from redrive import BadSettings
from redrive import settings as own
from redrive.workflows import DeadLetterQueue, DLQIntegrationStrategy, RetryPolicy, WorkflowApp, WorkflowSettings
from tests.unit.workflow_use import lived, place

GUIDE = {
    "dlq_enabled": True,
    "dlq_max_size": 10000,
    "dlq_default_retry_policy": "exponential",
    "dlq_default_max_retries": 3,
    "dlq_retry_processor_enabled": True,
    "dlq_retry_interval_seconds": 60,
}
OTHERS: dict[str, Any] = {
    "dlq_enabled": False,
    "dlq_max_size": 500,
    "dlq_default_retry_policy": "linear",
    "dlq_default_max_retries": 7,
    "dlq_retry_processor_enabled": False,
    "dlq_retry_interval_seconds": 30,
}
YAML = "".join(f"{name}: {str(value).lower()}\n" for name, value in OTHERS.items())
TOML = "".join(
    f"{name} = {str(value).lower() if not isinstance(value, str) else repr(value)}\n" for name, value in OTHERS.items()
)


def told(settings: WorkflowSettings) -> dict[str, Any]:
    return {name: getattr(settings, name) for name in GUIDE}


def test_the_defaults_are_those_of_the_guide() -> None:
    assert told(WorkflowSettings()) == told(WorkflowSettings.load(environ={})) == GUIDE


@pytest.mark.parametrize(("name", "text"), [("mahavishnu.yaml", YAML), ("mahavishnu.yml", YAML), ("mahavishnu.toml", TOML)])
def test_they_are_read_from_a_file(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text("# Dead Letter Queue configuration\n" + text)
    assert told(WorkflowSettings.load(tmp_path / name, environ={})) == OTHERS


def test_a_pyproject_has_a_table_for_them(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.redrive]\ndlq_max_size = 200\n")
    assert WorkflowSettings.load(tmp_path / "pyproject.toml", environ={}).dlq_max_size == 200


@pytest.mark.parametrize("prefix", ["REDRIVE_", "MAHAVISHNU_", "mahavishnu_", ""])
def test_they_are_read_from_the_environment_by_their_prefix(prefix: str) -> None:
    environ = {f"{prefix}{name}".upper(): str(value).lower() for name, value in OTHERS.items()}
    environ |= {"PATH": "/bin", "MAHAVISHNU_OTHER": "1"}
    assert told(WorkflowSettings.load(prefix=prefix, environ=environ)) == OTHERS


def test_what_is_given_goes_before_the_environment_and_that_before_the_file(tmp_path: Path) -> None:
    file = tmp_path / "mahavishnu.yaml"
    file.write_text("dlq_max_size: 100\ndlq_default_max_retries: 1\ndlq_retry_interval_seconds: 10\n")
    environ = {"MAHAVISHNU_DLQ_MAX_SIZE": "200", "MAHAVISHNU_DLQ_DEFAULT_MAX_RETRIES": "2"}
    settings = WorkflowSettings.load(file, prefix="MAHAVISHNU_", environ=environ, dlq_max_size=300)
    assert (settings.dlq_max_size, settings.dlq_default_max_retries, settings.dlq_retry_interval_seconds) == (300, 2, 10)


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [("dlq_max_size", 100, 100_000), ("dlq_default_max_retries", 0, 10), ("dlq_retry_interval_seconds", 10, 3600)],
)
def test_each_number_has_its_range(name: str, least: int, most: int) -> None:
    for value in (least, most):
        assert getattr(WorkflowSettings(**{name: value}), name) == value
        assert getattr(WorkflowSettings.load(environ={f"REDRIVE_{name.upper()}": str(value)}), name) == value
    for value in (least - 1, most + 1):
        with pytest.raises(BadSettings, match=f"{name} must be from {least} to {most}, got {value}"):
            WorkflowSettings(**{name: value})
        with pytest.raises(BadSettings, match=f"{name} must be from {least} to {most}, got {value}"):
            WorkflowSettings.load(environ={f"REDRIVE_{name.upper()}": str(value)})


@pytest.mark.parametrize("policy", ["never", "linear", "exponential", "immediate", RetryPolicy.LINEAR])
def test_every_policy_may_be_the_default(policy: str) -> None:
    assert WorkflowSettings(dlq_default_retry_policy=policy).dlq_default_retry_policy == policy
    assert WorkflowSettings.load(environ={}, dlq_default_retry_policy=policy).dlq_default_retry_policy == policy


def test_another_policy_is_refused_in_the_guides_words() -> None:
    sentence = "dlq_default_retry_policy must be one of ['never', 'linear', 'exponential', 'immediate'], got 'sometimes'"
    for load in (WorkflowSettings, lambda **given: WorkflowSettings.load(environ={}, **given)):
        with pytest.raises(ValueError) as raised:
            load(dlq_default_retry_policy="sometimes")
        assert str(raised.value) == sentence
        assert isinstance(raised.value, BadSettings)


def test_another_strategy_is_refused_and_each_of_the_four_taken() -> None:
    for strategy in DLQIntegrationStrategy:
        assert WorkflowSettings(dlq_strategy=strategy).dlq_strategy == strategy
    with pytest.raises(BadSettings, match=r"dlq_strategy must be one of \['automatic', 'selective', 'manual', 'disabled'\]"):
        WorkflowSettings(dlq_strategy="always")


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("dlq_enabled", "maybe", "true or false"),
        ("dlq_max_size", "many", "a whole number"),
        ("dlq_default_max_retries", "", "a whole number"),
    ],
)
def test_a_value_of_another_kind_is_refused_with_where_it_came_from(name: str, value: str, wanted: str) -> None:
    with pytest.raises(BadSettings) as raised:
        WorkflowSettings.load(environ={f"MAHAVISHNU_{name.upper()}": value}, prefix="MAHAVISHNU_")
    assert str(raised.value) == f"environment MAHAVISHNU_{name.upper()} must be {wanted}, got {value!r}"


@pytest.mark.parametrize(
    ("name", "value"), [("dlq_max_size", "500"), ("dlq_max_size", 500.5), ("dlq_enabled", 1), ("dlq_store", 7)]
)
def test_a_value_of_another_kind_is_refused_in_code_too(name: str, value: Any) -> None:
    with pytest.raises(BadSettings, match=f"{name} must be "):
        WorkflowSettings(**{name: value})


def test_a_name_that_there_is_not_is_told_with_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "mahavishnu.yaml").write_text("dlq_max_sise: 100\n")
    with pytest.raises(BadSettings, match=r"unknown setting dlq_max_sise; did you mean dlq_max_size\?"):
        WorkflowSettings.load(tmp_path / "mahavishnu.yaml", environ={})
    with pytest.raises(BadSettings, match=r"unknown setting dlq_enable; did you mean dlq_enabled\?"):
        WorkflowSettings.load(environ={}, dlq_enable=True)
    with pytest.raises(
        BadSettings, match=r"unknown environment variable MAHAVISHNU_DLQ_MAXSIZE; did you mean MAHAVISHNU_DLQ_MAX_SIZE\?"
    ):
        WorkflowSettings.load(environ={"MAHAVISHNU_DLQ_MAXSIZE": "100"}, prefix="MAHAVISHNU_")


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("none.yaml", None, "there is no settings file"),
        ("list.yaml", "- dlq_enabled\n", "must hold settings by name"),
        ("broken.yaml", "dlq_enabled: [\n", "is not valid YAML"),
        ("broken.toml", "dlq_enabled = \n", "is not valid TOML"),
        ("mahavishnu.ini", "dlq_enabled=true\n", "must end in .toml, .yaml or .yml"),
        ("pyproject.toml", "[project]\n", "must hold settings by name"),
    ],
)
def test_a_file_that_cannot_be_read_is_told(tmp_path: Path, name: str, text: str | None, sentence: str) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(BadSettings, match=sentence):
        WorkflowSettings.load(tmp_path / name, environ={})


def test_an_empty_file_says_nothing(tmp_path: Path) -> None:
    for name in ("empty.yaml", "empty.toml"):
        (tmp_path / name).write_text("")
        assert told(WorkflowSettings.load(tmp_path / name, environ={})) == GUIDE


def test_the_settings_of_redrive_itself_are_not_upset(tmp_path: Path) -> None:
    environ = {"REDRIVE_DLQ_ENABLED": "true", "REDRIVE_DLQ_MAX_SIZE": "500", "REDRIVE_NAMESPACE": "shop"}
    assert own.load(environ=environ, folder=tmp_path).settings.namespace == "shop"
    assert WorkflowSettings.load(environ=environ).dlq_max_size == 500


@lived
async def test_an_app_takes_its_settings_from_the_environment_unless_it_is_given_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDRIVE_DLQ_MAX_SIZE", "500")
    monkeypatch.setenv("REDRIVE_DLQ_STRATEGY", "selective")
    monkeypatch.setenv("REDRIVE_DLQ_STORE", place(tmp_path))
    async with WorkflowApp() as app:
        assert isinstance(app.dlq, DeadLetterQueue)
        assert (app.dlq.max_size, app.config.dlq_strategy) == (500, "selective")
        await app.dlq.enqueue("wf_1", {}, [], "timeout")
    assert (tmp_path / "redrive.db").is_file()
    async with WorkflowApp(config=WorkflowSettings(dlq_store=place(tmp_path))) as app:
        assert isinstance(app.dlq, DeadLetterQueue)
        assert app.dlq.max_size == 10_000
        assert await app.dlq.get_task("wf_1") is not None
    monkeypatch.setenv("REDRIVE_DLQ_ENABLED", "false")
    async with WorkflowApp() as app:
        assert (app.dlq, app.dlq_integration) == (None, None)


@lived
async def test_the_defaults_of_an_app_are_those_of_its_queue(tmp_path: Path) -> None:
    config = WorkflowSettings(dlq_default_retry_policy="linear", dlq_default_max_retries=1, dlq_max_size=100)
    async with WorkflowApp(config=config, store=place(tmp_path)) as app:
        assert app.dlq is not None
        task = await app.dlq.enqueue("wf_1", {}, [], "timeout")
        assert (task.retry_policy, task.max_retries, app.dlq.max_size) == ("linear", 1, 100)


def test_a_file_may_hold_an_applications_other_settings_too(tmp_path: Path) -> None:
    file = tmp_path / "mahavishnu.yaml"
    file.write_text("repos_path: ./repos.yaml\ncache_enabled: true\nmax_concurrent_workflows: 10\ndlq_max_size: 500\n")
    assert WorkflowSettings.load(file, environ={}).dlq_max_size == 500
    for slip in ("dql_max_size", "dlq_maxsize", "DLQ_MAX_SIZE", "dlqmaxsize"):
        file.write_text(f"cache_enabled: true\n{slip}: 500\n")
        with pytest.raises(
            BadSettings, match=f"unknown setting {slip}; did you mean dlq_max_size|unknown setting {slip}; there are"
        ):
            WorkflowSettings.load(file, environ={})
