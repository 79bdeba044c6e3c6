"""The command line as people and scripts use it: the real program, in a folder of its own."""

from __future__ import annotations

import base64
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.json import encode

from redrive import Message, Status, blocking
from redrive.model.amendment import Amendment
from redrive.model.query import Order
from redrive.serve.shape import letter_shape

PROGRAM = [sys.executable, "-m", "redrive"]
BAD = ValueError("bad")
PATIENCE = 30


class Shell:
    """A folder, an environment without any settings of ours, and the program."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "XDG_STATE_HOME": str(folder / "state"),
            "PYTHONWARNINGS": "error",
            "LC_ALL": "C.UTF-8",
        }

    def __call__(self, *args: str | bytes, stdin: bytes | None = b"", status: int = 0, **environment: str) -> Done:
        done = subprocess.run(
            [*PROGRAM, *args],
            input=stdin,
            cwd=self.folder,
            env=self.environment | environment,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )
        answer = Done(done.stdout, done.stderr)
        assert "Traceback" not in answer.err, answer.err
        assert done.returncode == status, f"exit {done.returncode}: {answer.err or answer.out}"
        return answer

    def refused(self, *args: str | bytes, status: int = 2, stdin: bytes | None = b"", **environment: str) -> str:
        """The one sentence that a mistake gets."""
        done = self(*args, status=status, stdin=stdin, **environment)
        assert done.out == ""
        *usage, sentence = done.err.strip().splitlines()
        assert sentence.startswith("Error: "), done.err
        assert all(line.startswith(("Usage:", "Try ")) or not line for line in usage), done.err
        return sentence.removeprefix("Error: ")

    def letters(self) -> list[dict[str, Any]]:
        """What is in the store, oldest first, in the shape that `--json` has."""
        with self.store() as dlq:
            found: list[dict[str, Any]] = json.loads(encode([letter_shape(letter) for letter in dlq.find(order=Order.OLDEST)]))
        return found

    def store(self) -> blocking.DeadLetters:
        return blocking.open(f"sqlite:{self.folder}/redrive.db")

    def module(self, name: str, text: str) -> None:
        (self.folder / f"{name}.py").write_text(text)

    def start(self, *args: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*PROGRAM, *args],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )


class Done:
    def __init__(self, out: bytes, err: bytes) -> None:
        self.raw = out
        self.out = out.decode("utf-8", "surrogateescape")
        self.err = err.decode("utf-8", "surrogateescape")

    @property
    def json(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.out)
        assert answer["schema"] == 1
        return answer


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


MANY = """
import contextlib, io, json, sys
from redrive.serve.cli import main
answers = []
for args, stdin in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin.encode("latin-1")))
    status = None
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(args)
        except SystemExit as end:
            status = end.code or 0
        except BaseException as error:
            err.write(f"Traceback: {error!r}")
    answers.append((status, out.getvalue(), err.getvalue()))
json.dump(answers, sys.stdout)
"""


def many(shell: Shell, calls: list[list[str]], stdin: bytes = b"") -> dict[str, tuple[int, str, str]]:
    """Status, output and stderr of many calls that need no process each."""
    done = subprocess.run(
        [sys.executable, "-c", MANY],
        cwd=shell.folder,
        env=shell.environment,
        input=json.dumps([(args, stdin.decode("latin-1")) for args in calls]),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    return {" ".join(args): tuple(answer) for args, answer in zip(calls, json.loads(done.stdout), strict=True)}


def eventually(claim: Callable[[], Any]) -> Any:
    """Wait for a condition, with a bound."""
    deadline = time.monotonic() + PATIENCE
    while not (answer := claim()):
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.01)
    return answer


def test_the_program_says_what_it_can_do(shell: Shell) -> None:
    out = shell("--help").out
    for name in ("up", "demo", "ls", "show", "retry", "capture", "run", "config", "doctor", "completion"):
        assert re.search(rf"^  {name}\s+\S", out, re.MULTILINE), name
    assert shell("--version").out.startswith("redrive, version ")


def test_every_command_takes_a_store_and_explains_itself(shell: Shell) -> None:
    commands = ["up", "demo", "ls", "show", "retry", "capture", "run", "config", "doctor"]
    for call, (status, out, err) in many(shell, [[command, "--help"] for command in commands]).items():
        assert (status, err) == (0, ""), call
        assert "--store URL" in out, call


MISTAKES: list[tuple[list[str], str]] = [
    (["lss"], "There is no command 'lss'; did you mean 'ls'?"),
    (["zzz"], "There is no command 'zzz'; there are up, demo, ls, show, retry, capture, run, config, doctor, completion."),
    (["--bogus"], "No such option"),
    (["ls", "--sorce", "x"], "No such option"),
    (["ls", "--status", "pendin"], "'pendin' is not one of"),
    (["ls", "--limit", "-1"], "-1 is not in the range"),
    (["ls", "--limit", "many"], "'many' is not a valid integer"),
    (["ls", "--since", "yesterday"], "'yesterday' is not a time; write how long ago (2h, 7d) or an ISO time"),
    (["ls", "extra"], "unexpected extra argument"),
    (["ls", "--store", "sqlit:x"], "did you mean sqlite:?"),
    (["ls", "--store", "x.db"], "'x.db' has no scheme"),
    (["ls", "--store", "sqlite:"], "sqlite: needs a path"),
    (["ls", "--store", ""], "store (flag --store) must be a URL such as sqlite:redrive.db"),
    (["ls", "--config", "no.toml"], "there is no settings file no.toml"),
    (["show"], "Missing argument 'ID'"),
    (["retry"], "Say which letters: ids, filters such as --source orders, or --all."),
    (["retry", "ab", "--all"], "Give ids or filters, not both."),
    (["retry", "--all", "--batch", "0"], "0 is not in the range"),
    (["capture"], "Missing option '--source'"),
    (["capture", "--source", "s", "--header", "no-equals"], "'no-equals' is not a header; write NAME=VALUE"),
    (["run", "--source", "s"], "Missing argument"),
    (["run", "--", "true"], "Missing option '--source'"),
    (["run", "--source", "s", "--attempts", "0", "--", "true"], "0 is not in the range"),
    (
        ["run", "--source", "s", "--first", "soon", "--", "true"],
        "'soon' is not a duration; write 500ms, 90s, 15m, 1h30m or 7d",
    ),
    (["run", "--source", "s", "--atempts", "3", "--", "true"], "No such option"),
    (["completion", "tcsh"], "'tcsh' is not one of"),
    (["up", "--listen", "nowhere"], "listen (flag --listen) must be host:port"),
    (["up", "--listen", "127.0.0.1:99999"], "listen (flag --listen) must be host:port"),
]


@pytest.fixture(scope="module")
def mistaken(tmp_path_factory: pytest.TempPathFactory) -> tuple[Shell, dict[str, tuple[int, str, str]]]:
    shell = Shell(tmp_path_factory.mktemp("mistakes"))
    return shell, many(shell, [args for args, _ in MISTAKES])


@pytest.mark.parametrize(("args", "sentence"), MISTAKES, ids=[" ".join(args) for args, _ in MISTAKES])
def test_a_mistake_gets_one_clear_sentence(
    args: list[str], sentence: str, mistaken: tuple[Shell, dict[str, tuple[int, str, str]]]
) -> None:
    shell, answers = mistaken
    status, out, err = answers[" ".join(args)]
    assert (status, out) == (2, "")
    assert sentence in err.splitlines()[-1]
    assert "Traceback" not in err
    assert not (shell.folder / "x.db").exists()


def test_a_mistake_of_the_real_program_ends_it_with_2(shell: Shell) -> None:
    assert shell.refused("lss") == "There is no command 'lss'; did you mean 'ls'?"
    assert list(shell.folder.iterdir()) == []


def test_a_time_beyond_the_calendar_gets_one_clear_sentence(shell: Shell) -> None:
    calls = [["ls", "--since", moment] for moment in ("99999999999d", "1000000d", "0001-01-01", "9999-12-31T23:59:59-23:59")]
    for call, (status, _, err) in many(
        shell, [*calls, ["run", "--source", "s", "--first", "99999999999w", "--", "true"]]
    ).items():
        assert "Traceback" not in err, call
        assert status in (0, 2), call


@pytest.mark.parametrize(
    "command",
    [
        ["ls"],
        ["doctor"],
        ["capture", "--source", "s"],
        ["run", "--source", "s", "--", "true"],
        ["retry", "--all", "--yes", "--to", "py:json:loads"],
    ],
    ids=lambda args: args[0],
)
def test_a_file_that_is_no_database_is_named_and_left_alone(command: list[str], shell: Shell) -> None:
    (shell.folder / "redrive.db").write_text("not a database, " * 100)
    done = shell(*command, status=1)
    assert "redrive.db is not a SQLite database; choose another path or move the file aside" in done.out + done.err
    assert (shell.folder / "redrive.db").read_text() == "not a database, " * 100


def test_an_unknown_setting_names_the_nearest(shell: Shell) -> None:
    assert "did you mean REDRIVE_STORE?" in shell.refused("ls", REDRIVE_STOR="sqlite:x.db")


def test_a_folder_that_was_removed_gets_one_clear_sentence(shell: Shell) -> None:
    gone = shell.folder / "gone"
    gone.mkdir()
    command = f"rmdir '{gone}'; exec '{sys.executable}' -m redrive ls"
    done = subprocess.run(["sh", "-c", command], cwd=gone, env=shell.environment, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert done.returncode in (1, 2)


def test_capture_makes_a_letter_from_standard_input(shell: Shell) -> None:
    done = shell(
        "capture", "--source", "webshop", "--source-id", "o-7", "--error", "TimeoutError", "--message", "gateway did not answer",
        "--header", "tenant=acme", "--header", "empty=", "--tag", "a", "--tag", "b", stdin=b'{"order": 7}',
    )  # fmt: skip
    (letter,) = shell.letters()
    assert done.out == f"{letter['id']}  new\n"
    assert (letter["source"], letter["source_id"], letter["status"], letter["body"]) == (
        "webshop",
        "o-7",
        "pending",
        '{"order": 7}',
    )
    assert (letter["content_type"], letter["tags"]) == ("application/json", ["a", "b"])
    assert letter["headers"] == [{"name": "tenant", "value": "acme"}, {"name": "empty", "value": ""}]
    assert (letter["failure"]["type"], letter["failure"]["message"], letter["failure"]["category"]) == (
        "TimeoutError",
        "gateway did not answer",
        "network",
    )
    assert shell("capture", "--source", "webshop", "--source-id", "o-7", "--json").json["letters"] == [
        {"id": letter["id"], "held": "attempt"}
    ]


def test_capture_keeps_bytes_as_they_came(shell: Shell) -> None:
    raw = bytes(range(256)) + b"\r\n\0"
    shell("capture", "--source", "s", stdin=raw)
    (letter,) = shell.letters()
    assert letter["content_type"] == "application/octet-stream"
    assert base64.b64decode(letter["body_base64"]) == raw
    assert "body" not in letter
    assert shell("show", letter["id"], "--body").raw == raw


def test_capture_without_an_id_makes_a_letter_each_time(shell: Shell) -> None:
    for _ in range(2):
        shell("capture", "--source", "s", stdin=b"same")
    assert len(shell.letters()) == 2


def test_lines_make_a_letter_each(shell: Shell) -> None:
    lines = [
        {"source_id": "1", "body": {"a": [1]}, "headers": {"h": "v"}, "error": "KeyError", "message": "no a"},
        {"source_id": "2", "body": "text ü"},
        {"source_id": "3", "body_base64": base64.b64encode(b"\xff\0").decode(), "source": "other"},
        {},
    ]
    stdin = b"\n\n".join(json.dumps(line).encode() for line in lines)
    answer = shell("capture", "--lines", "--source", "s", "--error", "OSError", "--json", stdin=stdin).json
    assert [one["held"] for one in answer["letters"]] == ["new"] * 4
    by_id = {letter["source_id"]: letter for letter in shell.letters()}
    assert len(by_id) == 4
    assert (by_id["1"]["body"], by_id["1"]["content_type"], by_id["1"]["failure"]["type"]) == (
        '{"a": [1]}',
        "application/json",
        "KeyError",
    )
    assert (by_id["2"]["body"], by_id["2"]["failure"]["type"]) == ("text ü", "OSError")
    assert (by_id["3"]["body_base64"], by_id["3"]["source"]) == ("/wA=", "other")
    assert shell("capture", "--lines", "--source", "s").out == "0 letters held.\n"


WRONG_LINES = {
    b"{not json": "line 3 cannot be read",
    b"[1]": "line 3 cannot be read",
    b'{"sourceid": "1"}': "sourceid",
    b'{"body_base64": "***"}': "line 3 cannot be read",
    b'{"source_id": 5}': "line 3 cannot be read",
    b'{"headers": {"a": 1}}': "line 3 cannot be read",
    b'{"body": "\xff"}': "line 3 cannot be read",
    b'{"body": 1, "body_base64": "eA=="}': "line 3",
}


@pytest.fixture(scope="module")
def misread(tmp_path_factory: pytest.TempPathFactory) -> dict[bytes, tuple[bool, int, str]]:
    """For each wrong line: was anything made, the exit status, and what was said."""
    answers = {}
    program = MANY.replace(
        "json.load(sys.stdin)",
        '[(["capture", "--lines", "--source", "s", "--store", f"sqlite:{n}.db"], text) for n, text in enumerate(json.load(sys.stdin))]',
    )
    shell = Shell(tmp_path_factory.mktemp("lines"))
    good = b'{"source_id": "1"}\n{"source_id": "2"}\n'
    texts = json.dumps([(good + line).decode("latin-1") for line in WRONG_LINES])
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=shell.folder,
        env=shell.environment,
        input=texts,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    for number, (line, (status, _, err)) in enumerate(zip(WRONG_LINES, json.loads(done.stdout), strict=True)):
        answers[line] = ((shell.folder / f"{number}.db").exists(), status, err)
    return answers


@pytest.mark.parametrize("line", WRONG_LINES, ids=[line.decode("latin-1") for line in WRONG_LINES])
def test_when_one_line_is_wrong_nothing_is_held(line: bytes, misread: dict[bytes, tuple[bool, int, str]]) -> None:
    is_made, status, err = misread[line]
    assert (is_made, status) == (False, 2)
    assert err.startswith("Error: ")
    assert WRONG_LINES[line] in err
    assert "nothing was held" in err
    assert err.count("\n") == 1


def test_an_id_for_many_lines_is_a_mistake(shell: Shell) -> None:
    assert "--source-id" in shell.refused("capture", "--lines", "--source", "s", "--source-id", "1", stdin=b"{}\n{}\n")


@pytest.mark.parametrize("option", ["--source", "--error", "--message", "--tag"])
def test_bytes_that_are_no_text_do_not_break_capture(option: str, shell: Shell) -> None:
    """Shells hand over whatever bytes there are: file names, for one. The message must not be lost for that."""
    odd = b"a=\xff"
    shell("capture", *(() if option == "--source" else ("--source", "s")), option, odd, stdin=b"x")
    assert len(shell.letters()) == 1


@pytest.mark.parametrize("command", ["capture --source s", "run --source s -- true"])
def test_a_closed_standard_input_is_an_empty_one(command: str, shell: Shell) -> None:
    done = subprocess.run(
        ["sh", "-c", f"exec '{sys.executable}' -m redrive {command} <&-"],
        cwd=shell.folder,
        env=shell.environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.stderr, done.returncode) == ("", 0)


def test_ls_says_when_there_is_nothing(shell: Shell) -> None:
    assert shell("ls").out == "No letters: nothing has failed here.\n"
    assert shell("ls", "--json").json["letters"] == []
    assert shell("ls", "--source", "x").out == "No letters match.\n"


def filled(shell: Shell) -> None:
    with shell.store() as dlq:
        for number, (source, error) in enumerate(
            [("orders", TimeoutError("slow")), ("orders", KeyError("id")), ("mails", PermissionError("no"))]
        ):
            dlq.capture(Message(body=b"x", id=str(number)), error, source=source, tags=[f"t{number}"])
        dlq.redrive(lambda body: None, ids=[next(letter.id for letter in dlq.find() if letter.source_id == "1")])


FILTERS: list[tuple[list[str], str]] = [
    ([], "012"),
    (["--source", "orders"], "01"),
    (["--status", "completed"], "1"),
    (["--error", "TimeoutError"], "0"),
    (["--error", "builtins.KeyError"], "1"),
    (["--category", "permission"], "2"),
    (["--tag", "t2"], "2"),
    (["--since", "1h", "--source", "mails"], "2"),
    (["--until", "1h"], ""),
    (["--source", "orders", "--status", "pending"], "0"),
    (["--limit", "2"], "21"),
    (["--source", "o' OR '1'='1"], ""),
    (["--source", "", "--status", "pending"], ""),
]


@pytest.fixture(scope="module")
def filtered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str, str]]:
    shell = Shell(tmp_path_factory.mktemp("filters"))
    filled(shell)
    return many(shell, [["ls", "--json", *args] for args, _ in FILTERS])


@pytest.mark.parametrize(("args", "ids"), FILTERS, ids=[" ".join(args) for args, _ in FILTERS])
def test_ls_shows_what_the_filters_choose_and_nothing_more(
    args: list[str], ids: str, filtered: dict[str, tuple[int, str, str]]
) -> None:
    status, out, _ = filtered[" ".join(["ls", "--json", *args])]
    found = [letter["source_id"] for letter in json.loads(out)["letters"]] if status == 0 else []
    assert sorted(found) == sorted(ids)


def test_ls_in_json_has_every_letter_in_full(shell: Shell) -> None:
    filled(shell)
    assert shell("ls", "--json", "--order", "oldest").json["letters"] == shell.letters()


def test_ls_prints_a_table_that_people_can_read(shell: Shell) -> None:
    filled(shell)
    out = shell("ls").out
    assert out.splitlines()[-1] == "3 letters."
    assert re.search(r"^\s*[0-9a-f]{8} .* orders .* 0 .* pending .* 1 .* TimeoutError: slow$", out, re.MULTILINE)
    assert "2 of 3 letters; --limit 0 shows all." in shell("ls", "--limit", "2").out
    assert all(line == line.rstrip() for line in out.splitlines())


def test_what_hostile_messages_say_cannot_command_the_terminal(shell: Shell) -> None:
    """Colours only on a terminal, and never those of a letter: escape sequences in it must not reach anybody's screen."""
    with shell.store() as dlq:
        evil = "\x1b[31mred\x1b]0;title\x07 \x9b2J \x00 \r over [bold]markup[/bold]"
        id = dlq.capture(
            Message(body=evil.encode(), id=evil, content_type="text/plain", headers=(("h\x1b[5m", b"\x1b[6n"),)),
            ValueError(evil),
            source=f"s{evil}",
        ).letter.id
    for args in (["ls"], ["show", str(id)], ["retry", str(id), "--to", "py:json:loads"]):
        out = shell(*args, status=1 if args[0] == "retry" else 0).out
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\x80-\x9f]", out), (args[0], out)
        assert args[0] == "retry" or "[bold]markup[/bold]" in out


def test_show_tells_the_whole_story(shell: Shell) -> None:
    with shell.store() as dlq:

        @dlq.guard(source="orders", tags=["vip"], metadata={"team": "shop"})
        def ship(order: dict[str, Any]) -> None:
            raise ConnectionError("warehouse is down")

        ship({"id": 7})
        (letter,) = dlq.find()
    out = shell("show", str(letter.id)[:8]).out
    for part in (
        str(letter.id),
        "pending",
        "builtins.ConnectionError (network)",
        "warehouse is down",
        "vip",
        "team",
        "shop",
        "history",
        "3.",
        "traceback",
        "ship",
        "application/json",
        '"id": 7',
    ):
        assert part in out, part
    shown = shell("show", str(letter.id), "--json").json["letter"]
    assert (shown["attempts"], len(shown["history"]), shown["metadata"]) == (3, 3, {"team": "shop"})
    assert set(shown) >= {
        "id",
        "namespace",
        "source",
        "source_id",
        "generation",
        "failure",
        "history",
        "retry",
        "redrive",
        "origin",
        "original",
        "expires_at",
    }


def test_an_unknown_id_gets_one_clear_sentence(shell: Shell) -> None:
    filled(shell)
    sentences = {
        "zz": "'zz' is not a letter's id: those are hexadecimal",
        "ffffffff": "there is no letter ffffffff",
        "": "is not a letter's id",
    }
    calls = [call for id in sentences for call in (["show", id], ["retry", id, "--to", "py:json:loads"])]
    for call, (status, out, err) in many(shell, calls).items():
        assert (status, out) == (1, ""), call
        assert sentences[call.split(" ")[1]] in err, call


def test_show_gives_large_and_amended_bodies_in_full(shell: Shell) -> None:
    with shell.store() as dlq:
        big = dlq.capture(b"\xff" * 2_000_000, BAD, source="s").letter.id
        small = dlq.capture(b"\xfe\xff", BAD, source="s").letter.id
        dlq.letters.amend([Amendment(id=small, body=b"mended")])
    assert shell("show", str(big), "--body").raw == b"\xff" * 2_000_000
    assert shell("show", str(big), "--json").json["letter"]["body_ref"]["size"] == 2_000_000
    original = shell("show", str(small), "--json").json["letter"]["original"]
    assert base64.b64decode(original["body_base64"]) == b"\xfe\xff"
    assert "body" not in original


def test_a_reader_that_has_seen_enough_is_no_failure(shell: Shell) -> None:
    with shell.store() as dlq:
        for number in range(20):
            dlq.capture("x" * 50_000, BAD, source="s", id=str(number))
    command = f"('{sys.executable}' -m redrive ls --json; echo $? >status) | head -c 10"
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=shell.folder,
        env=shell.environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert done.stderr == ""
    assert (shell.folder / "status").read_text().strip() == "0"


def test_an_old_terminal_gets_what_it_can_show(shell: Shell) -> None:
    with shell.store() as dlq:
        dlq.capture("日本 ✓", ValueError("✗ ü"), source="s")
    for args in (["ls"], ["show", shell.letters()[0]["id"]], ["doctor"]):
        shell(*args, PYTHONIOENCODING="ascii")


def seen_on_a_terminal(shell: Shell, *args: str, typed: bytes = b"", **environment: str) -> tuple[str, int]:
    """What a person sees who runs the program on a terminal, and its exit status."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(shell.folder)
        os.execve(
            sys.executable, [*PROGRAM, *args], shell.environment | {"TERM": "xterm-256color", "COLUMNS": "160"} | environment
        )
    seen = b""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if not select.select([terminal], [], [], 0.1)[0]:
            continue
        try:
            chunk = os.read(terminal, 65536)
        except OSError:
            break
        if not chunk:
            break
        seen += chunk
        if typed and seen.rstrip().endswith(b"]:"):
            os.write(terminal, typed)
            typed = b""
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    return seen.decode(), os.waitstatus_to_exitcode(status)


def test_colours_appear_on_a_terminal_and_nowhere_else(shell: Shell) -> None:
    filled(shell)
    seen, status = seen_on_a_terminal(shell, "ls")
    assert status == 0
    assert "\x1b[" in seen
    assert "\x1b" not in shell("ls").out
    assert "\x1b" not in shell("show", shell.letters()[0]["id"]).out
    assert "\x1b" not in shell("ls", FORCE_COLOR="1", CLICOLOR_FORCE="1").out
    colourless, _ = seen_on_a_terminal(shell, "ls", NO_COLOR="1")
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]", colourless)


HANDLER = """
seen = []
def work(order):
    with open("seen.txt", "a") as file:
        print(order, file=file)
def fail(order):
    raise ConnectionError("still down")
async def work_async(order):
    work(order)
class Shop:
    @staticmethod
    def ship(order):
        work(order)
number = 5
"""


def test_retry_sends_letters_to_a_function_and_says_what_became_of_them(shell: Shell) -> None:
    filled(shell)
    shell.module("shop", HANDLER)
    (letter,) = [letter for letter in shell.letters() if letter["source_id"] == "0"]
    failed = shell("retry", letter["id"][:8], "--to", "py:shop:fail", status=1).out
    assert failed == f"1 failed again\n  {letter['id'][:8]}  still down\n"
    assert shell("retry", letter["id"][:8], "--to", "py:shop:work_async").out == "1 worked\n"
    assert (shell.folder / "seen.txt").read_text() == "b'x'\n"
    again = shell("retry", letter["id"], "--to", "py:shop:work").out
    assert again == "1 skipped: not open any more, or held by somebody else\n"
    answer = shell("retry", "--source", "mails", "--yes", "--json", "--to", "py:shop:Shop.ship").json
    (operation,) = answer["operations"]
    assert (operation["outcomes"], operation["skipped"], operation["stopped"]) == ({"confirmed": 1}, 0, None)
    assert [row["outcome"] for row in operation["letters"]] == ["confirmed"]
    assert shell("retry", "--all", "--yes", "--to", "py:shop:work").out == "No open letters match; nothing was sent.\n"


def test_retry_asks_before_it_sends_many(shell: Shell) -> None:
    filled(shell)
    shell.module("shop", HANDLER)
    assert (
        shell.refused("retry", "--all", "--to", "py:shop:work")
        == "This would send 2 letter(s) to py:shop:work. Say --yes to do it without being asked."
    )
    seen, status = seen_on_a_terminal(shell, "retry", "--all", "--to", "py:shop:work", typed=b"n\n")
    assert "Send 2 letter(s) to py:shop:work?" in seen
    assert (status, "Stopped." in seen) == (130, True)
    assert not (shell.folder / "seen.txt").exists()
    seen, status = seen_on_a_terminal(shell, "retry", "--all", "--to", "py:shop:work", typed=b"y\n")
    assert ("2 worked" in re.sub(r"\x1b\[[0-9;]*m", "", seen), status) == (True, 0)


def test_an_empty_filter_does_not_choose_everything(shell: Shell) -> None:
    """`redrive retry --source "$SOURCE" --status pending --yes` with a variable that is not set must not send it all."""
    filled(shell)
    shell.module("shop", HANDLER)
    subprocess.run(
        [*PROGRAM, "retry", "--source", "", "--status", "pending", "--yes", "--to", "py:shop:work"],
        cwd=shell.folder,
        env=shell.environment,
        capture_output=True,
        check=False,
    )
    assert not (shell.folder / "seen.txt").exists()


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("py:shop:nothing", "'shop' has no 'nothing'"),
        ("py:shop:number", "is a int, not a function"),
        ("py:nowhere:f", "cannot import 'nowhere'"),
        ("py:broken:f", "cannot import 'broken'"),
        ("py:.shop:f", "cannot import"),
        ("shop:work", "no target answers to 'shop:'; known are py:, command:"),
        ("work", "'work' has no scheme"),
    ],
)
def test_a_target_that_is_not_there_gets_one_clear_sentence(target: str, sentence: str, shell: Shell) -> None:
    filled(shell)
    shell.module("shop", HANDLER)
    shell.module("broken", "def f(:")
    assert sentence in shell.refused("retry", "--all", "--yes", "--to", target)


def test_letters_that_do_not_know_where_to_go_are_not_guessed_at(shell: Shell) -> None:
    filled(shell)
    assert "2 of 2 letter(s) do not know where to go (source 'orders'); say --to py:module:function" in shell.refused(
        "retry", "--all", "--yes"
    )


def test_a_handler_that_exits_does_not_hang_retry(shell: Shell) -> None:
    filled(shell)
    shell.module("shop", "import sys\ndef work(order):\n    sys.exit(7)\n")
    try:
        done = subprocess.run(
            [*PROGRAM, "retry", "--all", "--yes", "--to", "py:shop:work"],
            cwd=shell.folder,
            env=shell.environment,
            capture_output=True,
            text=True,
            timeout=8,
            check=False,
        )
    except subprocess.TimeoutExpired:
        pytest.fail("it never came back")
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    with shell.store() as dlq:
        assert {letter.status for letter in dlq.find()} == {Status.PENDING, Status.COMPLETED}


def test_ctrl_c_stops_a_retry_and_gives_the_letters_back(shell: Shell) -> None:
    filled(shell)
    shell.module(
        "shop", "import asyncio\nasync def work(order):\n    open('started', 'w').close()\n    await asyncio.sleep(3600)\n"
    )
    running = shell.start("retry", "--all", "--yes", "--to", "py:shop:work")
    eventually((shell.folder / "started").exists)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=5)
    assert (out, err.strip(), running.returncode) == ("", "Stopped.", 130)
    with shell.store() as dlq:
        assert {letter.status for letter in dlq.find()} == {Status.PENDING, Status.COMPLETED}


def test_run_passes_output_and_leaves_no_letter_when_all_goes_well(shell: Shell) -> None:
    done = shell("run", "--source", "nightly", "--", "sh", "-c", "cat; echo err >&2; echo $0 $1", "a b", "--flag", stdin=b"in\n")
    assert (done.out, done.err) == ("in\na b --flag\n", "err\n")
    assert shell.letters() == []


def test_run_keeps_arguments_input_status_and_the_end_of_stderr(shell: Shell) -> None:
    script = "cat >/dev/null; for i in $(seq 20000); do echo line $i >&2; done; echo the end >&2; exit 3"
    done = shell("run", "--source", "nightly", "--source-id", "n-1", "--", "sh", "-c", script, stdin=b"\xffinput", status=3)
    (letter,) = shell.letters()
    assert (
        done.err.splitlines()[-1] == f"redrive: kept as letter {letter['id']}; `redrive retry {letter['id'][:8]}` runs it again"
    )
    assert (letter["source"], letter["source_id"], letter["kind"]) == ("nightly", "n-1", "command")
    assert base64.b64decode(letter["body_base64"]) == b"\xffinput"
    assert letter["failure"]["type"] == "redrive.CommandFailed"
    assert letter["failure"]["message"] == "sh: exit status 3: the end"
    assert letter["failure"]["traceback"].endswith("line 20000\nthe end\n")
    assert len(letter["failure"]["traceback"]) <= 65_536
    (header,) = letter["headers"]
    assert json.loads(header["value"]) == {"argv": ["sh", "-c", script], "cwd": str(shell.folder)}


def test_retry_runs_the_program_again_in_its_folder_with_its_input(shell: Shell) -> None:
    (shell.folder / "sub").mkdir()
    script = "cat >>../seen; pwd >>../seen; test -e ../mended"
    done = subprocess.run(
        [*PROGRAM, "run", "--source", "n", "--store", "sqlite:../redrive.db", "--", "sh", "-c", script],
        cwd=shell.folder / "sub",
        env=shell.environment,
        input=b"in\n",
        capture_output=True,
        check=False,
    )
    assert done.returncode == 1
    (letter,) = shell.letters()
    assert "1 failed again" in shell("retry", letter["id"], status=1).out
    (shell.folder / "mended").touch()
    assert shell("retry", letter["id"]).out == "1 worked\n"
    assert (shell.folder / "seen").read_text() == f"in\n{shell.folder}/sub\n" * 3
    assert shell.letters()[0]["status"] == "completed"


def test_run_tries_as_often_as_it_is_told_and_one_success_is_enough(shell: Shell) -> None:
    script = "echo x >>tries; test $(wc -l <tries) -ge 3"
    shell("run", "--source", "n", "--attempts", "2", "--backoff", "immediate", "-q", "--", "sh", "-c", script, status=1)
    (letter,) = shell.letters()
    assert letter["attempts"] == 2
    shell("run", "--source", "n", "--attempts", "2", "--first", "1ms", "--", "sh", "-c", script)
    assert len(shell.letters()) == 1


def test_run_says_nothing_when_it_is_to_be_quiet(shell: Shell) -> None:
    assert shell("run", "--source", "n", "--quiet", "--", "false", status=1).err == ""
    assert len(shell.letters()) == 1


@pytest.mark.parametrize(
    ("argv", "status", "message"),
    [
        (["no-such-program-anywhere"], 127, "not found"),
        (["./not-executable"], 126, "may not be run"),
        (["sh", "-c", "kill -9 $$"], 137, "ended by SIGKILL"),
        (["sh", "-c", "kill -35 $$"], 163, "ended by"),
        (["./no-shebang"], 126, ""),
        (["./not-executable/below"], 127, ""),
        ([""], 127, ""),
    ],
    ids=["missing", "not executable", "killed", "real-time signal", "no shebang", "below a file", "empty"],
)  # fmt: skip
def test_every_way_to_fail_is_a_letter_and_the_status_a_shell_gives(
    argv: list[str], status: int, message: str, shell: Shell
) -> None:
    (shell.folder / "not-executable").write_text("#!/bin/sh\n")
    (shell.folder / "no-shebang").write_text("just text\n")
    (shell.folder / "no-shebang").chmod(0o755)
    done = subprocess.run(
        [*PROGRAM, "run", "--source", "n", "--", *argv],
        cwd=shell.folder,
        env=shell.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr
    assert done.returncode in {status, 126, 127} if status in (126, 127) else done.returncode == status
    (letter,) = shell.letters()
    assert message in letter["failure"]["message"]
    assert letter["failure"]["type"] == "redrive.CommandFailed"


def test_arguments_that_are_no_text_are_kept(shell: Shell) -> None:
    """File names are bytes: `redrive run --source n -- gzip $FILE`."""
    done = subprocess.run(
        [*PROGRAM, "run", "--source", "n", "--", "test", "-e", b"caf\xe9.txt"],
        cwd=shell.folder,
        env=shell.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    assert b"Traceback" not in done.stderr
    assert done.returncode == 1
    (letter,) = shell.letters()
    (shell.folder / os.fsdecode(b"caf\xe9.txt")).touch()
    assert shell("retry", letter["id"]).out == "1 worked\n"


def test_a_giant_last_line_does_not_make_a_giant_message(shell: Shell) -> None:
    shell("run", "--source", "n", "-q", "--", "sh", "-c", "head -c 60000 /dev/zero | tr '\\0' x >&2; exit 1", status=1)
    (letter,) = shell.letters()
    assert len(letter["failure"]["message"]) <= 8_192


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("whole_group", [False, True], ids=["redrive alone", "whole group"])
def test_a_run_that_is_told_to_stop_ends_its_program_and_is_not_captured(
    number: signal.Signals, whole_group: bool, shell: Shell
) -> None:
    script = "trap 'touch ended; exit 0' TERM INT; sleep 0.3; touch started; while :; do sleep 0.05; done"
    running = shell.start("run", "--source", "n", "--", "sh", "-c", script)
    eventually((shell.folder / "started").exists)
    if whole_group:
        os.killpg(running.pid, number)
    else:
        running.send_signal(number)
    out, err = running.communicate(timeout=5)
    assert (out, err, running.returncode) == ("", "", 128 + number)
    assert (shell.folder / "ended").exists()
    assert shell.letters() == []


def test_run_learns_first_whether_its_store_can_be_written(shell: Shell) -> None:
    done = shell("run", "--source", "n", "--store", "sqlite:nowhere/x.db", "--", "touch", "ran", status=1)
    assert "cannot open nowhere/x.db" in done.err
    assert not (shell.folder / "ran").exists()


def test_a_batch_of_programs_is_settled_one_by_one_even_if_one_is_no_program(shell: Shell) -> None:
    shell("run", "--source", "n", "-q", "--", "sh", "-c", "echo x >>ran; test -e mended", status=1)
    shell("capture", "--source", "n", stdin=b"not a program")
    (shell.folder / "mended").touch()
    subprocess.run(
        [*PROGRAM, "retry", "--all", "--yes", "--to", "command:"],
        cwd=shell.folder,
        env=shell.environment,
        capture_output=True,
        check=False,
    )
    assert [(letter["kind"], letter["status"]) for letter in shell.letters()] == [("command", "completed"), (None, "pending")]
    assert (shell.folder / "ran").read_text() == "x\nx\n"


def test_the_demo_shows_five_failures_and_what_goes_back(shell: Shell) -> None:
    out = shell("demo").out
    assert out.count("dead letter held") == 5
    assert out.count("shipped") >= 2
    assert "3 worked" in out
    assert "2 failed again" in out
    first = {letter["id"] for letter in shell.letters()}
    assert len(first) == 5
    shell("demo", "--fast")
    second = {letter["id"] for letter in shell.letters()}
    assert len(second) == 10
    assert second > first
    waiting = re.search(r"redrive retry ([0-9a-f]{8}) --to (\S+)", out)
    assert waiting
    assert "failed again" in shell("retry", waiting[1], "--to", waiting[2], status=1).out


def test_config_prints_each_value_with_where_it_came_from(shell: Shell) -> None:
    (shell.folder / "redrive.toml").write_text('namespace = "shop"\n')
    settings = shell("config", "--json", "--store", "sqlite:x.db", REDRIVE_BODY_LIMIT="77").json["settings"]
    assert (settings["store"]["value"], settings["store"]["origin"]) == ("sqlite:x.db", "flag --store")
    assert (settings["namespace"]["value"], settings["namespace"]["origin"]) == ("shop", "redrive.toml")
    assert (settings["body_limit"]["value"], settings["body_limit"]["origin"]) == ("77", "environment REDRIVE_BODY_LIMIT")
    assert settings["listen"]["origin"] == "default"
    plain = shell("config", "--store", "postgres://ann:sesame@db/x?token=abc").out
    assert "postgres://ann:***@db/x?token=***" in plain
    assert "sesame" not in plain
    assert "body_limit" in plain


def test_doctor_finds_all_well_or_says_what_must_be_done(shell: Shell) -> None:
    new = shell("doctor")
    assert "redrive.db is not there yet; the first letter makes it" in new.out
    assert not (shell.folder / "redrive.db").exists()
    filled(shell)
    out = shell("doctor").out
    assert "1 completed, 2 pending" in out
    assert out.splitlines()[-1] == "All is well."
    answer = shell("doctor", "--json").json
    assert answer["healthy"] is True
    assert {check["what"] for check in answer["checks"]} >= {
        "redrive",
        "extras",
        "store",
        "integrity",
        "disk",
        "letters",
        "journal",
    }
    raw = bytearray((shell.folder / "redrive.db").read_bytes())
    raw[4096:] = b"\xa5" * (len(raw) - 4096)
    (shell.folder / "redrive.db").write_bytes(raw)
    sick = shell("doctor", "--json", status=1).json
    assert sick["healthy"] is False
    assert any(check["health"] == "bad" and "redrive.db" in check["detail"] for check in sick["checks"])
    assert shell("doctor", status=1).out.splitlines()[-1] == "Something must be done."


def test_doctor_changes_nothing(shell: Shell) -> None:
    import sqlite3

    connection = sqlite3.connect(shell.folder / "redrive.db")
    connection.execute("CREATE TABLE customers (name TEXT)")
    connection.commit()
    connection.close()
    before = (shell.folder / "redrive.db").read_bytes()
    assert "another program's database" in shell("doctor", status=1).out
    assert (shell.folder / "redrive.db").read_bytes() == before
    assert [path.name for path in shell.folder.iterdir()] == ["redrive.db"]


@pytest.mark.parametrize("kind", ["bash", "zsh", "fish"])
def test_the_completion_script_is_printed_for_each_shell(kind: str, shell: Shell) -> None:
    out = shell("completion", kind).out
    assert "_REDRIVE_COMPLETE" in out
    if kind == "bash":
        subprocess.run(["bash", "-n"], input=out, text=True, check=True)


def test_completion_knows_commands_options_and_ids(shell: Shell) -> None:
    filled(shell)
    id = shell.letters()[0]["id"]
    for words, expected in (("redrive s", "show"), ("redrive ls --st", "--status"), (f"redrive show {id[:6]}", id)):
        out = shell(_REDRIVE_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=str(len(words.split()) - 1)).out
        assert expected in out, words


def test_the_store_of_the_environment_is_used_by_every_command(shell: Shell) -> None:
    shell("capture", "--source", "s", REDRIVE_STORE="sqlite:elsewhere.db")
    assert len(shell("ls", "--json", REDRIVE_STORE="sqlite:elsewhere.db").json["letters"]) == 1
    assert shell("ls", "--json", "--store", "sqlite:other.db", REDRIVE_STORE="sqlite:elsewhere.db").json["letters"] == []
    assert not (shell.folder / "redrive.db").exists()
