"""An HTTP endpoint as a target: what goes over the wire, what is never told, and the whole way of a letter."""

from __future__ import annotations

import asyncio
import base64
import shutil
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redrive import EVERYTHING, BadSettings, Message, Status, Unsupported, blocking
from redrive.backends.http.headers import headers_of
from redrive.model.message import outgoing
from redrive.model.operation import Delivered, Entry
from redrive.testing.kit.samples import letter
from redrive.testing.servers import free_port
from redrive.wiring import transport
from tests.unit.endpoints import ID, MARKS, refused, sent, unknown
from tests.unit.receivers import Answer, receiving


def test_a_message_is_one_post_of_its_body_as_it_is() -> None:
    with receiving(Answer(status=200)) as receiver:
        assert sent(receiver.url("/orders?team=a%20b")) == [Delivered(confirmed=True, result=200)]
    (request,) = receiver.requests
    assert (request.method, request.path, request.body) == ("POST", "/orders?team=a%20b", b'{"order": 17}')
    assert request.headers["content-type"] == "application/json"
    assert request.headers["user-agent"].startswith("redrive/")
    assert request.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert request.headers["redrive-id"] == str(ID)
    assert request.headers["redrive-generation"] == "3"
    assert request.headers["redrive-source-id"] == "order-17"
    assert request.headers["idempotency-key"] == f"{ID}-3"


def test_headers_go_as_they_are_where_http_can_carry_them() -> None:
    headers = (("x-team", b"a"), ("X-Team", b"b c"), ("traceparent", b"00-ab-cd-01"), ("empty", b""), *MARKS)
    made = headers_of(Message(body=b"", headers=headers, key=b"cust-9"))
    assert [value for name, value in made if name.lower() == "x-team"] == ["a", "b c"]
    assert {("traceparent", "00-ab-cd-01"), ("empty", ""), ("redrive-key", "cust-9"), ("Content-Length", "0")} <= set(made)


def test_what_http_cannot_carry_goes_in_base64_under_a_name_of_its_own() -> None:
    headers = (("x-raw", b"\x00\r\nEvil: 1"), ("x y", b"1"), ("größe", b"2"), ("x-pad", b" 3"), ("Idempotency-Key", b"theirs"))
    made = dict(headers_of(Message(body=b"", headers=headers, key="schlüssel".encode(), id="größe")))
    assert {name: base64.b64decode(value) for name, value in made.items() if name.startswith("redrive-base64-")} == {
        "redrive-base64-x-raw": b"\x00\r\nEvil: 1",
        "redrive-base64-x%20y": b"1",
        "redrive-base64-gr%C3%B6%C3%9Fe": b"2",
        "redrive-base64-x-pad": b" 3",
        "redrive-base64-Idempotency-Key": b"theirs",
        "redrive-base64-redrive-key": "schlüssel".encode(),
        "redrive-base64-redrive-source-id": "größe".encode(),
    }
    assert "Idempotency-Key" not in made


def test_what_speaks_of_another_connection_is_never_sent() -> None:
    names = ("Host", "Connection", "Content-Length", "Transfer-Encoding", "Upgrade", "TE", "Expect", "Content-Type", "User-Agent")
    with receiving(Answer(status=200)) as receiver:
        (delivery,) = sent(receiver.url(), Message(body=b"x", headers=tuple((name, b"7") for name in names)))
    assert isinstance(delivery, Delivered)
    (request,) = receiver.requests
    assert request.headers.keys() == {"host", "content-length", "content-type", "user-agent", "accept-encoding"}
    assert "7" not in request.headers.values()
    assert request.body == b"x"


@settings(deadline=None, derandomize=True, max_examples=200)
@given(st.lists(st.tuples(st.text(), st.binary())), st.binary(), st.text())
def test_no_header_can_break_a_request(headers: list[tuple[str, bytes]], key: bytes, content_type: str) -> None:
    for name, value in headers_of(Message(body=b"", headers=tuple(headers), key=key, id=content_type, content_type=content_type)):
        assert name.isascii()
        assert not set(name) & set(" :\r\n\0\t")
        assert value.isascii()
        assert value == value.strip()
        assert value.isprintable()


def test_what_is_evidence_only_is_not_sent() -> None:
    with receiving() as receiver:
        delivery = refused(receiver.url(), Message(body=b"<object>", content_type="text/x-python-repr"))
    assert not delivery.was_reached
    assert "repair its body first" in delivery.failure.message
    assert receiver.requests == []


def test_a_login_in_the_url_goes_where_logins_go_and_nowhere_else() -> None:
    echo = base64.b64encode(b"annabel:p@ss") + b" p@ss t0ken"
    with receiving(Answer(status=401, body=echo)) as receiver:
        target = transport(receiver.url("/orders?access_token=t0ken&team=a", login="annabel:p%40ss@"))
        failure = refused(target, Message(body=b"", headers=(("authorization", b"theirs"),))).failure
    (request,) = receiver.requests
    assert request.headers["authorization"] == "Basic " + base64.b64encode(b"annabel:p@ss").decode()
    assert "annabel" not in request.headers["host"]
    assert request.path == "/orders?access_token=t0ken&team=a"
    assert target.name == f"http://***@127.0.0.1:{receiver.port}/orders?access_token=***&team=a"
    assert failure.message == f"{target.name} answered 401 Unauthorized: *** *** ***"
    for told in (repr(target), failure.message, unreachable := refused("http://annabel:p%40ss@127.0.0.1:1/").failure.message):
        assert not any(secret in told for secret in ("annabel", "p@ss", "p%40ss", "t0ken"))
    assert unreachable.startswith("http://***@127.0.0.1:1/ cannot be reached")


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("http:", "this target cannot be read; write it like http://127.0.0.1:9000/orders"),
        ("http:orders", "this target cannot be read"),
        ("http://h:99999/x?token=s3cret", "this target cannot be read"),
        ("https://ann:s3cret@/orders", "a target's URL names a host"),
        ("http://h/orders#time=5", "a target's URL has no option 'time'"),
        ("http://h/orders#timeout=soon", "must be a number of seconds"),
        ("http://***@h/orders", "login was not kept"),
        ("htp://h/orders", "did you mean http:?"),
    ],
)
def test_a_url_that_is_none_gets_one_clear_sentence(url: str, sentence: str) -> None:
    with pytest.raises(BadSettings) as raised:
        transport(url)
    assert sentence in str(raised.value)
    assert "s3cret" not in str(raised.value)


def test_options_behind_the_hash_stay_here() -> None:
    with receiving(Answer(hangs=True)) as receiver:
        assert "within 1 s" in unknown(f"{receiver.url('/orders')}#timeout=1")
    assert receiver.requests[0].path == "/orders"


def test_an_endpoint_can_only_be_sent_to() -> None:
    target = transport("https://example.com/orders")
    assert target.name == "https://example.com/orders"
    for verb in (target.receive(), target.peek(), target.settle([], done=True)):
        with pytest.raises(Unsupported, match="an HTTP endpoint can be sent to, but not"):
            asyncio.run(verb)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_only_a_certificate_that_is_trusted_is_spoken_to(tmp_path: Path) -> None:
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", str(key), "-out", str(cert)]
    subprocess.run([*made, "-subj", "/CN=us", "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(cert, key)
    with receiving(Answer(status=200), tls=tls) as receiver:
        url = receiver.url().replace("http:", "https:")
        delivery = refused(url)
        assert receiver.requests == []
        assert sent(f"{url}#ca={cert}") == [Delivered(confirmed=True, result=200)]
    assert not delivery.was_reached
    assert "certificate" in delivery.failure.message
    with pytest.raises(BadSettings, match="cannot read the certificates /nowhere"):
        sent("https://127.0.0.1:9/orders#ca=/nowhere/ca.pem")


def test_a_letter_is_marked_so_that_the_endpoint_can_tell_a_second_delivery() -> None:
    one = letter("1", generation=2)
    made = dict(headers_of(outgoing(one, b"x")))
    assert made["redrive-id"] == str(one.id)
    assert made["Idempotency-Key"] == f"{one.id}-2"
    assert made["redrive-source-id"] == one.source_id


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory:" if request.param == "memory" else f"sqlite:{tmp_path}/redrive.db"


def story(dlq: blocking.DeadLetters, to: str) -> tuple[dict[Any, Any], Any, Any]:
    """Send every letter there: the report's entries, the letters by id, and the ledger's rows by letter."""
    report = dlq.redrive(to, query=EVERYTHING)
    rows = {row.letter: row for row in dlq.desk.ledger(report.operation)}
    return report.entries, {one.id: one for one in dlq.find(page=10)}, rows


def test_letters_go_their_whole_way(url: str) -> None:
    with blocking.open(url) as dlq:
        ids = [dlq.capture(Message(body=b"x", id=str(n)), ValueError("bad"), source="orders").letter.id for n in range(4)]
        answers = (Answer(status=204), Answer(status=202), Answer(status=503, body=b"busy"), Answer(closes=True))
        with receiving(*answers) as receiver:
            entries, letters, rows = story(dlq, receiver.url("/orders", login="ann:p4ssword@"))
        assert entries == {Entry.CONFIRMED: 1, Entry.SENT: 1, Entry.FAILED: 1, Entry.UNKNOWN: 1}
        became = {rows[id].entry: letters[id] for id in ids}
        assert became[Entry.CONFIRMED].status is Status.COMPLETED
        assert became[Entry.SENT].status is Status.REDRIVEN
        assert became[Entry.FAILED].status is Status.PENDING
        assert became[Entry.FAILED].history[-1].error == "http.503"
        assert became[Entry.UNKNOWN].status is Status.REDRIVEN
        assert became[Entry.UNKNOWN].history[-1].outcome_unknown
        assert {request.headers["redrive-id"] for request in receiver.requests} == {str(id) for id in ids}
        assert "answered 503 Service Unavailable: busy" in " ".join(row.detail for row in rows.values())
        assert "p4ssword" not in repr((letters, rows))


def test_letters_whose_endpoint_has_disappeared_stay_as_they_were(url: str) -> None:
    with blocking.open(url) as dlq:
        before = dlq.capture(Message(body=b"x", id="1"), ValueError("bad"), source="orders").letter
        entries, letters, rows = story(dlq, f"http://127.0.0.1:{free_port()}/orders")
        assert entries == {Entry.FAILED: 1}
        assert "cannot be reached: Connection refused; nothing was sent" in rows[before.id].detail
        after = letters[before.id]
        assert (after.status, after.history, after.redrive.count) == (Status.PENDING, before.history, 0)


def test_a_login_is_nowhere_in_the_store(tmp_path: Path) -> None:
    with receiving(Answer(status=500)) as receiver, blocking.open(f"sqlite:{tmp_path}/redrive.db") as dlq:
        dlq.capture(Message(body=b"x", id="1"), ValueError("bad"), source="orders")
        dlq.redrive(receiver.url("/orders", login="annabel:p4ssword@"), query=EVERYTHING)
        assert dlq.operations.list()[0].target == receiver.url("/orders", login="***@")
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"orders" in kept
    assert b"p4ssword" not in kept
    assert b"annabel" not in kept
