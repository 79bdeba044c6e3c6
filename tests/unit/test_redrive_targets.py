"""Targets by name, and the queue in memory."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from redrive import BadSettings, Bury, Message, Policy, Retry, Unsupported
from redrive.backends.memory import MemoryTransport
from redrive.engine.dead_letters import DeadLetters
from redrive.model.operation import Delivered
from redrive.wiring import transport
from tests.unit.targets import BAD, Tell, teller


@pytest.fixture(params=["memory", "sqlite"])
def tell(request: pytest.FixtureRequest, tmp_path: Path) -> Tell:
    return teller("memory:" if request.param == "memory" else f"sqlite:{tmp_path}/redrive.db")


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("py:", "does not name a function; write module:function"),
        ("py:json", "does not name a function; write module:function"),
        ("py:no_such_module:f", "cannot import 'no_such_module'"),
        ("py:json:no_such_function", "'json' has no 'no_such_function'"),
        ("py:json:__doc__", "is a str, and cannot be called"),
        ("py:.relative:f", "cannot import '.relative'"),
        ("smtp:x", "no target answers to 'smtp:'; known are py:, command:"),
        ("comand:", "did you mean command:?"),
        ("handle", "'handle' has no scheme; a target's URL begins with one of py:, command:"),
        ("", "has no scheme"),
    ],
)
def test_a_target_that_is_not_there_gets_one_clear_sentence(url: str, sentence: str) -> None:
    with pytest.raises(BadSettings) as refused:
        transport(url)
    assert sentence in str(refused.value)


def test_a_target_whose_module_is_broken_gets_one_clear_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    for name, text in (
        ("broken_syntax", "def f(:"),
        ("broken_name", "undefined_name"),
        ("broken_attribute", "import json; json.nothing"),
    ):
        (tmp_path / f"{name}.py").write_text(text)
        with pytest.raises(BadSettings, match=f"cannot import '{name}'"):
            transport(f"py:{name}:f")


def test_a_function_can_only_be_sent_to() -> None:
    target = transport("py:json:dumps")
    assert target.name == "py:json:dumps"
    for verb in (target.receive(), target.peek(), target.settle([], done=True)):
        with pytest.raises(Unsupported, match="a function can be sent to, but not"):
            asyncio.run(verb)  # type: ignore[arg-type]  # a coroutine


def test_the_queue_in_memory_gives_out_again_what_was_not_acknowledged() -> None:
    async def story() -> None:
        queue = MemoryTransport()
        assert await queue.send([Message(body=b"a"), Message(body=b"b")]) == [Delivered(), Delivered()]
        first, second = await queue.receive(limit=5)
        assert (first.message.body, first.message.delivery_count) == (b"a", 1)
        assert await queue.receive() == []
        assert await queue.settle([first.handle, second.handle], done=True) == [True, True]
        assert await queue.settle([first.handle], done=True) == [False]
        assert await queue.peek() == []
        await queue.send([Message(body=b"c")])
        (given,) = await queue.receive(lease=timedelta(0))
        (again,) = await queue.receive()
        assert again.message.delivery_count == 2
        assert await queue.settle([given.handle], done=True) == [False]
        assert await queue.settle([again.handle], done=False) == [True]
        assert [parcel.message.delivery_count for parcel in await queue.receive()] == [3]

    asyncio.run(story())


def test_a_consumer_of_that_queue_settles_by_verdict(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        queue = MemoryTransport()
        await queue.send([Message(body=b"a", id="1")])

        @dlq.guard(source="orders", policy=Policy(max_attempts=2))
        async def consume(message: Message) -> None:
            raise BAD

        (parcel,) = await queue.receive()
        assert isinstance(await consume(parcel.message), Retry)
        await queue.settle([parcel.handle], done=False)
        (parcel,) = await queue.receive()
        assert isinstance(await consume(parcel.message), Bury)
        await queue.settle([parcel.handle], done=True)
        assert (await queue.peek(), await dlq.letters.count()) == ([], 1)

    tell(story)
