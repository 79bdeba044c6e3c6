"""What the queues' HTTP interface reads and speaks: methods, paths, formats, sizes, and bytes that are no message."""

from __future__ import annotations

import pytest

from redrive.queues.wire import messages as m
from redrive.queues.wire import proto
from tests.unit.queue_use import Use
from tests.unit.queue_wire import (
    CLEAR,
    COMPLETE,
    CREATE,
    DELETE,
    DISCARD,
    ENCODINGS,
    IMPORT,
    INFO,
    ITEMS,
    JSON,
    LEASE,
    LIST,
    NO_NAME,
    PRODUCE,
    PROTOBUF,
    RELOAD,
    RETRY,
    SCHEDULED,
    STATS,
    UPDATE,
    ask,
    ensure_refused,
    reply,
    tried,
)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=["json", "protobuf"])
@pytest.mark.parametrize("path", [LIST, "/v1/nope"])
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_all_is_posted(method: str, path: str, encoding: str) -> None:
    async def trial(use: Use) -> None:
        heard = await ask(use.endpoint, path, method=method, accept=encoding)
        assert heard.content_type == encoding
        ensure_refused(heard, 400, f"http method '{method}' not allowed; only POST")

    tried(trial)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=["json", "protobuf"])
@pytest.mark.parametrize("path", ["/v1/nope", "/v1/", "/v1/queue.lease/", "/v1/more/nope"])
def test_what_is_nowhere_is_not_implemented(path: str, encoding: str) -> None:
    async def trial(use: Use) -> None:
        heard = await ask(use.endpoint, path, b"{}", accept=encoding, content_type=JSON)
        assert heard.content_type == encoding
        ensure_refused(heard, 501, f"no such method; {path}")

    tried(trial)


@pytest.mark.parametrize(
    "given", [None, JSON, "application/json; charset=utf-8", "application/json;charset=utf-8", "Application/JSON"]
)
def test_json_is_what_says_so_and_what_says_nothing(given: str | None) -> None:
    async def trial(use: Use) -> None:
        headers = {} if given is None else {"content_type": given}
        heard = await ask(use.endpoint, INFO, b'{"queue_name":"p1"}', **headers)
        assert (heard.status, heard.told["queue_name"]) == (200, "p1")

    tried(trial)


@pytest.mark.parametrize("given", [PROTOBUF, "application/protobuf; proto=x"])
def test_protobuf_without_accept_is_answered_in_json(given: str) -> None:
    async def trial(use: Use) -> None:
        heard = await ask(use.endpoint, INFO, proto.write(m.Named("p1")), content_type=given)
        assert (heard.status, heard.content_type, heard.told["queue_name"]) == (200, JSON, "p1")

    tried(trial)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=["json", "protobuf"])
@pytest.mark.parametrize("given", ["text/plain", "text/plain; charset=utf-8", "application/xml", "json", "application/jsonp"])
def test_any_other_content_type_is_refused(given: str, encoding: str) -> None:
    async def trial(use: Use) -> None:
        heard = await ask(use.endpoint, LIST, b"{}", content_type=given, accept=encoding)
        assert heard.content_type == encoding
        ensure_refused(heard, 455, f"Content-Type header '{given}' is invalid format or unrecognized content type")

    tried(trial)


@pytest.mark.parametrize(
    ("accept", "encoding"),
    [
        ("*/*", JSON),
        ("application/*", JSON),
        (JSON, JSON),
        ("application/json; q=0.9", JSON),
        ("application/json, application/protobuf", JSON),
        ("*/*, application/protobuf", JSON),
        (PROTOBUF, PROTOBUF),
        ("Application/Protobuf", PROTOBUF),
        ("application/protobuf;q=1", PROTOBUF),
        ("application/protobuf, application/json", PROTOBUF),
    ],
)
def test_the_answer_is_in_the_format_that_is_accepted_first(accept: str, encoding: str) -> None:
    async def trial(use: Use) -> None:
        heard = await ask(use.endpoint, INFO, b'{"queue_name":"p1"}', content_type=JSON, accept=accept)
        assert (heard.status, heard.content_type) == (200, encoding)
        told = heard.told["queue_name"] if encoding == JSON else proto.read(m.QueueInfo, heard.body).queue_name
        assert told == "p1"

    tried(trial)


@pytest.mark.parametrize(
    ("accept", "named"), [("text/plain", "text/plain"), ("text/html, application/json", "text/html"), ("text/*", "text/*")]
)
def test_a_format_that_is_not_spoken_is_refused_in_json(accept: str, named: str) -> None:
    async def trial(use: Use) -> None:
        heard = await ask(use.endpoint, LIST, b"{}", accept=accept)
        assert heard.content_type == JSON
        sentence = (
            f"Accept header '{named}' is invalid format or unrecognized content type, only [{JSON},{PROTOBUF}] are supported"
        )
        ensure_refused(heard, 455, f"{sentence} by this method")

    tried(trial)


LIMITS = [
    (PRODUCE, 5_000_000, "5.0MB"),
    (LEASE, 512, "512B"),
    (STATS, 512, "512B"),
    (CLEAR, 512, "512B"),
    (RELOAD, 512, "512B"),
    (IMPORT, 64_000_000, "61.0MiB"),
    (UPDATE, 512_000, "500.0KiB"),
    *[(path, 256_000, "250.0KiB") for path in (COMPLETE, RETRY, CREATE, LIST, INFO, DELETE, ITEMS, SCHEDULED, DISCARD)],
]


@pytest.mark.parametrize(
    ("path", "limit", "text", "encoding"),
    [(*limit, encoding) for limit in LIMITS for encoding in ENCODINGS if (limit[0], encoding) != (IMPORT, PROTOBUF)],
)
def test_a_body_may_have_so_many_bytes_and_not_one_more(path: str, limit: int, text: str, encoding: str) -> None:
    async def trial(use: Use) -> None:
        fits = await ask(use.endpoint, path, b"{}".ljust(limit), content_type=JSON, accept=encoding)
        assert (fits.status, path) == (200, LIST) or reply(fits).message == NO_NAME
        heard = await ask(use.endpoint, path, b"{}".ljust(limit + 1), content_type=JSON, accept=encoding)
        assert heard.content_type == encoding
        ensure_refused(heard, 400, f"request body exceeds {text} limit")

    tried(trial)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=["json", "protobuf"])
@pytest.mark.parametrize(
    ("path", "body", "sentence"),
    [
        (CREATE, b'{"queue_name":"abcd", "foo":1}', 'proto: (line 1:23): unknown field "foo"'),
        (CREATE, b'{"queue_name":"abc", "foo":1}', 'proto: (line 1:22): unknown field "foo"'),
        (CREATE, b'{\n "queue_name":1}', "proto: (line 2:15): invalid value for string type: 1"),
        (CREATE, b'{"queueName":"a","queue_name":"b"}', 'proto: (line 1:18): duplicate field "queue_name"'),
        (CREATE, b"", "proto: syntax error (line 1:1): unexpected token "),
        (CREATE, b"[]", "proto: syntax error (line 1:1): unexpected token ["),
        (CREATE, b"null", "proto: syntax error (line 1:1): unexpected token null"),
        (CREATE, b"nul", "proto: syntax error (line 1:1): invalid value nul"),
        (CREATE, b'{"queue_name":', "proto: unexpected EOF"),
        (CREATE, b'{"queue_name":"abc', "proto: unexpected EOF"),
        (CREATE, b'{"queue_name":"a",}', "proto: syntax error (line 1:19): unexpected token }"),
        (CREATE, b'{"queue_name":"x"}{}', "proto: syntax error (line 1:19): unexpected token {"),
        (CREATE, b"{a:1}", "proto: syntax error (line 1:2): invalid value a"),
        (CREATE, b'{"queue_name":tru}', "proto: syntax error (line 1:15): invalid value tru"),
        (CREATE, b'{"max_attempts":true}', "proto: (line 1:17): invalid value for int32 type: true"),
        (CREATE, b'{"max_attempts":1.5}', "proto: (line 1:17): invalid value for int32 type: 1.5"),
        (CREATE, b'{"max_attempts":2147483648}', "proto: (line 1:17): invalid value for int32 type: 2147483648"),
        (CREATE, b'{"max_attempts":1e400}', "proto: (line 1:17): invalid value for int32 type: 1e400"),
        (CREATE, b'{"max_attempts":"1e400"}', 'proto: (line 1:17): invalid value for int32 type: "1e400"'),
        (CREATE, '{"max_attempts":"٣"}'.encode(), 'proto: (line 1:17): invalid value for int32 type: "٣"'),
        (CREATE, b'{"max_attempts":01}', "proto: syntax error (line 1:17): invalid value 01"),
        (CREATE, b'{"max_attempts":1x}', "proto: syntax error (line 1:17): invalid value 1x"),
        (CREATE, b'{"max_attempts":- 1}', "proto: syntax error (line 1:17): invalid value -"),
        (CREATE, b'{"queue_name":{}}', "proto: (line 1:15): invalid value for string type: {"),
        (CREATE, b'{"created_at":{}}', "proto: syntax error (line 1:15): unexpected token {"),
        (CREATE, b'{"created_at":1}', "proto: syntax error (line 1:15): unexpected token 1"),
        (CREATE, b'{"created_at":""}', 'proto: (line 1:15): invalid google.protobuf.Timestamp value ""'),
        (CREATE, b'{"partitions":[null]}', "proto: syntax error (line 1:16): unexpected token null"),
        (CREATE, b'{"partitions":{}}', "proto: syntax error (line 1:15): unexpected token {"),
        (PRODUCE, b'{"items":[{"bytes":"!!"}]}', 'proto: (line 1:20): invalid value for bytes type: "!!"'),
        (PRODUCE, b'{"items":[{"bytes":"a-!!"}]}', 'proto: (line 1:20): invalid value for bytes type: "a-!!"'),
        (
            PRODUCE,
            b'{"queue_name":"p1","request_timeout":"1m","items":[{"enqueue_at":"tomorrow"}]}',
            'proto: (line 1:66): invalid google.protobuf.Timestamp value "tomorrow"',
        ),
        (
            PRODUCE,
            b'{"queue_name":"p1","request_timeout":"1m","items":[{"enqueue_at":"2026-02-30T00:00:00Z"}]}',
            'proto: (line 1:66): invalid google.protobuf.Timestamp value "2026-02-30T00:00:00Z"',
        ),
        (
            IMPORT,
            b'{"queue_name":"p1","items":[{"payload":"aGk=","updated_at":"2024-13-01T00:00:00Z"}]}',
            'proto: (line 1:60): invalid google.protobuf.Timestamp value "2024-13-01T00:00:00Z"',
        ),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else None,
)
def test_json_that_is_no_message_is_refused_with_its_place(path: str, body: bytes, sentence: str, encoding: str) -> None:
    async def trial(use: Use) -> None:
        heard = await ask(use.endpoint, path, body, content_type=JSON, accept=encoding)
        assert heard.content_type == encoding
        ensure_refused(heard, 455, sentence)
        assert [stored.payload for stored in await use.served.items("p1", 0)] == [b"hello"]

    tried(trial)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=["json", "protobuf"])
@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"\x08", "proto: cannot parse invalid wire-format data"),
        (b"\x0a\x02\xff\xff", "proto: cannot parse invalid wire-format data"),
        (
            b"\x0a\x02p1\x12\x021m\x1a\x0c\x22\x0a\x08" + b"\xff" * 8 + b"\x7f",
            "proto: invalid google.protobuf.Timestamp value: 9223372036854775807 s and 0 ns",
        ),
    ],
    ids=["cut short", "no text", "no instant"],
)
def test_protobuf_that_is_no_message_is_refused(body: bytes, sentence: str, encoding: str) -> None:
    async def trial(use: Use) -> None:
        heard = await ask(use.endpoint, PRODUCE, body, content_type=PROTOBUF, accept=encoding)
        assert heard.content_type == encoding
        ensure_refused(heard, 455, sentence)

    tried(trial)
