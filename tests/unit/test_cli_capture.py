"""`redrive capture`: letters made from standard input, byte by byte."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from tests.unit.shell import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


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


@pytest.mark.parametrize("line", WRONG_LINES, ids=[line.decode("latin-1") for line in WRONG_LINES])
def test_when_one_line_is_wrong_nothing_is_held(line: bytes, shell: Shell) -> None:
    good = b'{"source_id": "1"}\n{"source_id": "2"}\n'
    done = shell("capture", "--lines", "--source", "s", stdin=good + line, status=2)
    assert list(shell.folder.iterdir()) == []
    assert done.err.startswith("Error: ")
    assert WRONG_LINES[line] in done.err
    assert "nothing was held" in done.err
    assert done.err.count("\n") == 1


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
    done = shell.sh(f"exec $program {command} <&-")
    assert (done.stderr, done.returncode) == ("", 0)
