"""An HTTP endpoint as a target: what each answer means, and what is said when there is none."""

from __future__ import annotations

import asyncio
import socket
import threading

import pytest

from redrive import Category, Message
from redrive.backends.http import HttpTransport
from redrive.backends.http.headers import headers_of
from redrive.model.operation import Delivered, Unknown
from redrive.testing.servers import free_port
from redrive.wiring import transport
from tests.unit.endpoints import ONE, answering, impatient, keeping, raw_server, read_request, refused, sent, unknown
from tests.unit.receivers import PATIENCE_SECONDS, Answer, receiving
from tests.unit.waiting import until


@pytest.mark.parametrize("status", [200, 201, 204, 299])
def test_a_yes_of_the_endpoint_says_that_the_work_is_done(status: int) -> None:
    with receiving(Answer(status=status)) as receiver:
        assert sent(receiver.url()) == [Delivered(confirmed=True, result=status)]


def test_accepted_says_only_that_it_was_taken() -> None:
    with receiving(Answer(status=202)) as receiver:
        assert sent(receiver.url()) == [Delivered(confirmed=False, result=202)]


@pytest.mark.parametrize(
    ("status", "reason", "category"),
    [
        (400, "Bad Request", Category.VALIDATION),
        (403, "Forbidden", Category.PERMISSION),
        (404, "Not Found", Category.PERMANENT),
        (429, "Too Many Requests", Category.TRANSIENT),
        (503, "Service Unavailable", Category.TRANSIENT),
        (504, "Gateway Timeout", Category.NETWORK),
    ],
)
def test_any_other_status_is_a_refusal_in_the_words_of_the_endpoint(status: int, reason: str, category: Category) -> None:
    with receiving(Answer(status=status, body=b"no such\n order \x00")) as receiver:
        delivery = refused(receiver.url("/orders"))
    assert delivery.was_reached
    assert (delivery.failure.type, delivery.failure.category) == (f"http.{status}", category)
    assert delivery.failure.message == f"http://127.0.0.1:{receiver.port}/orders answered {status} {reason}: no such order �"
    assert delivery.failure.fingerprint


def test_long_words_are_cut() -> None:
    with receiving(Answer(status=500, body=b"x" * 1_000_000)) as receiver:
        message = refused(receiver.url()).failure.message
    assert message.endswith("Internal Server Error: " + "x" * 499 + "…")


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirects_are_not_followed_but_told(status: int) -> None:
    with (
        receiving() as elsewhere,
        receiving(Answer(status=status, headers={"Location": elsewhere.url("/new?token=t0ken")})) as receiver,
    ):
        failure = refused(receiver.url()).failure
    assert failure.type == f"http.{status}"
    assert f"and pointed to {elsewhere.url('/new?token=***')}; redirects are not followed" in failure.message
    assert elsewhere.requests == []


def test_without_a_connection_nothing_was_sent() -> None:
    delivery = refused(url := f"http://127.0.0.1:{free_port()}/orders")
    assert not delivery.was_reached
    assert delivery.failure.type == "builtins.ConnectionRefusedError"
    assert delivery.failure.category is Category.NETWORK
    assert delivery.failure.message == f"{url} cannot be reached: Connection refused; nothing was sent"
    delivery = refused("http://nobody.invalid/orders")
    assert not delivery.was_reached
    assert delivery.failure.type == "socket.gaierror"


def test_a_connection_that_does_not_come_in_time_is_no_request() -> None:
    # Where connections are queued and none is taken, the next one has to wait; it is the way to a host that is silent.
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener, socket.socket() as first, socket.socket() as second:
        for one in (first, second):
            one.setblocking(False)
            one.connect_ex(listener.getsockname())
        delivery = refused(impatient(f"http://127.0.0.1:{listener.getsockname()[1]}/orders"))
    assert not delivery.was_reached
    assert delivery.failure.category is Category.NETWORK


def test_an_endpoint_that_hangs_may_have_worked() -> None:
    with receiving(Answer(hangs=True)) as receiver:
        assert unknown(impatient(receiver.url())) == f"{receiver.url()} did not answer within 1 s; it may have worked"


def test_an_endpoint_that_goes_away_without_an_answer_may_have_worked() -> None:
    with receiving(Answer(closes=True)) as receiver:
        assert "broke off without an answer" in unknown(receiver.url())


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 20",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nha",
        b"HTTP/1.1 103 Early Hints\r\n\r\n",
        b"good morning\r\n\r\n",
        b"",
    ],
)
def test_an_answer_that_is_cut_or_none_is_no_yes(answer: bytes) -> None:
    with raw_server(answering(answer)) as url:
        assert unknown(url).endswith("; it may have worked")


def test_a_yes_that_never_ends_is_none() -> None:
    with receiving(Answer(status=200, body=b"begun", drips=True)) as receiver:
        assert unknown(impatient(receiver.url())).endswith("answered 200, but its answer broke off; it may have worked")


def test_a_no_that_never_ends_is_one() -> None:
    with receiving(Answer(status=503, body=b"begun", drips=True)) as receiver:
        assert refused(impatient(receiver.url())).failure.type == "http.503"


def test_a_no_while_the_body_is_still_on_its_way_is_heard() -> None:
    def talk(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 5\r\n\r\nlarge")
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(1_000_000):
            pass

    with raw_server(talk) as url:
        failure = refused(url, Message(body=b"x" * 5_000_000)).failure
    assert (failure.type, failure.category) == ("http.413", Category.VALIDATION)


def test_each_message_of_a_batch_has_its_own_answer() -> None:
    bodies = [b"good", b"bad", b"good", b"bad", b"good"] * 6
    with keeping() as (server, url):
        answers = sent(url, *(Message(body=body) for body in bodies))
    assert [isinstance(answer, Delivered) for answer in answers] == [body == b"good" for body in bodies]
    assert sorted(server.bodies) == sorted(bodies)


def test_ten_of_a_batch_go_at_a_time_over_connections_that_are_kept() -> None:
    with keeping(gather=10) as (server, url):
        answers = sent(url, *(Message(body=b"%d" % number) for number in range(100)))
        assert answers == [Delivered(confirmed=True, result=200)] * 100
        assert (server.connections, server.most) == (10, 10)


def test_the_next_batch_takes_over_the_connections_of_the_last() -> None:
    async def story() -> None:
        target = transport(url)
        for _ in range(5):
            assert await target.send([ONE] * 3) == [Delivered(confirmed=True, result=200)] * 3

    with keeping(gather=3) as (server, url):
        asyncio.run(story())
        assert server.connections == 3


def test_one_that_hangs_keeps_no_other_back() -> None:
    with receiving(Answer(hangs=True), Answer(status=200)) as receiver:
        answers = sent(impatient(receiver.url(), 4), *[ONE] * 30)
    assert [type(answer) for answer in answers].count(Unknown) == 1
    assert answers.count(Delivered(confirmed=True, result=200)) == 29


def test_a_connection_that_was_ended_between_requests_is_made_anew() -> None:
    """The answer says that it is kept, and it is not: seen in time, nothing is lost by that."""
    ended = threading.Semaphore(0)

    def talk(connection: socket.socket) -> None:
        if read_request(connection):
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        connection.shutdown(socket.SHUT_RDWR)
        ended.release()

    with raw_server(talk) as url:
        target = HttpTransport(url, concurrency=1)
        line = target._line()
        answers = []
        for _ in range(3):
            line.forget()
            answers.append(line.ask(headers_of(ONE), ONE.body))
            assert ended.acquire(timeout=PATIENCE_SECONDS)
        line.cut()
    assert [getattr(answer, "status", answer) for answer in answers] == [200] * 3


def test_a_line_that_was_cut_sends_nothing_any_more() -> None:
    with receiving() as receiver:
        line = HttpTransport(receiver.url())._line()
        line.cut()
        heard = line.ask(headers_of(ONE), ONE.body)
        assert "no connection" in str(getattr(heard, "error", ""))
    assert receiver.requests == []


def test_who_is_cancelled_leaves_no_request_behind() -> None:
    async def story() -> None:
        sending = asyncio.create_task(transport(receiver.url()).send([ONE] * 3))
        await until(lambda: len(receiver.requests) == 3)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        await until(lambda: not any(one.name == "redrive-aside" for one in threading.enumerate()))

    with receiving(Answer(hangs=True)) as receiver:
        asyncio.run(story())
