"""`redrive export --pytest`: a letter as a test that fails with its error until that is fixed."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from redrive import Failure, Letter, Message, Origin, Redaction, blocking
from redrive.model.message import outgoing
from redrive.serve.cli.regression import regression
from redrive.testing import letter
from redrive.testing.kit.strategies import effort, letters
from tests.unit.shell import BAD, PATIENCE, Shell

BROKEN = """
import dataclasses
import redrive.blocking

@redrive.blocking.open("sqlite:redrive.db").guard(source="orders")
def handle(order):
    return order["customer"]

async def soon(order):
    return order["customer"]

@dataclasses.dataclass
class Order:
    id: int
    customer: str

class Desk:
    @staticmethod
    def take(order: Order):
        return order.customer

def whole(message: redrive.Message):
    return dict(message.headers)["customer"]
"""
FIXED = BROKEN.replace('order["customer"]', 'order.get("customer")').replace('["customer"]', '.get("customer")')


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    shell = Shell(tmp_path)
    shell.module("shop", BROKEN)
    return shell


def kept(shell: Shell, message: Any, error: Exception = BAD) -> str:
    with shell.store() as dlq:
        return str(dlq.capture(message, error, source="orders", id="4711").letter.id)


def ran(shell: Shell) -> str:
    """What pytest says of the written file."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"],
        cwd=shell.folder,
        env=shell.environment | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return done.stdout


@pytest.mark.parametrize("handler", ["handle", "soon", "whole"])
def test_the_test_fails_with_the_letters_error_until_it_is_fixed(shell: Shell, handler: str) -> None:
    id = kept(shell, {"id": 4711}, KeyError("customer"))
    before = shell.letters()
    done = shell("export", "--pytest", id[:8], "--handler", f"shop:{handler}", "-o", "test_it.py")
    assert done.out == ""
    assert done.err.startswith(f"Wrote a test of {id} to test_it.py.")
    said = ran(shell)
    assert "E       KeyError: 'customer'" in said
    assert "test_orders_4711_no_longer_fails_with_key_error" in said
    assert "1 failed" in said
    shell.module("shop", FIXED)
    assert "1 passed" in ran(shell)
    assert shell.letters() == before


def test_a_method_with_typed_arguments_is_called_as_a_replay_would_call_it(shell: Shell) -> None:
    id = kept(shell, {"id": 4711})
    shell("export", "--pytest", id, "--handler", "shop:Desk.take", "-o", "test_it.py")
    assert "msgspec.ValidationError: Object missing required field `customer`" in ran(shell)
    shell.module("shop", BROKEN.replace("customer: str", "customer: str = ''"))
    assert "1 passed" in ran(shell)


def test_the_test_tells_its_story(shell: Shell) -> None:
    id = kept(shell, {"id": 4711}, KeyError("customer"))
    text = shell("export", "--pytest", id, "--handler", "shop:handle").out
    assert 'def test_orders_4711_no_longer_fails_with_key_error() -> None:\n    """KeyError: \'customer\'\n' in text
    assert f"    Letter {id} of orders, first received on 20" in text
    assert '    body=json.encode({"id": 4711}),\n    content_type="application/json",\n    id="4711",\n' in text
    assert "from shop import handle as handler\n" in text


@pytest.mark.parametrize(
    "message",
    [
        {"id": 4711},
        {"lines": [{"sku": f"item-{number}", "price": 1.5, "gift": True, "note": None} for number in range(9)]},
        "Grüße, \"Welt\" and 'all'\n",
        "long " * 100,
        "a line\nand " * 50,
        "größer " * 100,
        b"\xff\x00" * 200,
        Message(
            body=b'{"spaces":  1}',
            content_type="application/json",
            headers=(("a", b"1"), ("a", b"\xff'\"")),
            key=b"k",
            kind="order",
            reference="r-1",
            origin=Origin(topic="orders", partition=3),
        ),
    ],
    ids=["json", "long json", "text", "long text", "lines", "long umlauts", "bytes", "message"],
)
def test_the_test_looks_as_if_a_formatter_had_written_it(shell: Shell, message: Any) -> None:
    id = kept(shell, message)
    shell("export", "--pytest", id, "--handler", "shop:handle", "-o", "test_it.py")
    for args in (["format", "--isolated", "--diff"], ["check", "--isolated", "--select", "E,F,W,B,UP,C4,RUF"]):
        ruff = subprocess.run(
            [Path(sys.executable).with_name("ruff"), *args, "--no-cache", shell.folder / "test_it.py"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert ruff.returncode == 0, ruff.stdout + ruff.stderr


def written(one: Letter, message: Message) -> Message:
    """The message that a letter's test has in it."""
    module = ast.parse(regression(one, message, "shop:handle"))
    imports = [node for node in module.body if isinstance(node, ast.Import | ast.ImportFrom) and "shop" not in ast.unparse(node)]
    assigned = [node for node in module.body if isinstance(node, ast.Assign)]
    names: dict[str, Any] = {}
    exec("\n".join(map(ast.unparse, [*imports, *assigned])), names)
    made: Message = names["MESSAGE"]
    return made


@effort(200)
@given(letters())
def test_the_message_of_any_letter_is_in_its_test_as_it_is(one: Letter) -> None:
    message = outgoing(one, one.body)
    assert written(one, message) == message


texts = st.text(max_size=200)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(texts, inner, max_size=8),
    max_leaves=30,
)


@effort(200)
@given(st.binary(max_size=500) | texts.map(str.encode) | values.map(msgspec.json.encode))
@example(b"[" * 150 + b"]" * 150)
@example(b"[" * 5000 + b"]" * 5000)
@example(b'{"a":1,"a":2}')
@example(b"1e5")
def test_any_body_is_in_a_test_to_the_byte(body: bytes) -> None:
    failure = Failure(type='odd."""', message='\\ """ {name} \x1b[0m \u2028 {')
    one = letter("1", source='quotes """ and \\', failure=failure)
    assert written(one, Message(body=body)).body == body


def test_a_body_in_a_file_of_its_own_is_inside(shell: Shell) -> None:
    id = kept(shell, b"\xff" * 2_000_000)
    text = shell("export", "--pytest", id, "--handler", "shop:handle").out
    assert len(text) > 2_000_000
    ast.parse(text)


def test_secret_headers_are_left_out_and_named(shell: Shell) -> None:
    id = kept(shell, Message(body=b"{}", headers=(("Authorization", b"Bearer 8d1f"), ("tenant", b"7"))))
    done = shell("export", "--pytest", id, "--handler", "shop:whole")
    assert "8d1f" not in done.out
    assert '("tenant", b"7")' in done.out
    assert "Left out of the test, since they are secret: Authorization." in done.err


def test_what_rules_hide_is_not_told_in_the_story(shell: Shell) -> None:
    id = kept(shell, {"id": 1}, ValueError("no such card: 4111 1111 1111 1111"))
    done = shell("export", "--pytest", id, "--handler", "shop:handle", REDRIVE_REDACT="cards")
    assert "4111 1111" not in done.out
    assert "ValueError: no such card: [redacted:" in done.out


def test_letters_that_cannot_be_sent_are_refused(shell: Shell) -> None:
    odd = kept(shell, Message(body=b"<object>", content_type="text/x-python-repr"))
    with blocking.open(f"sqlite:{shell.folder}/redrive.db", redact=Redaction(presets=("cards",))) as dlq:
        hidden = str(dlq.capture({"card": "4111 1111 1111 1111"}, BAD, source="cards").letter.id)
    handler = ["--handler", "shop:handle", "-o", "test_it.py"]
    assert "its body was redacted at capture; repair it first" in shell.refused("export", "--pytest", hidden, *handler, status=1)
    assert "only the repr was kept" in shell.refused("export", "--pytest", odd, *handler, status=1)
    assert not list(shell.folder.glob("test_it*"))


def test_a_mistake_gets_one_clear_sentence(shell: Shell) -> None:
    id = kept(shell, {"id": 4711})
    shell.module("polite", "raise SystemExit(4)")
    shell.module("hasty", "import os\nos._exit(4)")
    handler = ["--handler", "shop:handle"]
    assert shell.refused("export", "--pytest", "ffffffff", *handler, status=1) == "there is no letter ffffffff"
    assert "Say with --handler what the test is to call" in shell.refused("export", "--pytest", id)
    assert "not both" in shell.refused("export", "--pytest", id, *handler, "source:orders")
    assert "--handler goes with --pytest ID" in shell.refused("export", *handler)
    assert "write module:function" in shell.refused("export", "--pytest", id, "--handler", "shop")
    assert "cannot import 'nowhere'" in shell.refused("export", "--pytest", id, "--handler", "nowhere:x")
    assert shell.refused("export", "--pytest", id, "--handler", "shop:none") == "'shop' has no 'none'"
    assert shell.refused("export", "--pytest", id, "--handler", "polite:x") == "cannot import 'polite': SystemExit: 4"
    ended = "cannot import 'hasty': the process that tried to ended with exit status 4"
    assert shell.refused("export", "--pytest", id, "--handler", "hasty:x") == ended
