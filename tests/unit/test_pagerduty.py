"""Alerts as incidents, in the form of PagerDuty's Events API v2."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta

import pytest

from redrive import BadSettings, wiring
from redrive.backends.pagerduty import PagerDutyNotifier
from redrive.engine.alert import Alarm
from redrive.model.alert import Alert
from redrive.model.errors import NotNotified
from redrive.ports.notifier import Notifier
from redrive.testing.kit.samples import failure, letter
from tests.unit.receivers import Answer, Receiver, an_alert, receiving
from tests.unit.waiting import until

KEY = "R0123456789abcdefR0123456789abcd"
ONE, TWO = an_alert("1"), an_alert("2")
TAKEN = Answer(status=202, body=b'{"status":"success","message":"Event processed","dedup_key":"x"}')
INVALID = (
    b'{"status":"invalid event","message":"Event object is invalid","errors":["Length of routing_key is incorrect","and KEY"]}'
)


def url(receiver: Receiver, options: str = "", path: str = "") -> str:
    return f"pagerduty://{KEY}@127.0.0.1:{receiver.port}{path}?scheme=http{options}"


def notify(url: str, *alerts: Alert) -> None:
    notifier: Notifier = wiring.notifier(url)
    assert isinstance(notifier, PagerDutyNotifier)
    asyncio.run(notifier.notify(alerts or (ONE,)))


def refusal(url: str, *alerts: Alert) -> NotNotified:
    with pytest.raises(NotNotified) as raised:
        notify(url, *alerts)
    return raised.value


def test_an_alert_triggers_the_incident_of_its_key() -> None:
    with receiving(TAKEN) as receiver:
        notify(url(receiver))
    (request,) = receiver.requests
    assert (request.method, request.path) == ("POST", "/v2/enqueue")
    assert request.headers["content-type"] == "application/json"
    assert request.json == {
        "routing_key": KEY,
        "event_action": "trigger",
        "dedup_key": ONE.key,
        "client": "redrive",
        "payload": {
            "summary": "1 letter of 'orders' is exhausted: TimeoutError: no answer",
            "source": "orders",
            "severity": "error",
            "timestamp": "2025-01-01T00:00:00Z",
            "component": "redrive",
            "group": "default",
            "class": "builtins.TimeoutError",
            "custom_details": {
                "id": str(ONE.id),
                "kind": "exhausted",
                "count": 1,
                "since": None,
                "letters": [str(ONE.letters[0])],
                "failure": {
                    "type": "builtins.TimeoutError",
                    "message": "no answer",
                    "category": "permanent",
                    "fingerprint": "builtins.TimeoutError",
                },
            },
        },
    }


def test_nothing_is_longer_than_pagerduty_takes() -> None:
    long = an_alert("1", source="s" * 5000, failure=failure("shop." + "E" * 5000, "x" * 100_000))
    with receiving(TAKEN) as receiver:
        notify(url(receiver), long)
    event = receiver.requests[0].json
    assert len(event["payload"]["summary"]) <= 1024
    assert max(len(event["payload"][name]) for name in ("source", "group", "class", "component")) <= 255
    assert len(event["dedup_key"]) <= 255
    assert len(receiver.requests[0].body) < 512_000


def test_all_alerts_of_a_group_are_one_incident_and_a_retry_is_the_same_event() -> None:
    async def story(receiver: Receiver) -> None:
        alarm = Alarm([wiring.notifier(url(receiver))], window=timedelta())
        alarm.exhausted([letter("1")])
        await until(lambda: receiver.requests)
        alarm.exhausted([letter("2"), letter("3")])
        await alarm.close()

    with receiving(Answer(status=500), TAKEN) as receiver:
        asyncio.run(story(receiver))
    first, again, more = (request.json for request in receiver.requests)
    assert first == again
    assert first["dedup_key"] == more["dedup_key"]
    assert more["payload"]["custom_details"]["count"] == 2


def test_what_is_wrong_is_told_in_the_words_of_pagerduty() -> None:
    with receiving(Answer(status=400, body=INVALID.replace(b"KEY", KEY.encode()))) as receiver:
        error = refusal(url(receiver))
    assert str(error) == (
        f"pagerduty at 127.0.0.1:{receiver.port} answered 400: Event object is invalid; Length of routing_key is incorrect; and ***"
    )
    assert not error.transient


@pytest.mark.parametrize("body", [b"", b"not json", b"[1]", b'{"errors":"one"}', b'{"message":null}', b"\xff\xfe"])
def test_any_answer_can_be_told(body: bytes) -> None:
    with receiving(Answer(status=400, body=body)) as receiver:
        error = refusal(url(receiver))
    assert str(error).startswith(f"pagerduty at 127.0.0.1:{receiver.port} answered 400")


@pytest.mark.parametrize("status", [429, 500, 503])
def test_another_try_may_help_when_it_is_busy_or_broken(status: int) -> None:
    with receiving(TAKEN, Answer(status=status, headers={"Retry-After": "30"})) as receiver:
        error = refusal(url(receiver), ONE, TWO)
    assert (error.transient, error.after, error.alerts) == (True, timedelta(seconds=30), {TWO.id})


def test_the_routing_key_is_told_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    async def story(url: str) -> None:
        alarm = Alarm([wiring.notifier(url)], window=timedelta())
        alarm.exhausted([letter("1")])
        await alarm.close()

    with receiving(Answer(status=403, body=json.dumps({"message": f"no such key {KEY}"}).encode())) as receiver:
        error = refusal(url(receiver))
        notifier = wiring.notifier(url(receiver))
        asyncio.run(story(url(receiver)))
    assert "no such key ***" in caplog.text
    told = f"{error} {error!r} {error.__cause__!r} {notifier!r} {notifier.name} {caplog.text}"
    assert KEY not in told


@pytest.mark.parametrize(
    ("given", "where"),
    [
        (f"pagerduty://{KEY}", ("events.pagerduty.com", None, "/v2/enqueue", True)),
        (f"pagerduty://{KEY}@", ("events.pagerduty.com", None, "/v2/enqueue", True)),
        (f"pagerduty://{KEY}@events.eu.pagerduty.com", ("events.eu.pagerduty.com", None, "/v2/enqueue", True)),
        (f"pagerduty://{KEY}@on.call:8443/events/v2?timeout=3", ("on.call", 8443, "/events/v2", True)),
        (f"pagerduty://{KEY}@[::1]:80?scheme=http", ("::1", 80, "/v2/enqueue", False)),
    ],
)
def test_where_events_go(given: str, where: tuple[str, int | None, str, bool]) -> None:
    notifier = wiring.notifier(given)
    endpoint = vars(notifier)["_endpoint"]
    assert (endpoint.host, endpoint.port, endpoint.path, endpoint.is_tls) == where
    assert vars(notifier)["_routing_key"] == KEY
    assert KEY not in notifier.name + repr(notifier) + repr(endpoint)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("pagerduty://events.pagerduty.com", "a PagerDuty URL names the routing key of an integration"),
        (f"pagerduty://ann:{KEY}@events.pagerduty.com", "and nothing more, before the @"),
        ("pagerduty://", "a PagerDuty URL names the routing key of an integration"),
        (f"pagerduty://{KEY}@host?scheem=http", "a PagerDuty URL has no option 'scheem'; did you mean scheme?"),
        (f"pagerduty://{KEY}@host?scheme=ftp", "scheme=ftp must be http or https"),
        (f"pagerduty://{KEY}@host#timeout=3", "takes its options behind a ?, not behind a #"),
    ],
)
def test_a_wrong_url_gets_one_sentence_without_its_key(given: str, sentence: str) -> None:
    with pytest.raises(BadSettings) as raised:
        wiring.notifier(given)
    assert sentence in str(raised.value)
    assert KEY not in str(raised.value)
