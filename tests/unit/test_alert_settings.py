"""Who is told: from settings to notifiers, without anything secret on the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from redrive import BadSettings, UnknownScheme, wiring
from redrive.settings import Settings, load, masked_target

SLACK = "https://hooks.example.com/services/T0/B0/s3cret"
PAGER = "pagerduty://R0UTINGKEY@events.pagerduty.com"


@pytest.mark.parametrize(
    "given",
    [f"{SLACK} {PAGER}", f"{SLACK},{PAGER}", f"  {SLACK}\n{PAGER}\n", f"{SLACK} , {PAGER}"],
)
def test_the_environment_names_targets_in_one_line(given: str, tmp_path: Path) -> None:
    assert load(environ={"REDRIVE_ALERTS": given}, folder=tmp_path).settings.alerts == (SLACK, PAGER)


def test_a_file_names_them_in_a_list_and_a_secret_file_line_by_line(tmp_path: Path) -> None:
    (tmp_path / "redrive.toml").write_text(f'alerts = ["{SLACK}", "{PAGER}"]\n')
    loaded = load(environ={}, folder=tmp_path)
    assert (loaded.settings.alerts, loaded.origins["alerts"]) == ((SLACK, PAGER), "redrive.toml")
    (tmp_path / "targets").write_text(f"{PAGER}\n{SLACK}\n")
    loaded = load(environ={"REDRIVE_ALERTS_FILE": "targets"}, folder=tmp_path)
    assert (loaded.settings.alerts, loaded.origins["alerts"]) == ((PAGER, SLACK), "environment REDRIVE_ALERTS_FILE")


def test_a_comma_inside_a_url_stays(tmp_path: Path) -> None:
    given = "https://host/a,b?c=d,e https://other"
    assert load(environ={"REDRIVE_ALERTS": given}, folder=tmp_path).settings.alerts == ("https://host/a,b?c=d,e", "https://other")


def test_nobody_is_told_unless_it_is_set(tmp_path: Path) -> None:
    assert load(environ={}, folder=tmp_path).settings.alerts == ()
    assert load(environ={"REDRIVE_ALERTS": " "}, folder=tmp_path).settings.alerts == ()
    assert wiring.notifiers(Settings()) == []


@pytest.mark.parametrize("value", ["5", '[5, "https://host/s3cret"]', '{url = "https://host/s3cret"}', "true"])
def test_what_is_no_list_of_urls_is_refused_without_being_repeated(value: str, tmp_path: Path) -> None:
    (tmp_path / "redrive.toml").write_text(f"alerts = {value}\n")
    with pytest.raises(BadSettings) as raised:
        load(environ={}, folder=tmp_path)
    assert str(raised.value).startswith(
        "alerts (redrive.toml) must be a list of URLs such as https://ops.example.com/hooks/redrive"
    )
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (SLACK, "https://hooks.example.com/***"),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("https://host/", "https://host"),
        ("https://host?token=s3cret", "https://host/***"),
        ("https://host#secret=s3cret", "https://host/***"),
        ("https://ann:s3cret@host:8443/x", "https://host:8443/***"),
        ("https://ann:s3@cret@host/x", "https://host/***"),
        ("https://host/GUID@s3cret/x", "https://host/***"),
        ("https://ann:s3/cret@host/x", "***"),
        ("https://[::1]:80/s3cret", "https://[::1]:80/***"),
        (PAGER, "pagerduty://***@events.pagerduty.com"),
        ("pagerduty://s3cret", "pagerduty://***"),
        ("pagerduty://s3cret@", "pagerduty://***@"),
        ("pagerduty://s3cret/x@y", "pagerduty://***"),
        ("pagerduty://s3cret@host:1/x?scheme=http", "pagerduty://***@host:1"),
        ("pagrduty://s3cret", "pagrduty://***"),
        ("s3cret", "***"),
        ("s3cret@host:8080/x", "***"),
        ("", "***"),
    ],
)
def test_a_target_is_shown_without_what_may_be_its_key(url: str, shown: str) -> None:
    assert masked_target(url) == shown


def test_settings_show_no_secret_in_any_form(tmp_path: Path) -> None:
    loaded = load({"store": "redis://:hush@host"}, environ={"REDRIVE_ALERTS": f"{SLACK}#secret=hush {PAGER}"}, folder=tmp_path)
    (entry,) = (entry for entry in loaded.entries() if entry.name == "alerts")
    assert entry.value == "https://hooks.example.com/*** pagerduty://***@events.pagerduty.com"
    told = f"{loaded!r} {loaded.settings!r} {loaded.entries()!r}"
    assert [secret for secret in ("hush", "s3cret", "R0UTINGKEY") if secret in told] == []
    assert "store='redis://:***@host'" in repr(loaded.settings)


def test_each_target_gets_the_notifier_of_its_scheme() -> None:
    names = [one.name for one in wiring.notifiers(Settings(alerts=(SLACK, "http://127.0.0.1:1", PAGER)))]
    assert names == ["https://hooks.example.com/…", "http://127.0.0.1:1", "pagerduty at events.pagerduty.com"]


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("pagrduty://s3cret@host", "no target of alerts answers to 'pagrduty:'; known are https:, http:, pagerduty:; did you mean pagerduty:?"),
        ("slack://s3cret", "no target of alerts answers to 'slack:'; known are https:, http:, pagerduty:"),
        ("s3cret", "a target of alerts has no scheme; its URL begins with one of https://, http://, pagerduty://"),
        ("pagerduty:s3cret", "a target of alerts has no scheme"),
        ("s3cret@host:8080://x", "a target of alerts has no scheme"),
        ("https:host/s3cret", "a target of alerts has no scheme"),
        ("", "a target of alerts has no scheme"),
    ],
)  # fmt: skip
def test_a_scheme_that_nobody_answers_to_names_the_nearest(url: str, sentence: str) -> None:
    with pytest.raises(UnknownScheme) as raised:
        wiring.notifiers(Settings(alerts=(url,)))
    assert str(raised.value).startswith(sentence)
    assert "s3cret" not in str(raised.value)
