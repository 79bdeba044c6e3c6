"""Alerts to a webhook: what goes over the wire, what each answer means, and what is never told."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import shutil
import ssl
import subprocess
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest

from redrive import BadSettings, Policy, immediate, wiring
from redrive.backends.webhook import WebhookNotifier
from redrive.engine.alert import Alarm
from redrive.model.alert import Alert
from redrive.model.errors import NotifierUnavailable, NotNotified
from redrive.ports.notifier import Notifier
from redrive.testing.kit.samples import START, letter
from redrive.testing.servers import free_port
from tests.unit.receivers import Answer, Receiver, an_alert, receiving
from tests.unit.waiting import until

ONE, TWO, THREE = (an_alert(name, source=f"source {name}") for name in "123")


def notify(url: str, *alerts: Alert) -> None:
    notifier: Notifier = wiring.notifier(url)
    assert isinstance(notifier, WebhookNotifier)
    asyncio.run(notifier.notify(alerts or (ONE,)))


def refusal(url: str, *alerts: Alert) -> NotNotified:
    with pytest.raises(NotNotified) as raised:
        notify(url, *alerts)
    assert "\n" not in str(raised.value)
    return raised.value


def test_each_alert_is_one_post_of_json() -> None:
    with receiving(Answer(status=204)) as receiver:
        notify(receiver.url("/hook?team=a%20b"), ONE, TWO)
    first, second = receiver.requests
    assert (first.method, first.path) == ("POST", "/hook?team=a%20b")
    assert first.headers["content-type"] == "application/json"
    assert first.headers["user-agent"].startswith("redrive/")
    assert first.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert "webhook-signature" not in first.headers
    assert first.json == {
        "schema": 1,
        "id": str(ONE.id),
        "kind": "exhausted",
        "key": ONE.key,
        "namespace": "default",
        "source": "source 1",
        "at": "2025-01-01T00:00:00Z",
        "since": None,
        "severity": "error",
        "summary": "1 letter of 'source 1' is exhausted: TimeoutError: no answer",
        "failure": {
            "type": "builtins.TimeoutError",
            "message": "no answer",
            "category": "permanent",
            "fingerprint": "builtins.TimeoutError",
        },
        "count": 1,
        "letters": [str(ONE.letters[0])],
    }
    assert second.json["id"] == second.headers["webhook-id"] == str(TWO.id)


@pytest.mark.parametrize(
    ("secret", "key"), [("s3cret", b"s3cret"), ("whsec_" + base64.b64encode(b"\0raw").decode(), b"\0raw"), ("a%26b", b"a&b")]
)
def test_with_a_secret_the_receiver_can_tell_who_sent_it_and_when(secret: str, key: bytes) -> None:
    with receiving() as receiver:
        notify(f"{receiver.url()}#secret={secret}")
    (request,) = receiver.requests
    id, timestamp = request.headers["webhook-id"], request.headers["webhook-timestamp"]
    assert abs(time.time() - int(timestamp)) < 60
    expected = hmac.new(key, f"{id}.{timestamp}.".encode() + request.body, hashlib.sha256).digest()
    assert request.headers["webhook-signature"] == "v1," + base64.b64encode(expected).decode()
    assert (request.path, id) == ("/hook", str(ONE.id))


def test_a_login_in_the_url_goes_where_logins_go() -> None:
    with receiving() as receiver:
        notify(receiver.url("/hook", login="ann:p%40ss@"))
    (request,) = receiver.requests
    assert request.headers["authorization"] == "Basic " + base64.b64encode(b"ann:p@ss").decode()
    assert "ann" not in request.path + request.headers["host"]


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 599])
def test_another_try_may_help_when_it_is_busy_or_broken(status: int) -> None:
    with receiving(Answer(status=status, body=b"a moment\nplease")) as receiver:
        error = refusal(receiver.url())
    assert isinstance(error, NotifierUnavailable)
    assert str(error) == f"http://127.0.0.1:{receiver.port}/… answered {status}: a moment please"
    assert (error.transient, error.after) == (True, None)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 422])
def test_no_other_try_helps_when_it_refuses(status: int) -> None:
    with receiving(Answer(status=status)) as receiver:
        error = refusal(receiver.url())
    assert str(error) == f"http://127.0.0.1:{receiver.port}/… answered {status}"
    assert (error.transient, error.alerts) == (False, {ONE.id})


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirects_are_not_followed(status: int) -> None:
    with receiving() as elsewhere, receiving(Answer(status=status, headers={"Location": elsewhere.url()})) as receiver:
        error = refusal(f"{receiver.url()}#secret=hush")
    assert "redirects are not followed" in str(error)
    assert not error.transient
    assert elsewhere.requests == []


def test_a_target_that_hangs_closes_or_is_not_there_is_tried_again_later() -> None:
    with receiving(Answer(hangs=True)) as receiver:
        error = refusal(f"{receiver.url()}#timeout=1")
    assert str(error) == f"http://127.0.0.1:{receiver.port}/… did not answer within 1 s"
    assert error.transient
    with receiving(Answer(closes=True)) as receiver:
        error = refusal(receiver.url())
    assert "cannot be reached" in str(error)
    assert error.transient
    error = refusal(f"http://127.0.0.1:{free_port()}/hook")
    assert "cannot be reached: Connection refused" in str(error)
    assert error.transient
    error = refusal("http://nobody.invalid/hook")
    assert "cannot be reached" in str(error)
    assert error.transient


def test_words_that_never_end_do_not_hide_the_status() -> None:
    with receiving(Answer(status=500, body=b"begun", drips=True)) as receiver:
        error = refusal(f"{receiver.url()}#timeout=0.2")
    assert error.transient
    with receiving(Answer(status=200, body=b"begun", drips=True)) as receiver:
        notify(f"{receiver.url()}#timeout=5")


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7),
        ("0", 0),
        ("999999999999999999", 300),
        ("-5", None),
        ("soon", None),
        (format_datetime(datetime(2020, 1, 1, tzinfo=UTC), usegmt=True), 0),
        (format_datetime(datetime(2999, 1, 1, tzinfo=UTC), usegmt=True), 300),
    ],
)
def test_a_wait_that_is_asked_for_is_heard_within_bounds(header: str, seconds: float | None) -> None:
    with receiving(Answer(status=429, headers={"Retry-After": header})) as receiver:
        error = refusal(receiver.url())
    assert error.after == (None if seconds is None else timedelta(seconds=seconds))


def test_one_alert_that_is_refused_keeps_no_other_back() -> None:
    with receiving(Answer(), Answer(status=400), Answer()) as receiver:
        error = refusal(receiver.url(), ONE, TWO, THREE)
    assert [request.headers["webhook-id"] for request in receiver.requests] == [str(one.id) for one in (ONE, TWO, THREE)]
    assert (error.alerts, error.transient) == ({TWO.id}, False)


def test_a_target_that_is_down_is_not_asked_for_each_alert() -> None:
    with receiving(Answer(), Answer(status=503)) as receiver:
        error = refusal(receiver.url(), ONE, TWO, THREE)
    assert len(receiver.requests) == 2
    assert (error.alerts, error.transient) == ({TWO.id, THREE.id}, True)


def test_the_same_alert_has_the_same_delivery_id_and_body_on_every_try() -> None:
    async def story(receiver: Receiver) -> None:
        notifier = wiring.notifier(f"{receiver.url()}#secret=hush")
        alarm = Alarm([notifier], window=timedelta(), retries=Policy(max_attempts=5, backoff=immediate()))
        alarm.exhausted([letter("1"), letter("2")])
        await until(lambda: len(receiver.requests) == 4)
        await alarm.close()

    with receiving(Answer(status=500), Answer(closes=True), Answer(status=429), Answer(status=202)) as receiver:
        asyncio.run(story(receiver))
    assert len(receiver.requests) == 4
    assert len({request.headers["webhook-id"] for request in receiver.requests}) == 1
    assert len({request.body for request in receiver.requests}) == 1
    assert receiver.requests[0].json["count"] == 2


SECRETS = ("p4ssword", "s3cret", "t0ken", "T000path")


def test_nothing_secret_is_told_in_errors_names_and_logs(caplog: pytest.LogCaptureFixture) -> None:
    async def story(url: str) -> None:
        alarm = Alarm([wiring.notifier(url)], window=timedelta())
        alarm.exhausted([letter("1")])
        await alarm.close()

    path = "/services/T000path?token=t0ken#secret=s3cret"
    echo = json.dumps({"you said": ["/services/T000path", "token=t0ken", "s3cret", "p4ssword"]}).encode()
    with receiving(Answer(status=400, body=echo)) as receiver:
        url = receiver.url(path, login="ann:p4ssword@")
        error = refusal(url)
        asyncio.run(story(url))
        notifier = wiring.notifier(url)
    assert "you said" in str(error)
    assert "alerts given up on" in caplog.text
    assert vars(notifier)["_endpoint"].__repr__() == f"<http://127.0.0.1:{receiver.port}/…>"
    told = f"{error} {error.__cause__} {notifier!r} {notifier.name} {caplog.text}"
    assert [secret for secret in SECRETS if secret in told] == []


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("https:///hook", "a webhook's URL names a host: https://ops.example.com/hooks/redrive#secret=…"),
        ("https://host/hook#secrte=s3cret", "a webhook's URL has no option 'secrte'; did you mean secret?"),
        ("https://host/hook#secret=", "the secret of a webhook's URL is empty; leave it out, or give one"),
        ("https://host/hook#secret=whsec_s3cret!", "a webhook's secret that begins with whsec_ goes on in base64"),
        ("https://host/hook#timeout=0", "timeout=0 must be a number of seconds from above 0 to 60, e.g. timeout=10"),
        ("https://host/hook#timeout=inf", "timeout=inf must be a number"),
        ("https://ann:p4ssword/x@host/hook", "this target of alerts cannot be read; write it like https://ops.example.com"),
        ("https://host:99999/hook", "this target of alerts cannot be read"),
        ("https://host/a b", "this target of alerts cannot be read"),
        ("https://host/a\nHost: x", "this target of alerts cannot be read"),
        (f"https://{'x' * 70}.example/hook", "this target of alerts cannot be read"),
    ],
)
def test_a_wrong_url_gets_one_sentence_without_its_secrets(url: str, sentence: str) -> None:
    with pytest.raises(BadSettings) as raised:
        wiring.notifier(url)
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)
    assert not any(secret in str(raised.value) for secret in SECRETS)


def test_a_certificate_that_cannot_be_read_is_named() -> None:
    error = refusal("https://127.0.0.1:9/hook#ca=/nowhere/ca.pem")
    assert str(error) == "cannot read the certificates /nowhere/ca.pem for https://127.0.0.1:9/…: No such file or directory"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_only_a_certificate_that_is_trusted_is_spoken_to(tmp_path: Path) -> None:
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", str(key), "-out", str(cert)]
    subprocess.run([*made, "-subj", "/CN=us", "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(cert, key)
    with receiving(tls=tls) as receiver:
        url = receiver.url().replace("http:", "https:")
        error = refusal(url)
        assert receiver.requests == []
        notify(f"{url}#ca={cert}")
    assert f"the certificate of https://127.0.0.1:{receiver.port}/… is not trusted" in str(error)
    assert not error.transient
    assert len(receiver.requests) == 1


def test_the_time_that_is_signed_is_that_of_the_try() -> None:
    with receiving() as receiver:
        opened = wiring.notifier(receiver.url())
        assert isinstance(opened, WebhookNotifier)
        notifier = WebhookNotifier(opened._endpoint, secret="hush", clock=lambda: START)
        asyncio.run(notifier.notify([ONE]))
    assert receiver.requests[0].headers["webhook-timestamp"] == str(int(START.timestamp()))
