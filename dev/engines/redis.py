"""Redis: one server, or a cluster of three."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Sequence
from functools import partial

from dev.engines.engine import Engine
from dev.engines.install import Apt
from redrive.testing.servers import HOST, Place, Program, Server

SOURCE = Apt(("redis-server",), lambda: shutil.which("redis-server"))


def redis(*, durable: bool = True, password: str | None = None, more: Sequence[str] = (), ports: Sequence[int] = ()) -> Server:
    """One server. Durable: every write is on the disk before it is acknowledged."""
    return Server(program(durable=durable, password=password, more=more), ports=ports)


def program(*, durable: bool, password: str | None = None, more: Sequence[str] = ()) -> Program:
    kept = ["--appendonly", "yes", "--appendfsync", "always"] if durable else ["--appendonly", "no"]
    guarded = ["--requirepass", password] if password else []

    def command(place: Place) -> list[str]:
        where = ["--bind", HOST, "--port", str(place.port), "--dir", str(place.folder)]
        return ["redis-server", *where, "--save", "", *kept, *guarded, *more]

    return Program(
        name="redis",
        command=command,
        is_ready=partial(_is_ready, password),
        url=lambda place: f"redis://{f':{password}@' if password else ''}{HOST}:{place.port}/0",
    )


def ask(port: int, *words: str, password: str | None = None) -> str:
    """What a Redis answers to one command, as it stands on the wire."""
    commands = [("AUTH", password), words] if password else [words]
    with socket.create_connection((HOST, port), timeout=5) as connection, connection.makefile("rb") as answers:
        for command in commands:
            parts = b"".join(b"$%d\r\n%s\r\n" % (len(word.encode()), word.encode()) for word in command)
            connection.sendall(b"*%d\r\n%s" % (len(command), parts))
            answer = answers.readline()
        if answer.startswith(b"$"):
            answer = answers.read(int(answer[1:]))
        return answer.decode()


def _is_ready(password: str | None, place: Place) -> bool:
    return ask(place.port, "PING", password=password).startswith("+PONG")


ENGINE = Engine(name="redis", source=SOURCE, make=redis)
