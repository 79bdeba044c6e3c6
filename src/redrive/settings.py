"""One frozen `Settings`, read once: flag > environment > file > default.

The file is `redrive.toml`, else `[tool.redrive]` in `pyproject.toml`, else `redrive.yaml` or `redrive.yml`, in the
working folder; `--config` or `REDRIVE_CONFIG` names another. In the environment a setting is `REDRIVE_` and its name;
with `_FILE` behind it, the variable names a file that holds the value, as secrets are handed to containers.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import msgspec
from msgspec import Meta, Struct

from redrive.model.errors import BadQuery, BadSettings, MissingExtra
from redrive.model.policy import Policy
from redrive.model.redaction import ALLOWED, Redaction
from redrive.model.replay import ALLOWED as REPLAYS
from redrive.model.replay import ReplayRule, replay_rules
from redrive.model.retention import ALLOWED as RULES
from redrive.model.retention import RetentionRule, retention_rules
from redrive.model.secret_options import is_secret

_PORT = r"(?:[0-5]?\d{1,4}|6[0-4]\d{3}|65[0-4]\d{2}|655[0-2]\d|6553[0-5])"


DESK = "sqlite:redrive-desk.db"


def _about(doc: str, allowed: str, **limits: Any) -> Meta:
    return Meta(description=doc, extra={"allowed": allowed}, **limits)


class Settings(Struct, frozen=True, kw_only=True):
    """What redrive can be told. `load` makes it and checks it."""

    store: Annotated[str, _about("Where letters live.", "a URL such as sqlite:redrive.db", min_length=1)] = "sqlite:redrive.db"
    desk: Annotated[
        str,
        _about(
            "Where operations, ledgers and audit are kept when the letters' store has no place for them.",
            "a URL such as sqlite:redrive-desk.db",
            min_length=1,
        ),
    ] = DESK
    namespace: Annotated[
        str,
        _about("Keeps the letters of several systems apart in one store.", "a name without spaces", pattern=r"^\S{1,200}\Z"),
    ] = "default"
    journal: Annotated[
        str,
        _about("Folder of the local journal; empty: redrive/journal in your state folder.", "the path of a folder"),
    ] = ""
    body_limit: Annotated[
        int,
        _about(
            "Bytes; larger bodies go to a file beside an embedded store, else are refused.",
            "a whole number of bytes from 1 to 536870912",
            ge=1,
            le=536_870_912,
        ),
    ] = 1_048_576
    traceback_limit: Annotated[
        int,
        _about(
            "Characters kept of a traceback.", "a whole number of characters from 0 (keep none) to 10000000", ge=0, le=10_000_000
        ),
    ] = 65_536
    lease_seconds: Annotated[
        float,
        _about(
            "How long a claimed letter is its owner's.", "a number of seconds from 0.1 to 604800 (a week)", ge=0.1, le=604_800
        ),
    ] = 60
    listen: Annotated[
        str,
        _about(
            "Where `redrive up` listens.",
            "host:port such as 127.0.0.1:2319 or [::1]:2319; port 0 takes any that is free",
            pattern=rf"^(?:\[[0-9A-Fa-f:.%\w]+\]|[^\s:\[\]/]+):{_PORT}\Z",
        ),
    ] = "127.0.0.1:2319"
    telemetry: Annotated[bool, _about("Measure and trace.", "true or false")] = True
    redact: Annotated[
        Redaction,
        _about(
            "What is redacted before a letter is written: presets (cards, emails, tokens), or in a file a table `[redact]` with"
            " headers, paths, patterns, presets and key; see redaction.md.",
            ALLOWED,
        ),
    ] = Redaction()
    alerts: Annotated[
        tuple[str, ...],
        _about(
            "Who is told of exhausted letters: webhooks and PagerDuty, as a list of URLs, or in one line with spaces between them;"
            " see alerts.md.",
            "a list of URLs such as https://ops.example.com/hooks/redrive or pagerduty://ROUTING_KEY@events.pagerduty.com",
        ),
    ] = ()
    targets: Annotated[
        dict[str, str],
        _about(
            "Where letters go that go back to their source: in a file a table `[targets]` with a target for each source, and `*` for"
            " all others, in the environment a line such as `orders=py:shop.orders:handle *=py:shop:rest`; see targets.md.",
            "a target for each source, such as orders=py:shop.orders:handle",
        ),
    ] = {}
    queues: Annotated[
        dict[str, str],
        _about(
            "Further stores for queues' partitions, beside the store itself: in a file a table `[queues]` with a URL for each name,"
            " in the environment a line such as `fast=memory: large=postgres://db/queues`; see queues.md.",
            "a URL for each name, such as large=postgres://db/queues",
        ),
    ] = {}
    kafka: Annotated[
        dict[str, str],
        _about(
            "Where `kafka:TOPIC` is: in a file a table `[kafka]` with brokers and options of librdkafka such as security.protocol, in"
            " the environment a line such as `brokers=kafka-1:9092,kafka-2:9092 security.protocol=SSL`; see targets.md.",
            "brokers, and options of librdkafka by name, such as brokers=kafka-1:9092",
        ),
    ] = {}
    retention: Annotated[
        tuple[RetentionRule, ...],
        _about(
            "Which letters are removed or archived when their time has come: in a file tables `[[retention]]` with query, act (purge"
            " or archive) and name, in the environment a line each such as `purge: status:completed age>30d`; see retention.md.",
            RULES,
        ),
    ] = ()
    replay: Annotated[
        tuple[ReplayRule, ...],
        _about(
            "Which letters go back by themselves where `redrive up` runs: in a file tables `[[replay]]` with name, query, to, every"
            " and what `redrive replay` can be told, in the environment the same as JSON; see redriving.md.",
            REPLAYS,
        ),
    ] = ()

    def __repr__(self) -> str:
        """Secrets in it are hidden."""
        return f"Settings({', '.join(f'{name}={_shown(name, getattr(self, name))!r}' for name in self.__struct_fields__)})"

    def journal_folder(self, environ: Mapping[str, str] = os.environ) -> Path:
        """Where the journal lies: the given folder, else one in the user's state folder."""
        try:
            if self.journal:
                return Path(self.journal).expanduser()
            state = Path(environ.get("XDG_STATE_HOME", ""))
            # The XDG rules say that a relative path is to be ignored.
            return (state if state.is_absolute() else Path.home() / ".local" / "state") / "redrive" / "journal"
        except RuntimeError as error:
            raise BadSettings("there is no home folder for the journal; set journal to a folder of its own") from error


class Entry(Struct, frozen=True, kw_only=True):
    """One setting as people are shown it."""

    name: str
    value: str
    """Secrets in it are hidden."""
    origin: str
    doc: str


class Loaded(Struct, frozen=True, kw_only=True):
    """The settings, and where each came from."""

    settings: Settings
    origins: Mapping[str, str]
    """By name: `default`, `environment REDRIVE_STORE`, `redrive.toml`, `flag --store` …"""

    def entries(self) -> list[Entry]:
        """Every setting with its value, origin and meaning, secrets hidden."""
        return [
            Entry(
                name=name,
                value=_shown(name, getattr(self.settings, name)),
                origin=self.origins[name],
                doc=meta.description or "",
            )
            for name, meta in _metas().items()
        ]


class _Given(Struct, frozen=True):
    """A value before it is checked."""

    value: object
    origin: str
    is_text: bool = False
    """It came as text, so numbers may be read from it."""
    is_secret: bool = False
    """Never shown, not even when it is wrong."""


def load(
    flags: Mapping[str, object] | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    folder: Path | None = None,
    config: Path | None = None,
) -> Loaded:
    """Read the settings, or raise `BadSettings` with one sentence on what to mend. A flag that is None was not given."""
    folder = folder or Path.cwd()
    if config is None and (named := environ.get("REDRIVE_CONFIG")):
        config = Path(named)
    given = {
        **(_from_named_file(folder, config) if config else _from_found_file(folder)),
        **_from_environment(environ, folder),
        **_from_flags(flags or {}),
    }
    values = {name: _checked(name, raw) for name, raw in given.items()}
    origins = {name: given[name].origin if name in given else "default" for name in Settings.__struct_fields__}
    return Loaded(settings=Settings(**values), origins=origins)


_PASSWORD = re.compile(r"(?<=://)([^:/?#\s]*):(?!\d{1,5}(?:[/?#,]|\Z)).*@", re.DOTALL)
"""Up to the last @, since a password may hold any sign that ought to have been escaped; a port is no password."""

_SECRET_PARAMETER = re.compile(
    r"((?:^|[?&#;\s])[\w.-]*(?:password|passwd|pwd|token|secret|api_?key)[\w.-]*=)[^&\s]+", re.IGNORECASE
)


def masked(value: str) -> str:
    """The value as people may see it: no password of a URL, and no parameter that is named like a secret."""
    return _SECRET_PARAMETER.sub(r"\1***", _PASSWORD.sub(r"\1:***@", value))


_TARGET = re.compile(r"(\w[\w+.-]*)://([^/?#]*@)?([\w.-]+|\[[0-9A-Fa-f:.]+\])?(:\d{1,5})?(?=[/?#]|\Z)(.*)", re.DOTALL)


_LOGIN = re.compile(r"(\w[\w+.-]*://)[^/?#@]*@")


def masked_target(url: str) -> str:
    """An alert's target as people may see it: where it is, without login, path and options, any of which may be its key."""
    found = _TARGET.fullmatch(url)
    if found is None:
        return "***"
    scheme, login, host, port, rest = found.groups(default="")
    if scheme not in ("http", "https"):
        return f"{scheme}://***" + (f"@{host}{port}" if login else "")
    return f"{scheme}://{host}{port}" + ("/***" if rest.strip("/") else "")


def _from_flags(flags: Mapping[str, object]) -> dict[str, _Given]:
    _ensure_known("flag", (_flag(name) for name in flags), [_flag(name) for name in Settings.__struct_fields__])
    return {
        name: _Given(value, f"flag {_flag(name)}", is_text=isinstance(value, str))
        for name, value in flags.items()
        if value is not None
    }


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


_OTHER_VARIABLES = ("REDRIVE_CONFIG", "REDRIVE_CHAOS", "REDRIVE_ENDPOINT")
"""Names the file; makes our own tests run long; is where `redrive queue` finds its server."""

_OTHERS = ("REDRIVE_TEST_", "REDRIVE_DLQ_")
"""How the names begin by which tests find engines, and of the settings of `redrive.workflows`."""

_SERVICE_LINK = re.compile(r"REDRIVE_(?:\w+_)?(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT_\d+_(?:TCP|UDP|SCTP)(?:_\w+)?)\Z")


def _is_service_link(name: str, value: str) -> bool:
    """Kubernetes puts these into every pod beside a service whose name begins with redrive; they are not meant for us."""
    return bool(_SERVICE_LINK.match(name)) or (name.endswith("_PORT") and "://" in value)


def _from_environment(environ: Mapping[str, str], folder: Path) -> dict[str, _Given]:
    variables = {f"REDRIVE_{name.upper()}": name for name in Settings.__struct_fields__}
    ours = {
        name: value
        for name, value in environ.items()
        if name.startswith("REDRIVE_")
        and name not in _OTHER_VARIABLES
        and not name.startswith(_OTHERS)
        and not _is_service_link(name, value)
    }
    files = {f"{variable}_FILE": variable for variable in variables}
    _ensure_known("environment variable", ours, [*variables, *_OTHER_VARIABLES], also=files)
    given = {}
    for variable, value in ours.items():
        if (direct := files.get(variable)) is None:
            given[variables[variable]] = _Given(value, f"environment {variable}", is_text=True)
        elif direct in ours:
            raise BadSettings(f"{direct} and {variable} are both set; keep one of them")
        else:
            text = _read(folder / value, f"the file {value} that {variable} names").rstrip("\r\n")
            given[variables[direct]] = _Given(text, f"environment {variable}", is_text=True, is_secret=True)
    return given


def _from_found_file(folder: Path) -> dict[str, _Given]:
    for name in ("redrive.toml", "pyproject.toml", "redrive.yaml", "redrive.yml"):
        if (path := folder / name).is_file() and (table := document(path, name)) is not None:
            return _from_table(table, name)
    return {}


def _from_named_file(folder: Path, config: Path) -> dict[str, _Given]:
    path = folder / config.expanduser()
    if not path.is_file():
        raise BadSettings(f"there is no settings file {config}; create it, or name another with --config or REDRIVE_CONFIG")
    table = document(path, str(config))
    if table is None:
        raise BadSettings(f"{config} has no [tool.redrive] table; add it, or name another file")
    return _from_table(table, str(config))


def _from_table(table: object, name: str) -> dict[str, _Given]:
    if not isinstance(table, dict):
        raise BadSettings(f"{name} must hold settings by name, such as namespace: default")
    origin = f"{name} [tool.redrive]" if Path(name).name == "pyproject.toml" else name
    _ensure_known(f"setting of {origin}", map(str, table), Settings.__struct_fields__)
    return {key: _Given(value, origin) for key, value in table.items()}


def document(path: Path, name: str) -> object | None:
    """What a TOML or YAML file says; None: it is a `pyproject.toml` that says nothing about redrive."""
    text = _read(path, name)
    match path.suffix:
        case ".toml":
            import tomllib

            try:
                found = tomllib.loads(text)
            except tomllib.TOMLDecodeError as error:
                raise BadSettings(f"{name} is not valid TOML: {error}") from error
            if path.name != "pyproject.toml":
                return found
            tools = found.get("tool")
            return tools.get("redrive") if isinstance(tools, dict) else None
        case ".yaml" | ".yml":
            try:
                import yaml  # type: ignore[import-untyped]  # its types are a package of their own
            except ImportError as error:
                raise MissingExtra(f"{name} needs YAML; pip install 'redrive[yaml]', or write redrive.toml instead") from error
            try:
                found = yaml.safe_load(text)
            except yaml.YAMLError as error:
                mark = getattr(error, "problem_mark", None)
                where = f" at line {mark.line + 1}" if mark else ""
                raise BadSettings(f"{name} is not valid YAML{where}: {getattr(error, 'problem', None) or error}") from error
            return {} if found is None else found
        case _:
            raise BadSettings(f"cannot read {name}; its name must end in .toml, .yaml or .yml")


def _read(path: Path, called: str) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise BadSettings(f"cannot read {called}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadSettings(f"cannot read {called}: it is not UTF-8 text") from error


def _ensure_known(what: str, names: Iterable[str], known: Iterable[str], *, also: Iterable[str] = ()) -> None:
    """Raise for the first name that is neither `known` nor `also`; only the `known` are listed when none is near."""
    known = list(known)
    allowed = {*known, *also}
    for name in names:
        if name not in allowed:
            import difflib

            near = difflib.get_close_matches(name, sorted(allowed), n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(known))}"
            raise BadSettings(f"unknown {what} {name}; {hint}")


_URLS = re.compile(r"\s*,\s*(?=\w[\w+.-]*://)|\s+")
"""Between URLs: a URL may have a comma, but no space."""


_TABLES = ("targets", "queues", "kafka")
"""In the environment each is a line of pairs."""


def _checked(name: str, given: _Given) -> Any:
    hint = _hints()[name]
    if name == "redact":
        try:
            return Redaction.read(given.value)
        except BadSettings as error:
            raise BadSettings(f"{name} ({given.origin}): {error}") from error
    if name in _RULES:
        return _rules(name, given)
    value = given.value
    if name == "alerts" and isinstance(value, str):
        value = [url for url in _URLS.split(value) if url]
    if name in _TABLES and isinstance(value, str):
        pairs = [part.partition("=") for part in value.split()]
        # What is no pair is told by the same sentence as what is no table.
        value = {source: target for source, equals, target in pairs} if all(equals for _, equals, _ in pairs) else None
    if name == "kafka" and isinstance(value, dict):
        value = dict(_flat(value))
    try:
        return msgspec.convert(value, hint, strict=not given.is_text)
    except msgspec.ValidationError as error:
        shown = "" if given.is_secret or name in ("alerts", *_TABLES) else f", not {masked(_text(given.value))[:80]!r}"
        raise BadSettings(f"{name} ({given.origin}) must be {_metas()[name].extra['allowed']}{shown}") from error


def _flat(table: Mapping[str, Any], before: str = "") -> Iterable[tuple[str, object]]:
    """Options by their whole names, each as text: TOML takes a dot in a name that is not quoted for a table within."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", _text(value) if isinstance(value, bool | int | float) else value


_RULES: dict[str, Callable[[object], tuple[object, ...]]] = {"retention": retention_rules, "replay": replay_rules}


def _rules(name: str, given: _Given) -> tuple[object, ...]:
    try:
        return _RULES[name](given.value)
    except BadQuery as error:
        what = str(error).removesuffix(f" (column {error.column})")
        raise BadQuery(f"{name} ({given.origin}): {what}", text=error.text, column=error.column, width=error.width) from error
    except BadSettings as error:
        raise BadSettings(f"{name} ({given.origin}): {error}") from error


def _hints() -> dict[str, Any]:
    return get_type_hints(Settings, include_extras=True)


def _metas() -> dict[str, Any]:
    return {name: hint.__metadata__[0] for name, hint in _hints().items()}


def _shown(name: str, value: object) -> str:
    """As it would be written in the environment, without secrets."""
    if name == "kafka" and isinstance(value, dict):
        return " ".join(f"{option}={'***' if is_secret(option) else text}" for option, text in value.items())
    if isinstance(value, dict):
        return " ".join(f"{source}={_without_login(masked(target))}" for source, target in value.items())
    if not isinstance(value, tuple):
        return masked(_text(value))
    if any(isinstance(one, RetentionRule) for one in value):
        return "\n".join(map(str, value))
    if any(isinstance(one, ReplayRule) for one in value):
        tables = [one.table() for one in value]
        return msgspec.json.encode(
            [one | ({"to": _without_login(masked(one["to"]))} if "to" in one else {}) for one in tables]
        ).decode()
    return " ".join(map(masked_target, value))


def _without_login(target: str) -> str:
    return _LOGIN.sub(r"\1***@", target)


def _text(value: object) -> str:
    """As it would be written in the environment."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def load_policy(file: str | os.PathLike[str]) -> Policy:
    """The policy in a TOML or YAML file; `BadSettings` in one sentence when it cannot be read."""
    from redrive.model.policy_file import policy_of  # late: most policies are made in code

    found = document(Path(file), str(file))
    if not isinstance(found, dict):
        raise BadSettings(f"{file} must hold a table of a policy's settings")
    try:
        return policy_of(found)
    except BadSettings as error:
        raise BadSettings(f"{file}: {error}") from error
