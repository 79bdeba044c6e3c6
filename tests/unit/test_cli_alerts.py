"""`redrive alerts test`: each target is tried, and says what it makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.receivers import Answer, receiving
from tests.unit.shell import Shell

KEY = "R0UTINGKEY"


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_a_target_can_be_tried_before_it_is_configured(shell: Shell) -> None:
    with receiving(Answer(status=200)) as receiver:
        done = shell("alerts", "test", f"{receiver.url()}#secret=hush")
    assert done.out == f"✓  http://127.0.0.1:{receiver.port}/…  took it\n"
    (request,) = receiver.requests
    assert request.headers["webhook-signature"].startswith("v1,")
    assert (request.json["kind"], request.json["severity"], request.json["count"]) == ("test", "info", 0)
    assert request.json["summary"] == "This is a test alert from redrive; nothing is wrong."


def test_all_that_are_configured_are_tried_and_each_answer_is_told(shell: Shell) -> None:
    with (
        receiving() as well,
        receiving(Answer(status=400, body=b'{"message":"Event object is invalid"}')) as pager,
        receiving(Answer(status=503, body=b"later")) as busy,
    ):
        (shell.folder / "redrive.toml").write_text(
            f'alerts = ["{well.url()}", "pagerduty://{KEY}@127.0.0.1:{pager.port}?scheme=http", "{busy.url()}"]\n'
        )
        plain = shell("alerts", "test", status=1)
        told = shell("alerts", "test", "--json", status=1).json
    assert [line.split() for line in plain.out.splitlines()] == [
        ["✓", f"http://127.0.0.1:{well.port}/…", "took", "it"],
        f"✗ pagerduty at 127.0.0.1:{pager.port} answered 400: Event object is invalid".split(),
        f"✗ http://127.0.0.1:{busy.port}/… answered 503: later (another try may help)".split(),
    ]
    assert told["delivered"] is False
    assert [(one["delivered"], one["transient"]) for one in told["targets"]] == [(True, False), (False, False), (False, True)]
    assert told["targets"][0]["error"] is None
    assert told["targets"][1]["error"].endswith("answered 400: Event object is invalid")
    assert KEY not in plain.out + plain.err
    assert len({request.json["dedup_key"] for request in pager.requests}) == 1


def test_mistakes_get_one_sentence(shell: Shell) -> None:
    assert shell.refused("alerts", "test") == (
        "nobody is told of exhausted letters; name a target: redrive alerts test URL, or set alerts (REDRIVE_ALERTS)"
    )
    assert "did you mean pagerduty:?" in shell.refused("alerts", "test", f"pagrduty://{KEY}@host")
    assert KEY not in shell.refused("alerts", "test", REDRIVE_ALERTS=KEY)


def test_config_shows_where_alerts_go_and_no_key(shell: Shell) -> None:
    given = f"https://hooks.example.com/services/s3cret pagerduty://{KEY}@events.pagerduty.com"
    for args in (("config",), ("config", "--json")):
        out = shell(*args, REDRIVE_ALERTS=given).out
        assert "https://hooks.example.com/*** pagerduty://***@events.pagerduty.com" in out
        assert KEY not in out
        assert "s3cret" not in out


def test_it_explains_itself(shell: Shell) -> None:
    assert "test" in shell("alerts", "--help").out
    assert "exit 1" in shell("alerts", "test", "--help").out
