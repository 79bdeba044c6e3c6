"""Replay rules in the settings, and as `redrive up` follows them."""

from __future__ import annotations

import json
import signal
from datetime import timedelta
from pathlib import Path

import pytest

from redrive import BadSettings, ReplayRule, Tempo
from redrive.settings import load
from tests.unit.shell import PATIENCE, Shell, filled, heard

RULES = """
[[replay]]
name = "shipping"
query = "source:orders status:exhausted"
to = "py:shop:work"
every = "10m"
most = 500
when_closed = "orders"
rate = "300/min"
batch = 10
canary = 5
ramp = "1m"
stop_on_refail = "5%"
window = "30s"
keep_order = true
max_rounds = 3

[[replay]]
name = "rest"
query = "all"
stop_on_refail = "never"
"""

BOTH = (
    ReplayRule(
        name="shipping",
        query="source:orders status:exhausted",
        to="py:shop:work",
        every=timedelta(minutes=10),
        most=500,
        when_closed="orders",
        tempo=Tempo(
            rate=5,
            batch=10,
            canary=5,
            ramp=timedelta(minutes=1),
            stop_on_refail=0.05,
            window=timedelta(seconds=30),
            keeps_order=True,
            max_rounds=3,
        ),
    ),
    ReplayRule(name="rest", query="all", tempo=Tempo()),
)


def test_a_file_has_a_table_for_each_rule_and_the_environment_json(tmp_path: Path) -> None:
    (tmp_path / "redrive.toml").write_text(RULES)
    loaded = load(environ={}, folder=tmp_path)
    assert loaded.settings.replay == BOTH
    (shown,) = [entry for entry in loaded.entries() if entry.name == "replay"]
    assert shown.origin == "redrive.toml"
    assert load(environ={"REDRIVE_REPLAY": shown.value}, folder=tmp_path / "..").settings.replay == BOTH


def test_without_rules_there_are_none(tmp_path: Path) -> None:
    assert load(environ={}, folder=tmp_path).settings.replay == ()
    assert load(environ={"REDRIVE_REPLAY": " "}, folder=tmp_path).settings.replay == ()


def test_the_login_of_a_target_is_shown_nowhere(tmp_path: Path) -> None:
    table = json.dumps({"name": "a", "query": "all", "to": "https://ann:p4ss@shop.example/x"})
    loaded = load(environ={"REDRIVE_REPLAY": table}, folder=tmp_path)
    assert loaded.settings.replay[0].to == "https://ann:p4ss@shop.example/x"
    shown = str([entry.value for entry in loaded.entries()]) + repr(loaded.settings) + str(loaded.settings.replay[0])
    assert "p4ss" not in shown
    assert "shop.example/x" in shown
    with pytest.raises(BadSettings) as raised:
        load(
            environ={"REDRIVE_REPLAY": '{"name": "a", "query": "all", "to": ["https://ann:p4ss@shop.example"]}'}, folder=tmp_path
        )
    assert "p4ss" not in str(raised.value)


FINE = 'name = "a"\nquery = "all"\n'


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ('query = "all"', "rule 1 needs a name of letters, digits, dots and dashes, at most 60, not ''"),
        ('name = "a b"\nquery = "all"', "rule 1 needs a name of letters, digits, dots and dashes, at most 60, not 'a b'"),
        ('name = "a"', 'rule 1 (a) needs a query, such as query = "source:orders status:exhausted"'),
        ('name = "a"\nquery = "stats:x"', "rule 1 (a), in its query 'stats:x': there is no field 'stats'; did you mean status?"),
        (FINE + 'eevry = "5m"', "rule 1 (a) has no 'eevry'; did you mean every?"),
        (FINE + "every = 5", "rule 1 (a): every must be a duration such as 30s, 10m or 1d, not 5"),
        (FINE + 'every = "0s"', "rule 1 (a): every must be longer than nothing"),
        (FINE + "most = 0", "rule 1 (a): most must be at least 1 letter, got 0"),
        (FINE + "most = true", "rule 1 (a): most must be a whole number, not True"),
        (FINE + 'to = ""', "rule 1 (a) must have a target, such as source or py:shop.orders:handle"),
        (FINE + 'rate = "quick"', "rule 1 (a): 'quick' is not a rate"),
        (FINE + "rate = -1", "rule 1 (a): a rate must be more than 0 letters a second, got -1.0"),
        (FINE + 'ramp = "5m"', "rule 1 (a): a ramp leads up to a rate within some time: give both"),
        (FINE + "stop_on_refail = 20", "rule 1 (a): a share of failures must be from 0 to less than 1, got 20.0"),
        (FINE + 'stop_on_refail = "half"', "rule 1 (a): 'half' is not a share"),
        (FINE + 'keep_order = "yes"', "rule 1 (a): keep_order must be true or false, not 'yes'"),
        (FINE + "[[replay]]\n" + FINE, "rule 2 is named a, as another before it is"),
    ],
)
def test_a_mistake_in_a_rule_gets_one_clear_sentence(tmp_path: Path, table: str, sentence: str) -> None:
    (tmp_path / "redrive.toml").write_text(f"[[replay]]\n{table}\n")
    with pytest.raises(BadSettings) as raised:
        load(environ={}, folder=tmp_path)
    assert str(raised.value).startswith(f"replay (redrive.toml): {sentence}")


@pytest.mark.parametrize(("given", "sentence"), [("5", "it must be a list of rules"), ("all", "must be JSON, but is not")])
def test_what_is_no_list_of_rules_is_refused(tmp_path: Path, given: str, sentence: str) -> None:
    with pytest.raises(BadSettings, match=sentence):
        load(environ={"REDRIVE_REPLAY": given}, folder=tmp_path)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


WORK = "def work(order):\n    open('seen.txt', 'a').write('x')\n"


def test_redrive_up_says_what_rules_there_are_and_follows_them(shell: Shell) -> None:
    filled(shell)
    shell.module("shop", WORK)
    (shell.folder / "redrive.toml").write_text(
        '[[replay]]\nname = "nightly"\nquery = "source:orders"\nto = "py:shop:work"\nevery = "1d"\n'
    )
    running = shell.start("up", "--listen", "127.0.0.1:0")
    # It is told of after it was written down.
    err = heard(running, "1 confirmed")
    assert any(one["status"] == "finished" for one in by_rule(shell))
    running.send_signal(signal.SIGTERM)
    out, _ = running.communicate(timeout=PATIENCE)
    assert "  replay rule nightly: source:orders every 1d\n" in out
    assert "replay rule nightly has chosen 1 letter\n" in err
    assert "rule:nightly" in shell("ops", "ls").out
    (operation,) = by_rule(shell)
    assert "rule:nightly" in shell("ops", "show", operation["id"]).out
    assert (shell.folder / "seen.txt").read_text() == "x"


def by_rule(shell: Shell) -> list[dict[str, str]]:
    return [one for one in shell("ops", "ls", "--json").json["operations"] if one["by"].startswith("rule:")]


def test_redrive_up_does_not_begin_with_a_rule_whose_target_is_not_there(shell: Shell) -> None:
    (shell.folder / "redrive.toml").write_text('[[replay]]\nname = "a"\nquery = "all"\nto = "py:nowhere:f"\n')
    sentence = shell.refused("up", "--listen", "127.0.0.1:0")
    assert sentence.startswith("replay rule a: cannot import 'nowhere'")
