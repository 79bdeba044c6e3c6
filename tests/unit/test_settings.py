"""Settings: where they come from, which wins, and what is said when one is wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from redrive.model.errors import BadSettings, MissingExtra
from redrive.settings import Settings, load, masked


def test_without_anything_given_every_setting_is_its_default(tmp_path: Path) -> None:
    loaded = load(environ={}, folder=tmp_path)
    assert loaded.settings == Settings()
    assert loaded.settings.store == "sqlite:redrive.db"
    assert set(loaded.origins.values()) == {"default"}
    assert set(loaded.origins) == set(Settings.__struct_fields__)


def test_a_flag_beats_the_environment_which_beats_the_file_which_beats_the_default(tmp_path: Path) -> None:
    (tmp_path / "redrive.toml").write_text('store = "sqlite:file.db"\nnamespace = "file"\nbody_limit = 10\n')
    environ = {"REDRIVE_STORE": "sqlite:environment.db", "REDRIVE_NAMESPACE": "environment"}
    loaded = load({"store": "sqlite:flag.db"}, environ=environ, folder=tmp_path)
    settings = loaded.settings
    assert (settings.store, settings.namespace, settings.body_limit) == ("sqlite:flag.db", "environment", 10)
    assert loaded.origins["store"] == "flag --store"
    assert loaded.origins["namespace"] == "environment REDRIVE_NAMESPACE"
    assert loaded.origins["body_limit"] == "redrive.toml"
    assert loaded.origins["listen"] == "default"


def test_a_flag_that_was_not_given_changes_nothing(tmp_path: Path) -> None:
    assert load({"store": None}, environ={}, folder=tmp_path).origins["store"] == "default"


def test_numbers_and_truth_are_read_from_text(tmp_path: Path) -> None:
    environ = {"REDRIVE_BODY_LIMIT": "2048", "REDRIVE_LEASE_SECONDS": "1.5", "REDRIVE_TELEMETRY": "false"}
    settings = load({"traceback_limit": "0"}, environ=environ, folder=tmp_path).settings
    assert (settings.body_limit, settings.lease_seconds, settings.telemetry) == (2048, 1.5, False)
    assert settings.traceback_limit == 0


def test_a_secret_is_read_from_the_file_that_its_variable_names(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("postgresql://user:hush@host/db\n")
    loaded = load(environ={"REDRIVE_STORE_FILE": str(tmp_path / "secret")}, folder=tmp_path)
    assert loaded.settings.store == "postgresql://user:hush@host/db"
    assert loaded.origins["store"] == "environment REDRIVE_STORE_FILE"


@pytest.mark.parametrize(
    ("environ", "sentence"),
    [
        (
            {"REDRIVE_STORE_FILE": "nowhere"},
            "cannot read the file nowhere that REDRIVE_STORE_FILE names: No such file or directory",
        ),
        (
            {"REDRIVE_STORE": "sqlite:a.db", "REDRIVE_STORE_FILE": "b"},
            "REDRIVE_STORE and REDRIVE_STORE_FILE are both set; keep one of them",
        ),
        ({"REDRIVE_STOER": "x"}, "unknown environment variable REDRIVE_STOER; did you mean REDRIVE_STORE?"),
        ({"REDRIVE_STORE_FIEL": "x"}, "unknown environment variable REDRIVE_STORE_FIEL; did you mean REDRIVE_STORE_FILE?"),
        (
            {"REDRIVE_BODY_LIMIT": "a lot"},
            "body_limit (environment REDRIVE_BODY_LIMIT) must be a whole number of bytes from 1 to 536870912, not 'a lot'",
        ),
        ({"REDRIVE_TELEMETRY": "maybe"}, "telemetry (environment REDRIVE_TELEMETRY) must be true or false, not 'maybe'"),
        ({"REDRIVE_STORE": ""}, "store (environment REDRIVE_STORE) must be a URL such as sqlite:redrive.db, not ''"),
        (
            {"REDRIVE_CONFIG": "lost.toml"},
            "there is no settings file lost.toml; create it, or name another with --config or REDRIVE_CONFIG",
        ),
    ],
)
def test_a_wrong_environment_is_told_in_one_sentence(tmp_path: Path, environ: dict[str, str], sentence: str) -> None:
    with pytest.raises(BadSettings) as raised:
        load(environ=environ, folder=tmp_path)
    assert str(raised.value) == sentence


def test_a_name_that_is_near_to_nothing_gets_the_list_of_what_is_known(tmp_path: Path) -> None:
    with pytest.raises(
        BadSettings, match=r"unknown environment variable REDRIVE_QQQQQQQQQQ; known are .*REDRIVE_STORE.*REDRIVE_TEL"
    ):
        load(environ={"REDRIVE_QQQQQQQQQQ": "x"}, folder=tmp_path)


def test_variables_that_are_not_settings_are_passed_over(tmp_path: Path) -> None:
    environ = {
        "_REDRIVE_COMPLETE": "bash_source",
        "REDRIVE_CHAOS": "1",
        "REDRIVE_SERVICE_HOST": "10.0.0.7",
        "REDRIVE_WEB_SERVICE_PORT_HTTP": "2319",
        "REDRIVE_PORT": "tcp://10.0.0.7:2319",
        "REDRIVE_PORT_2319_TCP_ADDR": "10.0.0.7",
    }
    assert load(environ=environ, folder=tmp_path).settings == Settings()


def test_a_port_that_a_person_set_is_not_taken_for_one_of_kubernetes(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match="REDRIVE_PORT;"):
        load(environ={"REDRIVE_PORT": "2319"}, folder=tmp_path)


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        ({"lease_seconds": 0}, r"lease_seconds \(flag --lease-seconds\) must be a number of seconds from 0.1"),
        ({"lease_seconds": "nan"}, "must be a number of seconds"),
        ({"lease_seconds": "inf"}, "must be a number of seconds"),
        ({"body_limit": 0}, "must be a whole number of bytes"),
        ({"body_limit": True}, "must be a whole number of bytes"),
        ({"traceback_limit": -1}, "must be a whole number of characters"),
        ({"namespace": "two words"}, "must be a name without spaces, not 'two words'"),
        ({"namespace": "line\n"}, "must be a name without spaces"),
        ({"listen": "2319"}, "must be host:port"),
        ({"listen": "localhost:65536"}, "must be host:port"),
        ({"listen": "::1:80"}, "must be host:port"),
        ({"stoer": "x"}, "unknown flag --stoer; did you mean --store?"),
    ],
)
def test_values_out_of_range_are_refused(tmp_path: Path, flags: dict[str, object], complaint: str) -> None:
    with pytest.raises(BadSettings, match=complaint):
        load(flags, environ={}, folder=tmp_path)


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "localhost:65535", "[::1]:2319", "0.0.0.0:80", "my-host.example:59999"])
def test_addresses_that_can_be_listened_on_are_taken(tmp_path: Path, listen: str) -> None:
    assert load({"listen": listen}, environ={}, folder=tmp_path).settings.listen == listen


def test_files_are_looked_for_in_order(tmp_path: Path) -> None:
    (tmp_path / "redrive.yml").write_text("namespace: yml\n")
    assert load(environ={}, folder=tmp_path).origins["namespace"] == "redrive.yml"
    (tmp_path / "redrive.yaml").write_text("namespace: yaml\n")
    assert load(environ={}, folder=tmp_path).settings.namespace == "yaml"
    (tmp_path / "pyproject.toml").write_text('[tool.other]\nname = "other"\n')
    assert load(environ={}, folder=tmp_path).settings.namespace == "yaml"
    (tmp_path / "pyproject.toml").write_text('[tool.redrive]\nnamespace = "pyproject"\n')
    loaded = load(environ={}, folder=tmp_path)
    assert (loaded.settings.namespace, loaded.origins["namespace"]) == ("pyproject", "pyproject.toml [tool.redrive]")
    (tmp_path / "redrive.toml").write_text('namespace = "toml"\n')
    assert load(environ={}, folder=tmp_path).settings.namespace == "toml"


def test_a_named_file_is_read_instead_of_those_that_are_found(tmp_path: Path) -> None:
    (tmp_path / "redrive.toml").write_text('namespace = "found"\n')
    (tmp_path / "mine.toml").write_text('namespace = "environment"\n')
    (tmp_path / "yours.yaml").write_text("namespace: flag\n")
    environ = {"REDRIVE_CONFIG": "mine.toml"}
    assert load(environ=environ, folder=tmp_path).settings.namespace == "environment"
    loaded = load(environ=environ, folder=tmp_path, config=Path("yours.yaml"))
    assert (loaded.settings.namespace, loaded.origins["namespace"]) == ("flag", "yours.yaml")


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("redrive.toml", "namespce = 'x'", r"unknown setting of redrive\.toml namespce; did you mean namespace\?"),
        ("redrive.toml", "body_limit = '5'", r"body_limit \(redrive\.toml\) must be a whole number"),
        ("redrive.toml", "store = 5", r"store \(redrive\.toml\) must be a URL .*, not '5'"),
        ("redrive.toml", "store =\n", r"redrive\.toml is not valid TOML: .*line 1"),
        ("pyproject.toml", "[tool.redrive]\nbody-limit = 5", r"unknown setting of .* body-limit; did you mean body_limit\?"),
        ("redrive.yaml", "- store", "must hold settings by name"),
        ("redrive.yaml", "store: [", r"redrive\.yaml is not valid YAML at line \d+: [^\n]+\Z"),
    ],
)
def test_a_wrong_file_is_told_in_one_sentence(tmp_path: Path, name: str, text: str, complaint: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(BadSettings, match=complaint) as raised:
        load(environ={}, folder=tmp_path)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("pyproject.toml", "", r"has no \[tool\.redrive\] table"),
        ("redrive.ini", "", r"must end in \.toml, \.yaml or \.yml"),
        ("latin.toml", "# \xe9", "not UTF-8"),
    ],
)
def test_a_named_file_that_says_nothing_is_refused(tmp_path: Path, name: str, text: str, complaint: str) -> None:
    (tmp_path / name).write_text(text, "latin-1")
    with pytest.raises(BadSettings, match=complaint):
        load(environ={}, folder=tmp_path, config=tmp_path / name)


def test_an_empty_yaml_file_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "redrive.yaml").write_text("# later\n")
    assert load(environ={}, folder=tmp_path).settings == Settings()


def test_yaml_without_its_extra_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "redrive.yaml").write_text("namespace: x\n")
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(MissingExtra, match=r"pip install 'redrive\[yaml\]'"):
        load(environ={}, folder=tmp_path)


def test_a_value_from_a_secret_file_is_never_shown_when_it_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hush")
    with pytest.raises(BadSettings) as raised:
        load(environ={"REDRIVE_BODY_LIMIT_FILE": "secret"}, folder=tmp_path)
    assert "hush" not in str(raised.value)
    assert "REDRIVE_BODY_LIMIT_FILE" in str(raised.value)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("sqlite:redrive.db", "sqlite:redrive.db"),
        ("postgresql://user:hush@host/db", "postgresql://user:***@host/db"),
        ("redis://:hush@host:6379/0", "redis://:***@host:6379/0"),
        ("postgresql://user:h/u#s?h@x@host/db", "postgresql://user:***@host/db"),
        ("postgresql://user@tenant:hush@host/db", "postgresql://user@tenant:***@host/db"),
        ("amqp://user:12345@host:5672/", "amqp://user:***@host:5672/"),
        ("mongodb://user:hush@one:1,two:2/db", "mongodb://user:***@one:1,two:2/db"),
        ("postgresql://user@host:5432/db?application_name=a@b", "postgresql://user@host:5432/db?application_name=a@b"),
        ("https://host:9200/index?mail=a@b", "https://host:9200/index?mail=a@b"),
        ("postgresql://host/db?user=me&password=hush&x=1", "postgresql://host/db?user=me&password=***&x=1"),
        ("https://host/?Access_Token=hush", "https://host/?Access_Token=***"),
        ("https://host/?x=1&client.secret=hush", "https://host/?x=1&client.secret=***"),
        ("host=h user=u password=hush", "host=h user=u password=***"),
    ],
)
def test_passwords_and_secrets_are_masked(value: str, shown: str) -> None:
    assert masked(value) == shown


def test_every_setting_is_listed_with_its_masked_value_origin_and_meaning(tmp_path: Path) -> None:
    loaded = load({"store": "redis://:hush@host"}, environ={"REDRIVE_TELEMETRY": "0"}, folder=tmp_path)
    entries = {entry.name: entry for entry in loaded.entries()}
    assert list(entries) == list(Settings.__struct_fields__)
    assert entries["store"].value == "redis://:***@host"
    assert (entries["telemetry"].value, entries["telemetry"].origin) == ("false", "environment REDRIVE_TELEMETRY")
    assert all(entry.doc.endswith(".") and "\n" not in entry.doc for entry in entries.values())


def test_the_journal_lies_in_the_users_state_folder_unless_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Settings().journal_folder({}) == tmp_path / ".local/state/redrive/journal"
    assert Settings().journal_folder({"XDG_STATE_HOME": "relative"}) == tmp_path / ".local/state/redrive/journal"
    assert Settings().journal_folder({"XDG_STATE_HOME": str(tmp_path / "state")}) == tmp_path / "state/redrive/journal"
    assert Settings(journal="~/mine").journal_folder({}) == tmp_path / "mine"


def test_importing_settings_loads_no_parser() -> None:
    seen = "import sys, redrive.settings; print(sorted({'tomllib', 'yaml', 'difflib', 'asyncio'} & sys.modules.keys()))"
    answer = subprocess.run([sys.executable, "-c", seen], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
